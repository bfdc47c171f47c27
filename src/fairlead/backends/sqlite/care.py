"""Sweeping, death and maintenance (§2.2, §2.4, §10)."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead import limits
from fairlead.backends.base import BEGIN, Op, Row
from fairlead.backends.sqlite.common import (
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
    count,
    find,
    ids_of,
    json_of,
    tally,
)

LAPSED = "lease expired with no attempts left"


def expire(queue: Queue, limit: int, counted: Tally) -> Op[int]:
    """Delete what is past its expiry; how many."""
    rows = yield SQL.expire, (queue.lane, queue.now, limit)
    counted[EXPIRED] += sum(row[0] for row in rows)
    return len(rows)


def recover(queue: Queue, name: str, limit: int, counted: Tally) -> Op[tuple[int, int, int]]:
    """Take back lapsed leases: how many were looked at, recovered and killed."""
    rows: list[Row] = yield SQL.lapsed, (queue.lane, queue.now, queue.max_attempts, limit)
    live: list[int] = []
    ready: list[int] = []
    dying: list[int] = []
    ended: set[int] = set()
    for id, attempts, max_attempts, permit, permit_expires in rows:
        if permit_expires is not None and permit_expires > queue.now:
            live.append(id)
            continue
        if permit_expires is not None:
            ended.add(permit)
        if max_attempts == 0 or attempts < max_attempts:
            ready.append(id)
        else:
            dying.append(id)
    if live:
        yield SQL.live_on, (ids_of(live),)
    if ready:
        yield SQL.recover, (ids_of(ready),)
        counted[RECOVERED] += len(ready)
    if dying:
        failed = json_of([[id, 1] for id in dying])
        yield SQL.log_failures, (failed, queue.id, queue.now, LAPSED, None, None)
        counted[ERRORS] += len(dying)
        yield from die(queue, name, dying, LAPSED, counted, keep_recovered=True)
    if ended:
        yield SQL.end_permits, (ids_of(ended), queue.now)
    return len(rows), len(ready), len(dying)


def die(
    queue: Queue,
    name: str,
    ids: Sequence[int],
    error: str,
    counted: Tally,
    keep_recovered: bool = False,
) -> Op[None]:
    """Messages without attempts left are dead here, or ready in the dead-letter queue."""
    counted[KILLED] += len(ids)
    now, kept = queue.now, int(keep_recovered)
    if queue.dead_letter is not None and queue.dead_letter != name:
        rows = yield SQL.find_queue, (queue.dead_letter, now)
        if rows:
            target = Queue._make(rows[0][: len(Queue._fields)])
            expires_at = None if target.expires_us is None else now + target.expires_us
            there = (queue.id, target.lane, expires_at)
            yield SQL.dead_letter, (ids_of(ids), now, error, kept, *there)
            sent = tally()
            sent[SENT] = len(ids)
            yield from count(target.id, now, sent)
            return
    yield SQL.bury, (ids_of(ids), now, error, kept)


class Care:
    def maintain(self, limit: int, now: int | None) -> Op[tuple[int, int, int, int, bool]]:
        yield BEGIN
        if now is None:
            rows = yield SQL.clock, ()
            now = rows[0][0]
        activated = recovered = killed = purged = 0
        more = False
        names = yield SQL.queue_names, ()
        for (name,) in names:
            queue = yield from find(name, now)
            counted = tally()
            expired = yield from expire(queue, limit, counted)
            lapsed, ready, dead = yield from recover(queue, name, limit, counted)
            yield SQL.promote, (queue.lane, queue.now, limit)
            promoted = yield from changed()
            yield from count(queue.id, queue.now, counted)
            deleted, gates = yield from _forget(queue, limit)
            activated += promoted
            recovered += ready
            killed += dead
            purged += sum(deleted)
            more = more or max(expired, lapsed, promoted, gates, *deleted) >= limit
        swept, unswept = yield from _sweep_lanes(limit)
        yield SQL.idle_permits, (now, limit)
        permits = yield from changed()
        return activated, recovered, killed, purged + swept, more or unswept or permits >= limit

    def clock(self) -> Op[int]:
        rows = yield SQL.clock, ()
        return rows[0][0]


def _forget(queue: Queue, limit: int) -> Op[tuple[list[int], int]]:
    """Delete what a queue has kept for long enough: rows by kind, and gates."""
    done = queue.retention_us or limits.RESULT_RETENTION
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
    cutoff = queue.now - limits.HISTORY_RETENTION
    yield SQL.fold_history, (queue.id, cutoff - cutoff % MINUTE)
    yield SQL.drop_folded, (queue.id, cutoff - cutoff % MINUTE)
    return deleted, gates


def _sweep_lanes(limit: int) -> Op[tuple[int, bool]]:
    """Delete messages of purged and dropped queues; how many, and whether any may be left.

    With one writer no late send can still arrive in a retired lane, so an empty one is forgotten.
    """
    swept = 0
    more = False
    lanes = yield SQL.retired_lanes, ()
    for (lane,) in lanes:
        yield SQL.sweep_lane, (lane, limit)
        deleted = yield from changed()
        swept += deleted
        if deleted >= limit:
            more = True
        else:
            yield SQL.drop_lane, (lane,)
    return swept, more
