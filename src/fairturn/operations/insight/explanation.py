"""explain: why a message is not running, in words."""

from __future__ import annotations

from typing import Any

from fairturn.backends.base import Facts
from fairturn.backends.steps import Op
from fairturn.core import check
from fairturn.core.errors import MessageNotFound
from fairturn.core.message import Message
from fairturn.core.values import Explanation, duration_text, optional_moment
from fairturn.operations.call import Call, Core
from fairturn.operations.messages import which


def explain(core: Core, queue: str, id: int | None, key: str | None) -> Call[Explanation]:
    what, id = which(id, key)

    def start() -> Op[Explanation]:
        facts = yield from core.backend.facts(queue, id, key, core.now())
        if facts is None:
            raise MessageNotFound(what)
        return _explanation(queue, facts)

    return Call("explain", start, repeatable=True)


def _ordinal(n: int) -> str:
    suffix = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix} in line"


def next_slot(tat: int, now: int, count: int, period: int, burst: int) -> int:
    """Return when the rate (GCRA) allows the next delivery (semantics §4.11)."""
    interval = -(-period // count)
    return max(now, max(tat, now) - (burst - 1) * interval)


def _explanation(queue: str, facts: Facts) -> Explanation:
    message = Message(queue, facts.row)
    state, row, now = message.state, facts.row, facts.now
    if state == "ready" or (state == "scheduled" and row.due_at <= now):
        reason, parts, next_at = _why_ready(message, facts)
        position = facts.ahead + 1
        if row.due_at > now:  # it was promoted (semantics §7.3)
            parts.append(f"ready ahead of its time, due in {duration_text(row.due_at - now)}")
        text = "; ".join([*parts, _ordinal(position)])
        return Explanation(
            message.id,
            "ready",
            reason,
            f"{reason}: {text}",
            position,
            optional_moment(next_at),
        )
    reason, text, next_at = _why_not_ready(message, facts)
    return Explanation(message.id, state, reason, text, None, optional_moment(next_at))


def _why_not_ready(message: Message, facts: Facts) -> tuple[str, str, int | None]:
    row, now = facts.row, facts.now
    if message.state == "scheduled":
        wait = duration_text(row.due_at - now)
        times = "once" if row.attempts == 1 else f"{row.attempts} times"
        after = f" after it failed {times}" if row.attempts else ""
        return "scheduled", f"scheduled: due in {wait}{after}", row.due_at
    if message.state == "leased":
        until = row.lease_until or 0
        if until <= now:
            text = "leased: its lease has expired; the next receive makes it ready again"
            return "expired", text, now
        wait = duration_text(until - now)
        text = f"leased: delivery {row.deliveries}, attempt {row.attempts}, lease ends in {wait}"
        return "leased", text, until
    if message.state == "held":
        if message.group is None:
            return (
                "held",
                "held: it is the end or abort message of a group that is still open",
                None,
            )
        return "held", f"held: its group {message.group!r} has not been started", None
    if message.state == "done":
        return "done", "done: it was completed and is kept until its retention ends", None
    error = message.error or "no error was given"
    text = f"dead after {row.attempts} attempts: {error}. Redrive it with queue.redrive()"
    return "dead", text, None


def _why_ready(message: Message, facts: Facts) -> tuple[str, list[str], int | None]:
    """Return (reason, parts of the sentence, when that may change) of a ready message."""
    queue, policy, now = facts.queue, facts.policy, facts.now
    name = f"channel {message.channel!r}" if message.channel else "the default channel"
    if queue["paused"]:
        return "paused", ["the queue is paused; resume it with queue.resume()"], None
    if policy.paused:
        return "paused", [f"{name} is paused by its policy"], None
    blocks: list[str] = []
    times: list[int] = []
    if policy.ordered and facts.blocking_id is not None:
        blocks.append(f"{name} is ordered and waits for message {facts.blocking_id}")
    if policy.max_concurrency is not None and facts.leased >= policy.max_concurrency:
        blocks.append(f"{name} has {facts.leased} of {policy.max_concurrency} leases")
        if facts.next_lease_end is not None:
            times.append(facts.next_lease_end)
    limit: Any = queue["limit_concurrency"]
    if limit is not None and facts.leased_queue >= limit:
        blocks.append(f"the queue has {facts.leased_queue} of {limit} leases")
    for owner, tat, count, period, burst in (
        (name, facts.tat, policy.rate_count, policy.rate_period_us, policy.burst),
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
