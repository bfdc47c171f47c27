"""Sweeping, death and maintenance (§2.2, §2.4, §10)."""

from __future__ import annotations

from collections.abc import Sequence

from fairturn.backends.sqlite.common import (
    ERRORS,
    EXPIRED,
    KILLED,
    MINUTE,
    RECOVERED,
    SENT,
    SQL,
    Queue,
    Tally,
    changed,
    clock,
    count,
    count_one,
    find,
    find_if_any,
    ids_of,
    json_of,
    tally,
)
from fairturn.backends.sqlite.events import tell, tell_due
from fairturn.backends.sqlite.groups.closing import Ended, close_ended
from fairturn.backends.steps import BEGIN, Op, Row
from fairturn.core import limits

LAPSED = "lease expired with no attempts left"


def expire(queue: Queue, limit: int, counted: Tally, ended: Ended) -> Op[int]:
    """Delete messages that are past their expiry; how many."""
    if queue.events:
        doomed = yield SQL.expiring, (queue.lane, queue.now, limit)
        yield from tell(queue, "deleted", (id for (id,) in doomed))
    rows = yield SQL.expire, (queue.lane, queue.now, limit)
    counted[EXPIRED] += sum(never_delivered for never_delivered, _ in rows)
    ended.left(group for _, group in rows)
    return len(rows)


def recover(queue: Queue, limit: int, counted: Tally, ended: Ended) -> Op[tuple[int, int, int]]:
    """Recover messages whose leases have expired: how many were read, recovered and killed."""
    rows: list[Row] = yield SQL.lapsed, (queue.lane, queue.now, queue.max_attempts, limit)
    live: list[int] = []
    ready: list[int] = []
    dying: list[int] = []
    lapsed: set[int] = set()  # permits
    members: list[int | None] = []
    for id, attempts, max_attempts, permit, permit_expires, group in rows:
        if permit_expires is not None and permit_expires > queue.now:
            live.append(id)
            continue
        if permit_expires is not None:
            lapsed.add(permit)
        if max_attempts == 0 or attempts < max_attempts:
            ready.append(id)
        else:
            dying.append(id)
            members.append(group)
    if live:
        yield SQL.live_on, (ids_of(live),)
    if ready:
        yield SQL.recover, (ids_of(ready),)
        counted[RECOVERED] += len(ready)
    if dying:
        failed = json_of([[id, 1] for id in dying])
        yield SQL.log_failures, (failed, queue.id, queue.now, LAPSED, None, None)
        counted[ERRORS] += len(dying)
        yield from die(queue, dying, LAPSED, counted, keep_recovered=True)
        ended.died(members)
    if lapsed:
        yield SQL.end_permits, (ids_of(lapsed), queue.now)
    return len(rows), len(ready), len(dying)


def die(
    queue: Queue,
    ids: Sequence[int],
    error: str,
    counted: Tally,
    keep_recovered: bool = False,
) -> Op[None]:
    """Messages without attempts left are dead here, or ready in the dead-letter queue."""
    counted[KILLED] += len(ids)
    now, kept = queue.now, int(keep_recovered)
    yield from tell(queue, "dead", ids, error)
    if queue.dead_letter is not None and queue.dead_letter != queue.name:
        target = yield from find_if_any(queue.dead_letter, now)
        if target is not None:
            expires_at = None if target.expires_us is None else now + target.expires_us
            there = (queue.id, target.lane, expires_at)
            yield SQL.dead_letter, (ids_of(ids), now, error, kept, *there)
            yield from count_one(target, SENT, len(ids))
            yield from tell_due(target, "created", ids)
            return
    yield SQL.bury, (ids_of(ids), now, error, kept)


class Care:
    def maintain(self, limit: int, now: int | None) -> Op[tuple[int, int, int, int, bool]]:
        yield BEGIN
        now = yield from clock(now)
        ended = Ended()
        activated = recovered = killed = purged = 0
        more = False
        names = yield SQL.queue_names, ()
        for (name,) in names:
            queue = yield from find(name, now)
            counted = tally()
            expired = yield from expire(queue, limit, counted, ended)
            lapsed, ready, dead = yield from recover(queue, limit, counted, ended)
            yield SQL.promote, (queue.lane, queue.now, limit)
            promoted = yield from changed()
            yield from count(queue.id, queue.now, counted)
            deleted, others = yield from _forget(queue, limit)
            activated += promoted
            recovered += ready
            killed += dead
            purged += sum(deleted)
            more = more or max(expired, lapsed, promoted, others, *deleted) >= limit
        swept, unswept = yield from _sweep_lanes(limit, ended)
        yield from close_ended(ended, now)
        rest: list[int] = []
        for statement, before in (
            (SQL.idle_permits, now),
            (SQL.forget_groups, now - limits.GROUP_RETENTION),
            (SQL.forget_events, now - limits.EVENT_RETENTION),
        ):
            yield statement, (before, limit)
            rest.append((yield from changed()))
        more = more or unswept or max(rest) >= limit
        return activated, recovered, killed, purged + swept, more

    def clock(self) -> Op[int]:
        return (yield from clock(None))


def _forget(queue: Queue, limit: int) -> Op[tuple[list[int], int]]:
    """Delete what a queue has kept for long enough. How many messages and failures, by kind; and
    the larger number of gates or names."""
    done = queue.retention_us or queue.result_retention_us
    yield SQL.forget_done, (queue.lane, queue.now - done, limit)
    deleted = [(yield from changed())]
    if queue.dead_retention_us is not None:
        yield SQL.forget_dead, (queue.lane, queue.now - queue.dead_retention_us, limit)
        deleted.append((yield from changed()))
    if queue.failure_retention_us is not None:
        yield SQL.forget_failures, (queue.id, queue.now - queue.failure_retention_us, limit)
        deleted.append((yield from changed()))
    yield SQL.idle_gates, (queue.id, queue.now, limit)
    gates = yield from changed()
    yield SQL.forget, (queue.lane, queue.now, limit)
    names = yield from changed()
    cutoff = queue.now - limits.HISTORY_RETENTION
    yield SQL.fold_history, (queue.id, cutoff - cutoff % MINUTE)
    yield SQL.drop_folded, (queue.id, cutoff - cutoff % MINUTE)
    return deleted, max(gates, names)


def _sweep_lanes(limit: int, ended: Ended) -> Op[tuple[int, bool]]:
    """Delete messages of purged and dropped queues: how many, and whether more may be left.

    There is one writer: no late send can arrive in a retired lane, so an empty lane is deleted.
    """
    swept = 0
    more = False
    lanes = yield SQL.retired_lanes, ()
    for (lane,) in lanes:
        rows = yield SQL.sweep_lane, (lane, limit)
        ended.left(group for (group,) in rows)
        swept += len(rows)
        yield SQL.forget_lane, (lane, limit)
        if max(len(rows), (yield from changed())) >= limit:
            more = True
        else:
            yield SQL.drop_lane, (lane,)
    return swept, more
