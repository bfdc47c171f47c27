"""Looking without touching: get, peek, stats, explain, failures, trace."""

from __future__ import annotations

import json
from typing import Any

from fairlead import limits
from fairlead.backends.base import Facts, Op, Row
from fairlead.errors import InvalidArgument, MessageNotFound, QueueNotFound
from fairlead.operations import check
from fairlead.operations.call import Call, Core
from fairlead.operations.queues import which
from fairlead.values import (
    COUNTERS,
    STATE_CODES,
    STATES,
    Explanation,
    Failure,
    Message,
    Stats,
    Step,
    moment,
)


def get(core: Core, queue: str, id: int | None, key: str | None) -> Call[Message | None]:
    _, id = which(id, key)

    def start() -> Op[Message | None]:
        row = yield from core.backend.get(queue, id, key, core.now())
        return None if row is None else Message(queue, row)

    return Call("get", start, repeatable=True)


def peek(
    core: Core, queue: str, n: int, state: str | None, channel: str | None, after: int
) -> Call[list[Message]]:
    check.integer(n, "n", 1, limits.RECEIVE_MAX)
    if state is not None and state not in STATE_CODES:
        raise InvalidArgument(f"state must be one of {', '.join(STATE_CODES)}, not {state!r}")
    if channel is not None:
        check.name(channel, "channel", empty=True)
    after = check.integer(after, "after", 0, 2**63 - 1)
    code = None if state is None else STATE_CODES[state]

    def start() -> Op[list[Message]]:
        rows = yield from core.backend.peek(queue, n, code, channel, after, core.now())
        return [Message(queue, row) for row in rows]

    return Call("peek", start, repeatable=True)


_GAUGES = 6


def _stats_value(row: Row) -> Stats:
    gauges, totals = row[1 : 1 + _GAUGES], row[1 + _GAUGES : 1 + _GAUGES + len(COUNTERS)]
    oldest, versions = row[1 + _GAUGES + len(COUNTERS) :]
    return Stats(
        *(int(value) for value in (*gauges, *totals)),
        oldest_ready=None if oldest is None else moment(int(oldest)),
        versions={int(v): n for v, n in json.loads(versions or "{}").items()},
    )


def queue_stats(core: Core, queue: str) -> Call[Stats]:
    def start() -> Op[Stats]:
        rows = yield from core.backend.stats(queue, core.now())
        if not rows:
            raise QueueNotFound(queue)
        return _stats_value(rows[0])

    return Call("stats", start, repeatable=True)


def all_stats(core: Core) -> Call[Stats]:
    def start() -> Op[Stats]:
        rows = yield from core.backend.stats(None, core.now())
        return _sum({row[0]: _stats_value(row) for row in rows})

    return Call("stats", start, repeatable=True)


def _sum(queues: dict[str, Stats]) -> Stats:
    """All queues' numbers as one."""
    stats = list(queues.values())
    names = ("ready", "scheduled", "leased", "held", "done", "dead", *COUNTERS)
    oldest = [s.oldest_ready for s in stats if s.oldest_ready is not None]
    versions: dict[int, int] = {}
    for one in stats:
        for version, count in one.versions.items():
            versions[version] = versions.get(version, 0) + count
    return Stats(
        *(sum(getattr(s, name) for s in stats) for name in names),
        oldest_ready=min(oldest, default=None),
        versions=versions,
        queues=queues,
    )


def failures(
    core: Core, queue: str, id: int | None, key: str | None, n: int
) -> Call[list[Failure]]:
    check.integer(n, "n", 1, limits.RECEIVE_MAX)
    id = check.optional_integer(id, "id", 0, 2**63 - 1)
    check.optional_name(key, "key")

    def start() -> Op[list[Failure]]:
        rows = yield from core.backend.failures(queue, id, key, n)
        return [
            Failure(
                row[0],
                row[1],
                row[2],
                row[3],
                moment(row[4]),
                row[5],
                None if row[6] is None else json.loads(row[6]),
                row[7],
            )
            for row in rows
        ]

    return Call("failures", start, repeatable=True)


def trace(core: Core, key: str) -> Call[list[Step]]:
    check.name(key, "key")

    def start() -> Op[list[Step]]:
        rows = yield from core.backend.trace(key)
        return [Step(moment(r[0]), r[1], r[2], r[3], STATES[r[4]], r[5]) for r in rows]

    return Call("trace", start, repeatable=True)


def explain(core: Core, queue: str, id: int | None, key: str | None) -> Call[Explanation]:
    what, id = which(id, key)

    def start() -> Op[Explanation]:
        facts = yield from core.backend.facts(queue, id, key, core.now())
        if facts is None:
            raise MessageNotFound(what)
        return _explanation(queue, facts)

    return Call("explain", start, repeatable=True)


def duration_text(us: int) -> str:
    """A length of time as a person says it: 0.4 s, 12 s, 3 min 20 s, 5 h 4 min, 12 days."""
    seconds = max(us, 0) / limits.SECOND
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{round(seconds / 86400)} days"


def _ordinal(n: int) -> str:
    suffix = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix} in line"


def next_slot(tat: int, now: int, count: int, period: int, burst: int) -> int:
    """When GCRA lets the next one through (semantics §4.11)."""
    interval = -(-period // count)
    return max(now, max(tat, now) - (burst - 1) * interval)


def _explanation(queue: str, facts: Facts) -> Explanation:
    message = Message(queue, facts.row)
    state, row, now = message.state, facts.row, facts.now
    if state == "ready" or (state == "scheduled" and row[8] <= now):
        reason, parts, next_at = _why_ready(message, facts)
        position = facts.ahead + 1
        if row[8] > now:  # it was promoted (semantics §7.3)
            parts.append(f"ready ahead of its time, due in {duration_text(row[8] - now)}")
        text = "; ".join([*parts, _ordinal(position)])
        return Explanation(
            message.id,
            "ready",
            reason,
            f"{reason}: {text}",
            position,
            None if next_at is None else moment(next_at),
        )
    reason, text, next_at = _why_not_ready(message, facts)
    return Explanation(
        message.id, state, reason, text, None, None if next_at is None else moment(next_at)
    )


def _why_not_ready(message: Message, facts: Facts) -> tuple[str, str, int | None]:
    row, now = facts.row, facts.now
    if message.state == "scheduled":
        wait = duration_text(row[8] - now)
        times = "once" if row[10] == 1 else f"{row[10]} times"
        after = f" after it failed {times}" if row[10] else ""
        return "scheduled", f"scheduled: due in {wait}{after}", row[8]
    if message.state == "leased":
        until = row[13]
        if until <= now:
            text = "leased: its lease has expired; the next receive makes it ready again"
            return "expired", text, now
        wait = duration_text(until - now)
        text = f"leased: delivery {row[11]}, attempt {row[10]}, lease ends in {wait}"
        return "leased", text, until
    if message.state == "held":
        if message.group is None:
            return "held", "held: it is the end or abort work of a group that is still open", None
        return "held", f"held: its group {message.group!r} has not been started", None
    if message.state == "done":
        return "done", "done: it was completed and is kept until its retention ends", None
    error = message.error or "no error was given"
    text = f"dead after {row[10]} attempts: {error}. Redrive it with queue.redrive()"
    return "dead", text, None


def _why_ready(message: Message, facts: Facts) -> tuple[str, list[str], int | None]:
    """(reason, parts of the sentence, when that may change) for a ready message."""
    queue, policy, now = facts.queue, facts.policy, facts.now
    name = f"channel {message.channel!r}" if message.channel else "the default channel"
    if queue["paused"]:
        return "paused", ["the queue is paused; resume it with queue.resume()"], None
    if policy[5]:
        return "paused", [f"{name} is paused by its policy"], None
    blocks: list[str] = []
    times: list[int] = []
    if policy[6] and facts.blocking_id is not None:
        blocks.append(f"{name} is ordered and waits for message {facts.blocking_id}")
    if policy[0] is not None and facts.leased >= policy[0]:
        blocks.append(f"{name} has {facts.leased} of {policy[0]} leases")
        if facts.next_lease_end is not None:
            times.append(facts.next_lease_end)
    limit: Any = queue["limit_concurrency"]
    if limit is not None and facts.leased_queue >= limit:
        blocks.append(f"the queue has {facts.leased_queue} of {limit} leases")
    for owner, tat, count, period, burst in (
        (name, facts.tat, policy[1], policy[2], policy[3]),
        (
            "the queue",
            facts.queue_tat,
            queue["limit_rate_count"],
            queue["limit_rate_period_us"],
            queue["limit_burst"],
        ),
    ):
        if count is not None and (slot := next_slot(tat, now, count, period, burst)) > now:  # pyright: ignore[reportArgumentType]
            blocks.append(f"{owner} is at its rate of {check.rate_text(count, period)}")  # pyright: ignore[reportArgumentType]
            times.append(slot)
    if not blocks:
        return "ready", [f"{name} is open; a receive will give it in its turn"], None
    when = max(times) if times else None
    if when is not None:
        blocks.append(f"next slot in {duration_text(when - now)}")
    return "blocked", blocks, when
