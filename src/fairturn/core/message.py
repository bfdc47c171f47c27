"""A message as a user reads it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from fairturn.core.rows import AnyMessageRow, LeaseRow
from fairturn.core.values import (
    BODY_JSON,
    MEMO_JSON,
    ORDERED,
    RESULT_JSON,
    STATES,
    State,
    decode,
    fraction,
    moment,
    optional_moment,
)


class Message:
    """A message as it is stored. ``receive`` gives a ``LeasedMessage``, which adds the verbs."""

    __slots__ = ("_body", "_row", "queue")

    def __init__(self, queue: str, row: AnyMessageRow) -> None:
        self.queue = queue
        self._row = row

    @property
    def id(self) -> int:
        return self._row.id

    @property
    def channel(self) -> str:
        return self._row.channel

    @property
    def raw(self) -> bytes:
        """The body's bytes as stored."""
        return self._row.body

    @property
    def is_json(self) -> bool:
        """True if ``raw`` is JSON text; else the body was sent as bytes."""
        return bool(self._row.json & BODY_JSON)

    @property
    def body(self) -> Any:
        """The body as it was sent: bytes, or the decoded JSON."""
        try:
            return self._body
        except AttributeError:
            self._body = decode(self._row.body, self._row.json & BODY_JSON)
            return self._body

    @property
    def headers(self) -> dict[str, Any]:
        headers = self._row.headers
        return {} if headers is None else json.loads(headers)

    @property
    def key(self) -> str | None:
        return self._row.key

    @property
    def version(self) -> int:
        return self._row.version

    @property
    def type(self) -> str | None:
        return self._row.type

    @property
    def priority(self) -> int:
        return self._row.priority

    @property
    def due_at(self) -> datetime:
        return moment(self._row.due_at)

    @property
    def created_at(self) -> datetime:
        return moment(self._row.created_at)

    @property
    def attempts(self) -> int:
        return self._row.attempts

    @property
    def deliveries(self) -> int:
        return self._row.deliveries

    @property
    def token(self) -> int | None:
        """Of its lease; None if it is not leased."""
        return self._row.token or None

    @property
    def memo(self) -> Any:
        return decode(self._row.memo, self._row.json & MEMO_JSON)

    @property
    def ordered(self) -> bool:
        """True if it came from an ordered channel: later messages must wait for it."""
        return bool(self._row.json & ORDERED)

    @property
    def lease_until(self) -> datetime | None:
        return optional_moment(self._row.lease_until)

    @property
    def recovered(self) -> bool:
        """True if an earlier delivery's lease expired."""
        return bool(self._row.recovered)

    @property
    def group(self) -> str | None:
        """The name of the group it belongs to."""
        return self._row.group

    @property
    def origin(self) -> str | None:
        """The queue where it died, if it was dead-lettered and that queue still exists."""
        return self._row.origin

    @property
    def first_delivered_at(self) -> datetime | None:
        """When it was first received."""
        return optional_moment(self._row.first_at)

    # Only get and peek read these; in a received message all but the state are None.
    @property
    def state(self) -> State:
        return STATES[self._row.state]

    @property
    def result(self) -> Any:
        return decode(self._row.result, self._row.json & RESULT_JSON)

    @property
    def error(self) -> str | None:
        return self._row.error

    @property
    def finished_at(self) -> datetime | None:
        return optional_moment(self._row.finished_at)

    @property
    def expires_at(self) -> datetime | None:
        return optional_moment(self._row.expires_at)

    @property
    def max_attempts(self) -> int | None:
        return self._row.max_attempts

    @property
    def progressed(self) -> float | None:
        """The progress that its worker has stored: 0.0 to 1.0."""
        return fraction(self._row.progress)

    @property
    def note(self) -> str | None:
        """The note that its worker has stored with the progress."""
        return self._row.note

    def __repr__(self) -> str:
        # Without the body: logs contain reprs.
        row = self._row
        unread = isinstance(row, LeaseRow)
        which = f"token={row.token}" if unread else f"channel={row.channel!r}"
        return f"<{type(self).__name__} {row.id} queue={self.queue!r} {which}>"
