"""get, peek, stats, failures, trace."""

from __future__ import annotations

import json
from typing import Any

from fairturn.backends.base import Peek
from fairturn.backends.steps import Op
from fairturn.core import check, limits
from fairturn.core.errors import InvalidArgument, QueueNotFound
from fairturn.core.message import Message
from fairturn.core.rows import StatsRow
from fairturn.core.values import (
    COUNTERS,
    STATE_CODES,
    STATES,
    Failure,
    Stats,
    Step,
    moment,
)
from fairturn.operations.call import Call, Core
from fairturn.operations.messages import which


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
    wanted = Peek(n, None if state is None else STATE_CODES[state], channel, after)

    def start() -> Op[list[Message]]:
        rows = yield from core.backend.peek(queue, wanted, core.now())
        return [Message(queue, row) for row in rows]

    return Call("peek", start, repeatable=True)


_COUNTS = ("ready", "scheduled", "leased", "held", "done", "dead", *COUNTERS)


def _stats_value(row: StatsRow) -> Stats:
    oldest = row.oldest_ready
    counts: dict[str, Any] = {name: int(getattr(row, name)) for name in _COUNTS}
    return Stats(
        **counts,
        oldest_ready=None if oldest is None else moment(int(oldest)),
        versions={int(v): n for v, n in json.loads(row.versions or "{}").items()},
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
        return _sum({row.name: _stats_value(row) for row in rows})

    return Call("stats", start, repeatable=True)


def _sum(queues: dict[str, Stats]) -> Stats:
    """Return the sums over all queues."""
    stats = list(queues.values())
    oldest = [s.oldest_ready for s in stats if s.oldest_ready is not None]
    versions: dict[int, int] = {}
    for one in stats:
        for version, count in one.versions.items():
            versions[version] = versions.get(version, 0) + count
    return Stats(
        **{name: sum(getattr(s, name) for s in stats) for name in _COUNTS},
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
                row.queue,
                row.message_id,
                row.key,
                row.attempt,
                moment(row.at),
                row.error,
                None if row.details is None else json.loads(row.details),
                row.reference,
            )
            for row in rows
        ]

    return Call("failures", start, repeatable=True)


def trace(core: Core, key: str) -> Call[list[Step]]:
    check.name(key, "key")

    def start() -> Op[list[Step]]:
        rows = yield from core.backend.trace(key)
        return [
            Step(
                moment(row.at),
                row.queue,
                row.kind,
                row.message_id,
                STATES[row.state],
                row.text,
            )
            for row in rows
        ]

    return Call("trace", start, repeatable=True)
