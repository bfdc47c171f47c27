"""Groups and events on MySQL (docs/semantics.md, 12 and 15)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fairlead.backends.base import Op, Row, Rows, SendRow, Value
from fairlead.backends.mysql.calling import Caller, given, in_bytes, in_hex, text
from fairlead.errors import DuplicateKey, InvalidArgument


def _work(item: SendRow | None) -> tuple[bytes | None, str | None]:
    """The body and the options of a work as fairlead_work_ takes them."""
    if item is None:
        return None, None
    (channel, body, is_json, rank, due, delay, key, _, version, type_, headers, lease) = item[:12]
    options = given(
        channel=in_hex(channel),
        json=int(is_json),
        rank=rank,
        due=due,
        delay=delay,
        key=in_hex(key),
        version=version,
        type=in_hex(type_),
        headers=None if headers is None else headers.hex(),
        lease=lease,
        max_attempts=item[12],
    )
    return body, options


def _status(row: Row) -> Row:
    name, queue, state, *rest = row
    return (text(name), text(queue), text(state), *rest)


class Groups(Caller):
    def group_open(
        self,
        name: str,
        queue: str,
        on_dead: str,
        end: SendRow | None,
        abort: SendRow | None,
        now: int | None,
    ) -> Op[bool]:
        arguments: tuple[Value, ...] = (name.encode(), queue.encode(), on_dead)
        works = (*_work(end), *_work(abort))
        rows = yield self.call("group_create", 8), (*arguments, *works, now)
        created, key = rows[0]
        if created < 0:
            raise DuplicateKey(queue, [text(key)])
        return bool(created)

    def group_start(self, name: str, now: int | None) -> Op[bool]:
        rows = yield self.call("group_start", 2), (name.encode(), given(now=now))
        return bool(rows[0][0])

    def group_cancel(self, name: str, now: int | None) -> Op[bool]:
        rows = yield self.call("group_cancel", 2), (name.encode(), given(now=now))
        return bool(rows[0][0])

    def group_status(self, name: str, now: int | None) -> Op[Row | None]:
        rows = yield self.call("group_status", 2), (name.encode(), "{}")
        return _status(rows[0]) if rows else None

    def groups(self, limit: int, now: int | None) -> Op[Rows]:
        rows = yield self.call("group_status", 2), (None, given(limit=limit))
        return [_status(row) for row in rows]

    def settle(self, limit: int, now: int | None) -> Op[int]:
        rows = yield self.call("settle", 2), (limit, given(now=now))
        return rows[0][0]

    def events(
        self, after: str | None, queue: str | None, kinds: Sequence[str] | None, limit: int
    ) -> Op[tuple[Rows, str]]:
        if after and not (after.isascii() and after.isdecimal() and len(after) <= 18):
            raise InvalidArgument(
                f"{after!r} is no cursor of this database's events: pass event.cursor, or "
                '"" for the beginning'
            )
        wanted = None if kinds is None else json.dumps(list(kinds))
        arguments = (after, in_bytes(queue), wanted, limit)
        rows = yield self.call("events_after", 4), arguments
        cursor = str(rows.pop()[0])
        events: Rows = [
            (str(row[0]), row[1], *map(text, row[2:4]), row[4], *map(text, row[5:7]), *row[7:])
            for row in rows
        ]
        return events, cursor
