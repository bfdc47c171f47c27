"""Messages nobody leases: cancel and reschedule (§7), redrive and discard (§8)."""

from __future__ import annotations

from fairlead.backends.base import BEGIN, Op, Row
from fairlead.backends.sqlite.common import (
    CANCELLED,
    SENT,
    SQL,
    Queue,
    count,
    find,
    ids_of,
    state_at,
    tally,
)


class Messages:
    def cancel(
        self, queue: str, id: int | None, key: str | None, force: bool, now: int | None
    ) -> Op[str]:
        yield BEGIN
        found = yield from find(queue, now)
        row = yield from _state(found, id, key)
        if row is None:
            return "n"
        if not force and row[1] not in "hsr":
            return "l" if row[1] == "l" else "n"
        yield SQL.delete, (ids_of([row[0]]),)
        yield from _count_cancelled(found, 1)
        return "c"

    def reschedule(
        self,
        queue: str,
        id: int | None,
        key: str | None,
        due_us: int | None,
        delay_us: int | None,
        rank: int | None,
        now: int | None,
    ) -> Op[str]:
        yield BEGIN
        found = yield from find(queue, now)
        row = yield from _state(found, id, key)
        if row is None or row[1] not in "sr":
            return "l" if row is not None and row[1] == "l" else "n"
        message, state, due = row
        if due_us is not None or delay_us is not None:
            due = due_us if due_us is not None else found.now + (delay_us or 0)
            state = state_at(due, found.now)
        yield SQL.reschedule, (message, state, due, rank)
        return "c"

    def redrive(
        self, queue: str, to: str | None, limit: int, delay_us: int, now: int | None
    ) -> Op[int]:
        yield BEGIN
        found = yield from find(queue, now)
        target = None
        if to is not None and to != queue:  # to itself is no move: the keys stay
            target = yield from find(to, found.now)
        rows = yield SQL.oldest_dead, (found.lane, limit)
        ids = ids_of(row[0] for row in rows)
        due = found.now + delay_us
        if target is None:
            yield SQL.redrive, (ids, state_at(due, found.now), due)
        else:
            yield SQL.redrive_to, (ids, state_at(due, found.now), due, target.lane)
            counted = tally()
            counted[SENT] = len(rows)
            yield from count(target.id, found.now, counted)
        return len(rows)

    def discard(self, queue: str, state: str, limit: int, now: int | None) -> Op[int]:
        yield BEGIN
        found = yield from find(queue, now)
        oldest = SQL.oldest_dead if state == "x" else SQL.oldest_done
        rows = yield oldest, (found.lane, limit)
        yield SQL.delete, (ids_of(row[0] for row in rows),)
        yield from _count_cancelled(found, len(rows))
        return len(rows)


def _state(queue: Queue, id: int | None, key: str | None) -> Op[Row | None]:
    """(id, state, due_at) of one message of the queue."""
    if id is not None:
        rows = yield SQL.state_by_id, (id, queue.lane)
    else:
        rows = yield SQL.state_by_key, (key, queue.lane)
    return rows[0] if rows else None


def _count_cancelled(queue: Queue, number: int) -> Op[None]:
    counted = tally()
    counted[CANCELLED] = number
    yield from count(queue.id, queue.now, counted)
