"""Looking, without touching (§9)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from fairlead.backends.base import BEGIN_READ, Facts, Op, Row, Rows
from fairlead.backends.sqlite.common import SETTINGS, SQL, Queue, find, ids_of, json_of

# Positions in PEEK_ROW.
ID, CHANNEL, PRIORITY, DUE_AT = 0, 1, 7, 8


class Insight:
    def get(self, queue: str, id: int | None, key: str | None, now: int | None) -> Op[Row | None]:
        yield BEGIN_READ
        found = yield from find(queue, now)
        return (yield from _message(found, id, key))

    def peek(
        self,
        queue: str,
        n: int,
        state: str | None,
        channel: str | None,
        after: int,
        now: int | None,
    ) -> Op[Rows]:
        yield BEGIN_READ
        found = yield from find(queue, now)
        if state is None or state == "r":
            statement = SQL.peek
        else:
            statement = SQL.peek_finished if state in "dx" else SQL.peek_busy
        return (yield statement, (found.lane, after, state, channel, found.now, n))

    def stats(self, queue: str | None, now: int | None) -> Op[Rows]:
        yield BEGIN_READ
        if queue is not None:
            names = [queue]
        else:
            rows = yield SQL.queue_names, ()
            names = [row[0] for row in rows]
        stats: Rows = []
        for name in names:
            found = yield from find(name, now)
            now = found.now  # one instant for all queues
            stats.append((yield from _stats(found, name)))
        return stats

    def history(self, queue: str, since: int, now: int | None) -> Op[Rows]:
        yield BEGIN_READ
        found = yield from find(queue, now)
        return (yield SQL.history, (found.id, since))

    def facts(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> Op[Facts | None]:
        yield BEGIN_READ
        found = yield from find(queue, now)
        row = yield from _message(found, id, key)
        if row is None:
            return None
        lane, channel = found.lane, row[CHANNEL]
        policies = yield SQL.get_policy, (found.id, channel)
        before = (lane, channel, -row[PRIORITY], row[DUE_AT], row[ID])
        ahead = yield SQL.ahead, before
        leases = yield SQL.channel_leases, (lane, channel)
        all_leases = yield SQL.queue_leases, (lane,)
        gates = yield SQL.gate, (found.id, channel)
        policy = policies[0] if policies else _default_policy(found)
        blocking: Rows = []
        if policy[6]:
            blocking = yield SQL.blocking, (lane, channel, row[ID])
        return Facts(
            row=row,
            now=found.now,
            queue={name: getattr(found, name) for name in SETTINGS},
            policy=policy,
            ahead=ahead[0][0],
            leased=leases[0][0],
            leased_queue=all_leases[0][0],
            next_lease_end=leases[0][1],
            tat=gates[0][0] if gates else 0,
            queue_tat=found.tat,
            blocking_id=blocking[0][0] if blocking else None,
        )

    def failures(self, queue: str, id: int | None, key: str | None, n: int) -> Op[Rows]:
        yield BEGIN_READ
        found = yield from find(queue, None)
        if id is not None:
            return (yield SQL.failures_of_id, (found.id, queue, id, n))
        if key is not None:
            return (yield SQL.failures_of_key, (found.id, queue, key, n))
        return (yield SQL.failures, (found.id, queue, n))

    def trace(self, key: str) -> Op[Rows]:
        yield BEGIN_READ
        messages: Rows = yield SQL.trace_messages, (key,)
        failures: Rows = yield SQL.trace_failures, (key,)
        # A stable sort: a message stands before its failures, those in the order they happened.
        return sorted(messages + failures, key=lambda row: (row[0], row[3]))

    def outcomes(
        self, queue: str, ids: Sequence[int], keys: Sequence[str], now: int | None
    ) -> Op[Rows]:
        yield BEGIN_READ
        found = yield from find(queue, now)
        asked = (ids_of(ids), json_of(list(keys)))
        return (yield SQL.outcomes, (*asked, found.id, found.lane, found.now))


def _message(queue: Queue, id: int | None, key: str | None) -> Op[Row | None]:
    if id is not None:
        rows = yield SQL.get_by_id, (id, queue.lane, queue.now)
    else:
        rows = yield SQL.get_by_key, (key, queue.lane, queue.now)
    return rows[0] if rows else None


def _default_policy(queue: Queue) -> Row:
    return (
        queue.max_concurrency,
        queue.rate_count,
        queue.rate_period_us,
        queue.burst,
        queue.weight,
        queue.channel_paused,
        queue.ordered,
        queue.max_size,
    )


def _stats(queue: Queue, name: str) -> Op[Row]:
    """Counts from the indexes alone, then corrected by the few rows that are not what they seem."""
    lane, now = queue.lane, queue.now
    states: Counter[str] = Counter()
    versions: Counter[int] = Counter()
    ready = yield SQL.stats_ready, (lane,)
    for version, number, _ in ready:
        states["r"] += number
        versions[version] += number
    busy = yield SQL.stats_busy, (lane,)
    finished = yield SQL.stats_finished, (lane,)
    for state, version, number in (*busy, *finished):
        states[state] += number
        versions[version] += number
    due = yield SQL.stats_due, (lane, now)
    lapsed = yield SQL.stats_lapsed, (lane, now)
    for state, number in (("s", due[0][0]), ("l", lapsed[0][0])):
        states[state] -= number
        states["r"] += number
    dues = [row[-1] for row in (*ready, *due, *lapsed) if row[-1] is not None]
    oldest = min(dues, default=None)
    expired = yield SQL.stats_expired, (lane, now)
    for state, version, number in expired:
        states[state] -= number
        versions[version] -= number
    if expired:
        rows = yield SQL.stats_oldest, (lane, now)
        oldest = rows[0][0]
    totals = yield SQL.totals, (queue.id,)
    counts = {str(version): number for version, number in sorted(versions.items()) if number}
    gauges = (states[state] for state in "rslhdx")
    return (name, *gauges, *totals[0], oldest, json.dumps(counts))
