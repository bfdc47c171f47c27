"""What every operation on MySQL is made of: a CALL, and values that cross as bytes.

Names, errors and payloads cross as bytes, so that no connection's character set touches them, and
come back as bytes. Whatever is optional goes in one JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fairlead.backends.base import ROW, Lease, Row


def text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes | bytearray) else value


def in_bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def in_hex(value: str | None) -> str | None:
    """A name inside JSON."""
    return None if value is None else value.encode().hex()


def given(**options: Any) -> str:
    """The options that are not None."""
    return json.dumps({name: value for name, value in options.items() if value is not None})


def lease_list(leases: Sequence[Lease]) -> str:
    return f"[{','.join([f'[{id},{delivery}]' for id, delivery in leases])}]"


def message_row(row: Row) -> Row:
    """A message's columns (base.ROW), with its names as text."""
    (id, channel, body, headers, key, version, type_, *rest, group, origin, first_at) = row
    sent = (id, text(channel), body, headers, text(key), version, text(type_))
    return (*sent, *rest, text(group), text(origin), first_at)


def peek_row(row: Row) -> Row:
    """base.PEEK_ROW."""
    state, result, error, *rest, note = row[len(ROW) :]
    return (*message_row(row[: len(ROW)]), text(state), result, text(error), *rest, text(note))


class Caller:
    """The procedures of one installation, which are called by its prefix."""

    prefix: str

    def call(self, name: str, arguments: int) -> str:
        return f"CALL {self.prefix}{name}({', '.join(['%s'] * arguments)})"
