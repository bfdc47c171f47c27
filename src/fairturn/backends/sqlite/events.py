"""Events (§15): one statement writes those of many messages, in the transaction of their cause.

Every function here does nothing where the queue's `events` setting is off.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from fairturn.backends.sqlite.common import SQL, Queue, find, ids_of, json_of
from fairturn.backends.steps import BEGIN_READ, Op
from fairturn.core.errors import CursorLost, InvalidArgument
from fairturn.core.rows import EventRow


def tell(queue: Queue, kind: str, ids: Iterable[int], error: str | None = None) -> Op[None]:
    """`done`, `dead` (with its error) or `deleted`. The last two are written before the rows
    change."""
    if queue.events:
        data = None if error is None else json.dumps({"error": error}).encode()
        yield SQL.tell, (ids_of(ids), queue.now, kind, queue.name, data)


def tell_due(queue: Queue, kind: str, ids: Iterable[int]) -> Op[None]:
    """`created` or `deferred`, written when the rows have their new due time."""
    if queue.events:
        yield SQL.tell_due, (ids_of(ids), queue.now, kind, queue.name)


def tell_leased(queue: Queue, ids: Iterable[int]) -> Op[None]:
    if queue.events:
        yield SQL.tell_leased, (ids_of(ids), queue.now, queue.name)


def tell_progress(queue: Queue, ids: Iterable[int]) -> Op[None]:
    if queue.events:
        yield SQL.tell_progress, (ids_of(ids), queue.now, queue.name)


class Events:
    def events(
        self, after: str | None, queue: str | None, kinds: Sequence[str] | None, limit: int
    ) -> Op[tuple[list[EventRow], str]]:
        start, at = _position(after)
        yield BEGIN_READ
        if queue is not None:
            yield from find(queue, None)
        if at and (yield SQL.event_gone, (start, at)):
            raise CursorLost
        # First the end: on your connection the next statement may see later commits. The cursor
        # that is returned must not be behind them.
        newest = yield SQL.last_event, (start,)
        [(last, cursor)] = newest or [(start, after or "0")]
        if after is None:
            return [], cursor
        wanted = None if kinds is None else json_of(list(kinds))
        rows = yield SQL.events, (start, last, queue, wanted, limit)
        found = [EventRow._make(row) for row in rows]
        return found, found[-1].cursor if len(found) >= limit else cursor


def _position(cursor: str | None) -> tuple[int, int]:
    """The last event that was read: its id, and its time, which no other event with this id has."""
    if not cursor:
        return 0, 0
    id, _, at = cursor.partition("-")
    if not (id.isascii() and id.isdigit() and (not at or (at.isascii() and at.isdigit()))):
        raise InvalidArgument(
            f"{cursor!r} is no cursor of this database's events: pass event.cursor, or "
            '"" for the beginning'
        )
    return int(id), int(at or 0)
