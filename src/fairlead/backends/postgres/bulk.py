"""Bulk sends as one binary COPY: rows are packed here, ids are reserved beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct

from fairlead.backends.base import SendRow

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

    Everything but id and body is usually the same for thousands of rows, so that part of a row is
    packed once for each different combination.
    """
    tails: dict[tuple[object, ...], bytes] = {}
    parts: list[bytes] = [_HEADER]
    for row, id in zip(rows, ids, strict=True):
        body = row[1]
        shape = (row[0], row[2:6], row[8:])
        tail = tails.get(shape)
        if tail is None:
            tail = tails[shape] = _tail(row, lane, now, expires_us)
        parts += (_START(_FIELDS, 8, id, len(body)), body, tail)
        if len(parts) >= 3 * _BLOCK:
            yield b"".join(parts)
            parts.clear()
            if len(tails) > 10 * _BLOCK:
                tails.clear()
    parts.append(_TRAILER)
    yield b"".join(parts)


def _tail(row: SendRow, lane: int, now: int, expires_us: int | None) -> bytes:
    channel, _, is_json, rank, due_us, delay_us = row[:6]
    version, type, headers, lease, most, own = row[8:14]
    due = now + delay_us if due_us is None else due_us
    expires = expires_us if own is None else own
    return b"".join(
        (
            _INT(4, lane),
            _LONG(8, now),
            _LONG(8, due),
            _LENGTH(1) + (b"r" if due <= now else b"s"),
            _text(channel),
            _INT(4, rank),
            _INT(4, version),
            _SHORT(2, is_json),
            _NULL if expires is None else _LONG(8, now + expires),
            _text(type),
            _bytes(headers),
            _NULL if lease is None else _LONG(8, lease),
            _NULL if most is None else _INT(4, most),
        )
    )
