"""Reading without changing (§9)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from fairturn.backends.base import Facts, Peek
from fairturn.backends.sqlite.common import (
    COLUMNS,
    SQL,
    Queue,
    default_policy,
    find,
    ids_of,
    json_of,
)
from fairturn.backends.steps import BEGIN_READ, Op, Rows
from fairturn.core.rows import (
    FailureRow,
    HistoryRow,
    OutcomeRow,
    PeekRow,
    StatsRow,
    StepRow,
    peek_row,
)
from fairturn.core.settings import PolicyRow


class Insight:
    def get(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> Op[PeekRow | None]:
        yield BEGIN_READ
        found = yield from find(queue, now)
        return (yield from _message(found, id, key))

    def peek(self, queue: str, peek: Peek, now: int | None) -> Op[list[PeekRow]]:
        yield BEGIN_READ
        found = yield from find(queue, now)
        if peek.state is None or peek.state == "r":
            statement = SQL.peek
        else:
            statement = SQL.peek_finished if peek.state in "dx" else SQL.peek_busy
        wanted = (peek.after, peek.state, peek.channel, found.now, peek.n)
        rows = yield statement, (found.lane, *wanted)
        return [*map(peek_row, rows)]

    def stats(self, queue: str | None, now: int | None) -> Op[list[StatsRow]]:
        yield BEGIN_READ
        if queue is not None:
            names = [queue]
        else:
            rows = yield SQL.queue_names, ()
            names = [name for (name,) in rows]
        stats: list[StatsRow] = []
        for name in names:
            found = yield from find(name, now)
            now = found.now  # the same time for all queues
            stats.append((yield from _stats(found, name)))
        return stats

    def history(self, queue: str, since: int, now: int | None) -> Op[list[HistoryRow]]:
        yield BEGIN_READ
        found = yield from find(queue, now)
        rows = yield SQL.history, (found.id, since)
        return [HistoryRow._make(row) for row in rows]

    def facts(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> Op[Facts | None]:
        yield BEGIN_READ
        found = yield from find(queue, now)
        row = yield from _message(found, id, key)
        if row is None:
            return None
        lane, channel = found.lane, row.channel
        policies = yield SQL.get_policy, (found.id, channel)
        before = (lane, channel, -row.priority, row.due_at, row.id)
        [(ahead,)] = yield SQL.ahead, before
        [(leases, next_lease_end)] = yield SQL.channel_leases, (lane, channel)
        [(all_leases,)] = yield SQL.queue_leases, (lane,)
        gates = yield SQL.gate, (found.id, channel)
        policy = next(map(PolicyRow._make, policies), default_policy(found))
        settings = yield SQL.queue, (queue,)
        blocking: Rows = []
        if policy.ordered:
            blocking = yield SQL.blocking, (lane, channel, row.id)
        return Facts(
            row=row,
            now=found.now,
            queue=dict(zip(COLUMNS, settings[0], strict=True)),
            policy=policy,
            ahead=ahead,
            leased=leases,
            leased_queue=all_leases,
            next_lease_end=next_lease_end,
            tat=next((tat for (tat,) in gates), 0),
            queue_tat=found.tat,
            blocking_id=next((id for (id,) in blocking), None),
        )

    def failures(self, queue: str, id: int | None, key: str | None, n: int) -> Op[list[FailureRow]]:
        yield BEGIN_READ
        found = yield from find(queue, None)
        if id is not None:
            rows = yield SQL.failures_of_id, (found.id, queue, id, n)
        elif key is not None:
            rows = yield SQL.failures_of_key, (found.id, queue, key, n)
        else:
            rows = yield SQL.failures, (found.id, queue, n)
        return [FailureRow._make(row) for row in rows]

    def trace(self, key: str) -> Op[list[StepRow]]:
        yield BEGIN_READ
        messages: Rows = yield SQL.trace_messages, (key,)
        failures: Rows = yield SQL.trace_failures, (key,)
        steps = [StepRow._make(row) for row in messages + failures]
        # The sort is stable: a message comes before its failures, and those stay in their order.
        return sorted(steps, key=lambda step: (step.at, step.message_id))

    def outcomes(
        self, queue: str, ids: Sequence[int], keys: Sequence[str], now: int | None
    ) -> Op[list[OutcomeRow]]:
        yield BEGIN_READ
        found = yield from find(queue, now)
        asked = (ids_of(ids), json_of(list(keys)))
        rows = yield SQL.outcomes, (*asked, found.id, found.lane, found.now)
        return [OutcomeRow._make(row) for row in rows]


def _message(queue: Queue, id: int | None, key: str | None) -> Op[PeekRow | None]:
    if id is not None:
        rows = yield SQL.get_by_id, (id, queue.lane, queue.now)
    else:
        rows = yield SQL.get_by_key, (key, queue.lane, queue.now)
    return next(map(PeekRow._make, rows), None)


def _stats(queue: Queue, name: str) -> Op[StatsRow]:
    """Counts from the indexes, corrected by the few rows that are due, lapsed or expired."""
    lane, now = queue.lane, queue.now
    states: Counter[str] = Counter()
    versions: Counter[int] = Counter()
    dues: list[int | None] = []
    ready = yield SQL.stats_ready, (lane,)
    for version, number, earliest in ready:
        states["r"] += number
        versions[version] += number
        dues.append(earliest)
    busy = yield SQL.stats_busy, (lane,)
    finished = yield SQL.stats_finished, (lane,)
    for state, version, number in (*busy, *finished):
        states[state] += number
        versions[version] += number
    for state, counted in (("s", SQL.stats_due), ("l", SQL.stats_lapsed)):
        [(number, earliest)] = yield counted, (lane, now)
        states[state] -= number
        states["r"] += number
        dues.append(earliest)
    oldest = min((due for due in dues if due is not None), default=None)
    expired = yield SQL.stats_expired, (lane, now)
    for state, version, number in expired:
        states[state] -= number
        versions[version] -= number
    if expired:
        [(oldest,)] = yield SQL.stats_oldest, (lane, now)
    [totals] = yield SQL.totals, (queue.id,)
    counts = {str(version): number for version, number in sorted(versions.items()) if number}
    gauges = (states[state] for state in "rslhdx")
    return StatsRow._make((name, *gauges, *totals, oldest, json.dumps(counts)))
