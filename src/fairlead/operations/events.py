"""Reading what happened (semantics §15)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fairlead.backends.base import Op, Row
from fairlead.errors import InvalidArgument
from fairlead.operations import check
from fairlead.operations.call import Call, Core
from fairlead.values import EVENT_KINDS, Event, moment

PAGE = 500  # events in one read


def read(
    core: Core, after: str | None, queue: str | None, kinds: Sequence[str] | None
) -> Call[tuple[list[Event], str]]:
    """A page of events, and the cursor to go on from."""
    if after is not None:
        if not isinstance(after, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(
                f'after must be an event.cursor (a string), or "" for the beginning, not {after!r}'
            )
        after = after.strip()
    if queue is not None:
        check.name(queue, "queue")
    if kinds is not None:
        if isinstance(kinds, str):
            raise InvalidArgument("kinds must be a list of strings, not one string")
        for kind in kinds:
            if kind not in EVENT_KINDS:
                known = ", ".join(EVENT_KINDS)
                raise InvalidArgument(f"there are no {kind!r} events; the kinds are {known}")

    def start() -> Op[tuple[list[Event], str]]:
        rows, cursor = yield from core.backend.events(after, queue, kinds, PAGE)
        return [_event(row) for row in rows], cursor

    return Call("events", start, repeatable=True)


def _event(row: Row) -> Event:
    cursor, at, kind, queue, id, key, channel, delay, data = row
    return Event(
        cursor,
        moment(at),
        kind,
        queue,
        id,
        key,
        channel,
        None if delay is None else delay / 1_000_000,
        {} if data is None else json.loads(data),
    )
