"""Events (§15): one statement writes those of many messages, in the transaction of their cause.

Every function here does nothing where the queue's `events` setting is off.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from fairturn.backends.sqlite.common import SQL, Queue, find, ids_of, json_of
from fairturn.backends.steps import BEGIN_READ, Op
from fairturn.core.errors import InvalidArgument
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
        start = _position(after)
        yield BEGIN_READ
        if queue is not None:
            yield from find(queue, None)
        # First the end: on your connection the next statement may see later commits. The cursor
        # that is returned must not be behind them.
        [(newest,)] = yield SQL.last_event, ()
        last: int = max(newest, start)
        if after is None:
            return [], str(last)
        wanted = None if kinds is None else json_of(list(kinds))
        rows = yield SQL.events, (start, last, queue, wanted, limit)
        found = [EventRow._make(row) for row in rows]
        return found, found[-1].cursor if len(found) >= limit else str(last)


def _position(cursor: str | None) -> int:
    """The last id that was read."""
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit()):
        raise InvalidArgument(
            f"{cursor!r} is no cursor of this database's events: pass event.cursor, or "
            '"" for the beginning'
        )
    return int(cursor)
