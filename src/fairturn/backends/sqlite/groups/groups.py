"""Groups (§12): open, start, cancel and read them. closing.py closes them."""

from __future__ import annotations

from fairturn.backends.base import CANCELLED, SENT, Opening
from fairturn.backends.keys import KEY_OUTCOMES
from fairturn.backends.sqlite.common import SQL, Queue, clock, find, ids_of, json_of
from fairturn.backends.sqlite.groups.closing import Ended, Group, close, close_ended
from fairturn.backends.sqlite.sends import INSERT_ONE, columns
from fairturn.backends.steps import BEGIN, BEGIN_READ, Op, Rows
from fairturn.core.errors import BodyTooLarge, DuplicateKey
from fairturn.core.rows import GroupRow, SendRow


class Groups:
    def group_open(self, opening: Opening, now: int | None) -> Op[bool]:
        yield BEGIN
        if (yield SQL.open_group, (opening.name,)):
            return False
        found = yield from find(opening.queue, now)
        yield from _free_keys(found, opening.works)
        end = yield from _hold(found, opening.end)
        abort = yield from _hold(found, opening.abort)
        group = (opening.name, opening.queue, opening.on_dead, found.now)
        yield SQL.new_group, (*group, *end, *abort)
        return True

    def group_start(self, name: str, now: int | None) -> Op[bool]:
        yield BEGIN
        at = yield from clock(now)
        rows = yield SQL.start_group, (name, at)
        if not rows:
            return False
        [(id,)] = rows
        yield SQL.start_members, (id, at)
        empty = Ended()
        empty.left([id])
        yield from close_ended(empty, at)
        return True

    def group_cancel(self, name: str, now: int | None) -> Op[bool]:
        yield BEGIN
        at = yield from clock(now)
        rows = yield SQL.open_group, (name,)
        if not rows:
            return False
        [row] = rows
        yield from close(Group._make(row), CANCELLED, at)
        return True

    def group_status(self, name: str, now: int | None) -> Op[GroupRow | None]:
        yield BEGIN_READ
        rows = yield SQL.group_status, (name,)
        if not rows:
            rows = yield SQL.closed_status, (name,)
        return next(map(GroupRow._make, rows), None)

    def groups(self, limit: int, now: int | None) -> Op[list[GroupRow]]:
        rows = yield SQL.groups, (limit,)
        return [GroupRow._make(row) for row in rows]

    def settle(self, limit: int, now: int | None) -> Op[int]:
        yield from ()  # each group was closed by the call that completed it
        return 0


def _free_keys(queue: Queue, works: list[SendRow]) -> Op[None]:
    """Check the end and abort message. Their keys must be free: a dead message loses its (§3.2)."""
    for work in works:
        if len(work.body) > queue.max_body:
            raise BodyTooLarge(len(work.body), queue.max_body)
    keys = [work.key for work in works if work.key is not None]
    if not keys:
        return
    holders: Rows = yield SQL.holders, (queue.lane, json_of(keys))
    held = {key for key, _, state, _, _ in holders if KEY_OUTCOMES[state]["e"] != SENT}
    taken = [key for key in dict.fromkeys(keys) if key in held or keys.count(key) > 1]
    if taken:
        raise DuplicateKey(queue.name, taken)
    if holders:
        yield SQL.free_keys, (ids_of(id for _, id, _, _, _ in holders),)


def _hold(queue: Queue, work: SendRow | None) -> Op[tuple[int | None, int | None]]:
    """Store an end or abort message: its id, and its delay if that counts from the closing."""
    if work is None:
        return None, None
    _, *others, _, type, headers, body, key = columns(queue, work, queue.now)
    held = ("h", *others, None, type, headers, body, key)  # it does not expire
    [(id,)] = yield INSERT_ONE, (queue.lane, queue.now, *held)
    return id, work.delay_us if work.due_us is None else None
