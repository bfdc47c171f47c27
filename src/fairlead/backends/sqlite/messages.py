"""Messages nobody leases: cancel, reschedule and promote (§7), redrive and discard (§8)."""

from __future__ import annotations

from fairlead.backends.base import BEGIN, Op, Row
from fairlead.backends.sqlite.closing import Ended, close_ended
from fairlead.backends.sqlite.common import (
    CANCELLED,
    SENT,
    SQL,
    Queue,
    changed,
    count_one,
    find,
    ids_of,
    state_at,
)
from fairlead.backends.sqlite.events import tell, tell_due


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
        message, state, _, group = row
        yield from tell(found, "deleted", [message])
        yield SQL.delete, (ids_of([message]),)
        yield from count_one(found, CANCELLED, 1)
        if state not in "dx":
            ended = Ended()
            ended.left([group])
            yield from close_ended(ended, found.now)
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
        message, state, due, _ = row
        if due_us is not None or delay_us is not None:
            due = due_us if due_us is not None else found.now + (delay_us or 0)
            state = state_at(due, found.now)
        yield SQL.reschedule, (message, state, due, rank)
        yield from tell_due(found, "deferred", [message])
        return "c"

    def promote(self, queue: str, within_us: int, limit: int, now: int | None) -> Op[int]:
        yield BEGIN
        found = yield from find(queue, now)
        yield SQL.promote_early, (found.lane, found.now + within_us, found.now, limit)
        return (yield from changed())

    def redrive(
        self, queue: str, to: str | None, limit: int, delay_us: int, now: int | None
    ) -> Op[int]:
        yield BEGIN
        found = yield from find(queue, now)
        target = None
        if to is not None and to != queue:  # to itself is no move: the keys stay
            target = yield from find(to, found.now)
        rows = yield SQL.oldest_dead, (found.lane, limit)
        ids = [row[0] for row in rows]
        due = found.now + delay_us
        again = (ids_of(ids), state_at(due, found.now), due)
        if target is None:
            yield SQL.redrive, again
            yield from tell_due(found, "deferred", ids)
        else:
            yield SQL.redrive_to, (*again, target.lane)
            yield from tell_due(target, "created", ids)
            yield from count_one(target, SENT, len(ids))
        return len(ids)

    def discard(self, queue: str, state: str, limit: int, now: int | None) -> Op[int]:
        yield BEGIN
        found = yield from find(queue, now)
        oldest = SQL.oldest_dead if state == "x" else SQL.oldest_done
        rows = yield oldest, (found.lane, limit)
        ids = [row[0] for row in rows]
        yield from tell(found, "deleted", ids)
        yield SQL.delete, (ids_of(ids),)
        yield from count_one(found, CANCELLED, len(ids))
        return len(ids)


def _state(queue: Queue, id: int | None, key: str | None) -> Op[Row | None]:
    """(id, state, due_at, group_id) of one message of the queue."""
    if id is not None:
        rows = yield SQL.state_by_id, (id, queue.lane)
    else:
        rows = yield SQL.state_by_key, (key, queue.lane)
    return rows[0] if rows else None
