"""Groups (§12): opening, starting, cancelling and looking at them. closing.py closes them."""

from __future__ import annotations

from fairlead.backends.base import BEGIN, BEGIN_READ, CANCELLED, Op, Row, Rows, SendRow
from fairlead.backends.sqlite.closing import Ended, Group, close, close_ended
from fairlead.backends.sqlite.common import SQL, Queue, clock, find, ids_of, json_of
from fairlead.backends.sqlite.sending import (
    BODY,
    DELAY,
    DUE,
    INSERTS,
    KEY,
    columns,
)
from fairlead.errors import BodyTooLarge, DuplicateKey

STATE, EXPIRES_AT = 0, 8  # among the columns of an insert


class Groups:
    def group_open(
        self,
        name: str,
        queue: str,
        on_dead: str,
        end: SendRow | None,
        abort: SendRow | None,
        now: int | None,
    ) -> Op[bool]:
        yield BEGIN
        if (yield SQL.open_group, (name,)):
            return False
        found = yield from find(queue, now)
        yield from _free_keys(found, [work for work in (end, abort) if work is not None])
        works: list[int | None] = []
        for work in (end, abort):
            works += yield from _hold(found, work)
        yield SQL.new_group, (name, queue, on_dead, found.now, *works)
        return True

    def group_start(self, name: str, now: int | None) -> Op[bool]:
        yield BEGIN
        at = yield from clock(now)
        rows = yield SQL.start_group, (name, at)
        if not rows:
            return False
        id = rows[0][0]
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
        yield from close(Group._make(rows[0]), CANCELLED, at)
        return True

    def group_status(self, name: str, now: int | None) -> Op[Row | None]:
        yield BEGIN_READ
        rows = yield SQL.group_status, (name,)
        if not rows:
            rows = yield SQL.closed_status, (name,)
        return rows[0] if rows else None

    def groups(self, limit: int, now: int | None) -> Op[Rows]:
        return (yield SQL.groups, (limit,))

    def settle(self, limit: int, now: int | None) -> Op[int]:
        yield from ()  # every group is closed by the call that completes it
        return 0


def _free_keys(queue: Queue, works: list[SendRow]) -> Op[None]:
    """Refuse works that cannot be held; their keys are free or taken from the dead (§3.2)."""
    for work in works:
        if len(work[BODY]) > queue.max_body:
            raise BodyTooLarge(len(work[BODY]), queue.max_body)
    keys = [work[KEY] for work in works if work[KEY] is not None]
    if not keys:
        return
    holders: Rows = yield SQL.holders, (queue.lane, json_of(keys))
    held = {row[0] for row in holders if row[2] != "x"}
    taken = [key for key in dict.fromkeys(keys) if key in held or keys.count(key) > 1]
    if taken:
        raise DuplicateKey(queue.name, taken)
    if holders:
        yield SQL.free_keys, (ids_of(row[1] for row in holders),)


def _hold(queue: Queue, work: SendRow | None) -> Op[tuple[int | None, int | None]]:
    """Store a work: its id, and its delay where that counts from the closing."""
    if work is None:
        return None, None
    row = list(columns(queue, work, queue.now))
    row[STATE], row[EXPIRES_AT] = "h", None
    rows = yield INSERTS[1], (queue.lane, queue.now, *row)
    return rows[0][0], work[DELAY] if work[DUE] is None else None
