"""Messages without a lease: cancel, reschedule and promote (§7); redrive, discard and move (§8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairturn.backends.base import Reschedule
from fairturn.backends.sqlite.common import (
    CANCELLED,
    SENT,
    SQL,
    Queue,
    changed,
    count,
    count_one,
    find,
    ids_of,
    state_at,
    tally,
)
from fairturn.backends.sqlite.events import tell, tell_due
from fairturn.backends.sqlite.groups.closing import Ended, close_ended
from fairturn.backends.sqlite.maintenance import expire, recover
from fairturn.backends.steps import BEGIN, Op
from fairturn.core import limits


class Messages:
    def cancel(
        self, queue: str, id: int | None, key: str | None, force: bool, now: int | None
    ) -> Op[str]:
        yield BEGIN
        found = yield from find(queue, now)
        message = yield from _message(found, id, key)
        if message is None:
            return "n"
        if not force and message.state not in "hsr":
            return "l" if message.state == "l" else "n"
        yield from tell(found, "deleted", [message.id])
        yield SQL.delete, (ids_of([message.id]),)
        yield from count_one(found, CANCELLED, 1)
        if message.state not in "dx":
            ended = Ended()
            ended.left([message.group_id])
            yield from close_ended(ended, found.now)
        return "c"

    def reschedule(
        self, queue: str, id: int | None, key: str | None, change: Reschedule, now: int | None
    ) -> Op[str]:
        yield BEGIN
        found = yield from find(queue, now)
        message = yield from _message(found, id, key)
        if message is None or message.state not in "sr":
            return "l" if message is not None and message.state == "l" else "n"
        state, due = message.state, message.due_at
        if change.due_us is not None or change.delay_us is not None:
            due = found.now + (change.delay_us or 0) if change.due_us is None else change.due_us
            state = state_at(due, found.now)
        yield SQL.reschedule, (message.id, state, due, change.rank)
        yield from tell_due(found, "deferred", [message.id])
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
        if to is not None and to != queue:  # within its own queue it keeps its keys
            target = yield from find(to, found.now)
        rows = yield SQL.oldest_dead, (found.lane, limit)
        ids = [id for (id,) in rows]
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
        ids = [id for (id,) in rows]
        yield from tell(found, "deleted", ids)
        yield SQL.delete, (ids_of(ids),)
        yield from count_one(found, CANCELLED, len(ids))
        return len(ids)

    def move(self, queue: str, to: str | None, limit: int, now: int | None) -> Op[int]:
        yield BEGIN
        found = yield from find(queue, now)
        target = None if to is None else (yield from find(to, found.now))
        counted, ended = tally(), Ended()
        yield from expire(found, limits.SWEEP, counted, ended)
        yield from recover(found, limits.SWEEP, counted, ended)
        yield SQL.promote, (found.lane, found.now, limits.SWEEP)
        yield from count(found.id, found.now, counted)
        going: dict[Queue, list[int]] = {}
        if target is not None:
            moved = yield SQL.movable, (found.lane, found.now, limit)
            if moved:
                going[target] = [id for id, _ in moved]
        else:
            rows = yield SQL.movable_home, (found.lane, found.now, limit, found.id)
            by_home: dict[str, list[int]] = {}
            for id, _, home in rows:
                by_home.setdefault(home, []).append(id)
            for home, ids in by_home.items():
                into = yield from find(home, found.now)
                going[into] = ids
            moved = [(id, group) for id, group, _ in rows]
        for into, ids in going.items():
            yield from _renew(into, ids)
        ids = [id for id, _ in moved]
        yield from tell(found, "deleted", ids)
        yield SQL.delete, (ids_of(ids),)
        ended.left(group for _, group in moved)
        yield from close_ended(ended, found.now)
        return len(ids)


class Standing(NamedTuple):
    """What is read of a message before it is changed without a lease."""

    id: int
    state: str
    due_at: int
    group_id: int | None


def _message(queue: Queue, id: int | None, key: str | None) -> Op[Standing | None]:
    if id is not None:
        rows = yield SQL.state_by_id, (id, queue.lane)
    else:
        rows = yield SQL.state_by_key, (key, queue.lane)
    return next(map(Standing._make, rows), None)


def _renew(target: Queue, ids: Sequence[int]) -> Op[None]:
    """Send the messages to the target as new ones."""
    expires_at = None if target.expires_us is None else target.now + target.expires_us
    rows = yield SQL.move, (ids_of(ids), target.now, target.lane, expires_at)
    yield from tell_due(target, "created", sorted(id for (id,) in rows))
    yield from count_one(target, SENT, len(rows))
