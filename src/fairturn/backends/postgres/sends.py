"""Sending on PostgreSQL: one statement; many messages without keys as one binary COPY."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter, itemgetter
from struct import Struct

from fairturn.backends.base import SENT, Outcome
from fairturn.backends.postgres.literals import send_params
from fairturn.backends.steps import BEGIN, CAN_COPY, Copy, Op
from fairturn.core.errors import BodyTooLarge
from fairturn.core.rows import SendRow

SPECIAL = 10_000  # queues that are remembered because send_plain does not serve them
BULK = 1000  # from this many messages on a COPY is faster than unnest


class Sending:
    statements: dict[str, str]
    _copy: str
    _special: set[str]

    def send(self, queue: str, items: Sequence[SendRow], now: int | None) -> Op[list[Outcome]]:
        if len(items) == 1 and items[0].key is None:
            return (yield from self._send_one(queue, items[0], now))
        if len(items) >= BULK and not any(row.key or row.group or row.once for row in items):
            sent = yield from self._send_bulk(queue, items, now)
            if sent is not None:
                return sent
        return (yield self.statements["send_rows"], send_params(queue, items, now))

    def _send_one(self, queue: str, row: SendRow, now: int | None) -> Op[list[Outcome]]:
        """One message without a key."""
        # fmt: off
        params = (
            queue, row.channel, row.body, row.json, row.rank, row.due_us, row.delay_us, row.version,
            row.type, row.headers, row.lease_us, row.max_attempts, row.expires_us,
        )
        # fmt: on
        if row.once is not None:
            if row.group is None and queue not in self._special:
                sent = yield self.statements["send_once"], (*params, row.once, row.once_us, now)
                if sent:
                    return sent
            return (yield self.statements["send_rows"], send_params(queue, [row], now))
        if row.group is None and queue not in self._special:
            sent = yield self.statements["send_plain"], (*params, now)
            if sent:
                return sent
            # The queue has events or counts sizes, and probably will the next time.
            if len(self._special) >= SPECIAL:
                self._special.clear()
            self._special.add(queue)
        return (yield self.statements["send_one"], (*params, row.group, now))

    def _send_bulk(
        self, queue: str, items: Sequence[SendRow], now: int | None
    ) -> Op[list[Outcome] | None]:
        """One COPY; None if the driver has no COPY, or the queue counts sizes."""
        if not (yield CAN_COPY):
            return None
        yield BEGIN
        [opened] = yield self.statements["send_open"], (queue, len(items), now)
        lane, clock, max_body, expires_us, allowed, first, last, scattered = opened
        if not allowed:
            return None
        largest = max(map(len, map(_body, items)))
        if largest > max_body:
            raise BodyTooLarge(largest, max_body)
        # Usually the ids are consecutive; not if other senders took some in between.
        ids = [int(i) for i in scattered.split(",")] if scattered else range(first, last + 1)
        yield Copy(self._copy, pack(items, ids, lane, clock, expires_us))
        return [(id, SENT) for id in ids]


# --- the stream of a COPY ------------------------------------------------------------------------
COLUMNS = (
    "id, body, lane, created_at, due_at, state, channel, rank, version, json, "
    "expires_at, type, headers, lease_us, max_attempts"
)
_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_START = Struct(">hiqi").pack  # number of columns, the id's length and value, the body's length
_INT = Struct(">ii").pack
_LONG = Struct(">iq").pack
_SHORT = Struct(">ih").pack
_LENGTH = Struct(">i").pack
_NULL = b"\xff\xff\xff\xff"
_FIELDS = 15
_BLOCK = 500  # rows handed to the driver at once
_body = attrgetter("body")
# All of a row but its body: what is before it, and what is after it.
_BODY = SendRow._fields.index("body")
_shape = itemgetter(slice(_BODY), slice(_BODY + 1, None))


def _text(value: str | None) -> bytes:
    if value is None:
        return _NULL
    raw = value.encode()
    return _LENGTH(len(raw)) + raw


def _bytes(raw: bytes | None) -> bytes:
    return _NULL if raw is None else _LENGTH(len(raw)) + raw


def pack(
    rows: Sequence[SendRow], ids: Sequence[int], lane: int, now: int, expires_us: int | None
) -> Iterator[bytes]:
    """The COPY stream of these messages, in blocks.

    All columns but id and body are usually the same for thousands of rows: that part of a row is
    packed once for each different combination.
    """
    tails: dict[tuple[object, ...], bytes] = {}
    parts: list[bytes] = [_HEADER]
    last, tail = None, b""
    for row, id in zip(rows, ids, strict=True):
        body, shape = row.body, _shape(row)
        if shape != last:  # to compare is faster than to hash
            last = shape
            tail = tails.get(shape) or tails.setdefault(shape, _tail(row, lane, now, expires_us))
        parts += (_START(_FIELDS, 8, id, len(body)), body, tail)
        if len(parts) >= 3 * _BLOCK:
            yield b"".join(parts)
            parts.clear()
            if len(tails) > 10 * _BLOCK:
                tails.clear()
    parts.append(_TRAILER)
    yield b"".join(parts)


def _tail(row: SendRow, lane: int, now: int, expires_us: int | None) -> bytes:
    due = now + row.delay_us if row.due_us is None else row.due_us
    expires = expires_us if row.expires_us is None else row.expires_us
    return b"".join(
        (
            _INT(4, lane),
            _LONG(8, now),
            _LONG(8, due),
            _LENGTH(1) + (b"r" if due <= now else b"s"),
            _text(row.channel),
            _INT(4, row.rank),
            _INT(4, row.version),
            _SHORT(2, row.json),
            _NULL if expires is None else _LONG(8, now + expires),
            _text(row.type),
            _bytes(row.headers),
            _NULL if row.lease_us is None else _LONG(8, row.lease_us),
            _NULL if row.max_attempts is None else _INT(4, row.max_attempts),
        )
    )
