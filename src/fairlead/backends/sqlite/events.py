"""Events (§15): written set by set in the transaction of what they tell, and read by id.

Every function here does nothing where the queue's `events` setting is off.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from fairlead.backends.base import BEGIN_READ, Op, Rows
from fairlead.backends.sqlite.common import SQL, Queue, find, ids_of, json_of
from fairlead.errors import InvalidArgument


def tell(queue: Queue, kind: str, ids: Iterable[int], error: str | None = None) -> Op[None]:
    """`done`, `dead` (with its error) or `deleted`; the last two before the rows change."""
    if queue.events:
        data = None if error is None else json.dumps({"error": error}).encode()
        yield SQL.tell, (ids_of(ids), queue.now, kind, queue.name, data)


def tell_due(queue: Queue, kind: str, ids: Iterable[int]) -> Op[None]:
    """`created` or `deferred`, once the rows have their new due time."""
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
    ) -> Op[tuple[Rows, str]]:
        start = _position(after)
        yield BEGIN_READ
        if queue is not None:
            yield from find(queue, None)
        # The end first: in your connection the next statement may see later commits, which must
        # not lie before the cursor that is answered.
        rows = yield SQL.last_event, ()
        last: int = max(rows[0][0], start)
        if after is None:
            return [], str(last)
        wanted = None if kinds is None else json_of(list(kinds))
        found: Rows = yield SQL.events, (start, last, queue, wanted, limit)
        return found, found[-1][0] if len(found) >= limit else str(last)


def _position(cursor: str | None) -> int:
    """The id that a reader has come to."""
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit()):
        raise InvalidArgument(
            f"{cursor!r} is no cursor of this database's events: pass event.cursor, or "
            '"" for the beginning'
        )
    return int(cursor)
