"""Groups and events on MySQL (docs/semantics.md, 12 and 15)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from fairturn.backends.base import Opening
from fairturn.backends.mysql.procedures import Caller, given, in_bytes, in_hex, text
from fairturn.backends.steps import Op, Row
from fairturn.core.errors import DuplicateKey, InvalidArgument
from fairturn.core.rows import EventRow, GroupRow, SendRow

_CURSOR = re.compile(r"\d{1,18}(-\d{1,18})?", re.ASCII)  # the id and the time of an event


def _work(item: SendRow | None) -> tuple[bytes | None, str | None]:
    """An end or abort message for fairturn_work_: its body and its options."""
    if item is None:
        return None, None
    options = given(
        channel=in_hex(item.channel),
        json=int(item.json),
        rank=item.rank,
        due=item.due_us,
        delay=item.delay_us,
        key=in_hex(item.key),
        version=item.version,
        type=in_hex(item.type),
        headers=None if item.headers is None else item.headers.hex(),
        lease=item.lease_us,
        max_attempts=item.max_attempts,
    )
    return item.body, options


def _status(row: Row) -> GroupRow:
    return GroupRow._make(map(text, row))


class Groups(Caller):
    def group_open(self, opening: Opening, now: int | None) -> Op[bool]:
        group = (opening.name.encode(), opening.queue.encode(), opening.on_dead)
        params = (*group, *_work(opening.end), *_work(opening.abort), now)
        [(created, key)] = yield self.call("group_create", 8), params
        if created < 0:
            raise DuplicateKey(opening.queue, [text(key)])
        return bool(created)

    def group_start(self, name: str, now: int | None) -> Op[bool]:
        [(started,)] = yield self.call("group_start", 2), (name.encode(), given(now=now))
        return bool(started)

    def group_cancel(self, name: str, now: int | None) -> Op[bool]:
        [(cancelled,)] = yield self.call("group_cancel", 2), (name.encode(), given(now=now))
        return bool(cancelled)

    def group_status(self, name: str, now: int | None) -> Op[GroupRow | None]:
        rows = yield self.call("group_status", 2), (name.encode(), "{}")
        return next(map(_status, rows), None)

    def groups(self, limit: int, now: int | None) -> Op[list[GroupRow]]:
        rows = yield self.call("group_status", 2), (None, given(limit=limit))
        return [_status(row) for row in rows]

    def settle(self, limit: int, now: int | None) -> Op[int]:
        [(closed,)] = yield self.call("settle", 2), (limit, given(now=now))
        return closed

    def events(
        self, after: str | None, queue: str | None, kinds: Sequence[str] | None, limit: int
    ) -> Op[tuple[list[EventRow], str]]:
        if after and not _CURSOR.fullmatch(after):
            raise InvalidArgument(
                f"{after!r} is no cursor of this database's events: pass event.cursor, or "
                '"" for the beginning'
            )
        wanted = None if kinds is None else json.dumps(list(kinds))
        arguments = (after, in_bytes(queue), wanted, limit)
        rows = yield self.call("events_after", 4), arguments
        cursor, *_ = rows.pop()
        events = [
            EventRow._make((text(position), *map(text, rest), data))
            for position, *rest, data in rows
        ]
        return events, text(cursor)
