"""Reading events (semantics §15)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fairturn.backends.steps import Op
from fairturn.core import check, limits
from fairturn.core.errors import InvalidArgument
from fairturn.core.rows import EventRow
from fairturn.core.values import EVENT_KINDS, Event, moment
from fairturn.operations.call import Call, Core

PAGE = 500  # the most events in one read


def read(
    core: Core, after: str | None, queue: str | None, kinds: Sequence[str] | None
) -> Call[tuple[list[Event], str]]:
    """Read a page of events, and the cursor after it."""
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


def _event(row: EventRow) -> Event:
    return Event(
        cursor=row.cursor,
        at=moment(row.at),
        kind=row.kind,
        queue=row.queue,
        id=row.id,
        key=row.key,
        channel=row.channel,
        delay=None if row.delay_us is None else row.delay_us / limits.SECOND,
        data={} if row.data is None else json.loads(row.data),
    )
