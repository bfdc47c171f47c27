"""What all operations on MySQL use: a CALL, and values as bytes.

Names, errors and payloads are passed and returned as bytes, so that no connection's character set
changes them. Optional arguments are passed in one JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fairturn.backends.steps import Row
from fairturn.backends.verbs import (
    Ack,
    Complete,
    Defer,
    Extend,
    Fail,
    Kill,
    Lease,
    Progress,
    Release,
    Verb,
)
from fairturn.core import rows
from fairturn.core.kinds import Value
from fairturn.core.rows import MessageRow, PeekRow


def text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes | bytearray) else value


def in_bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def in_hex(value: str | None) -> str | None:
    """A name for JSON."""
    return None if value is None else value.encode().hex()


def from_hex(value: str | None) -> str | None:
    return None if value is None else bytes.fromhex(value).decode()


def given(**options: Any) -> str:
    """The options that are not None, as JSON."""
    return json.dumps({name: value for name, value in options.items() if value is not None})


def lease_list(leases: Sequence[Lease]) -> str:
    return f"[{','.join([f'[{lease.id},{lease.token}]' for lease in leases])}]"


def verb_arguments(verb: Verb) -> tuple[tuple[Value, ...], Mapping[str, Value]]:
    """The arguments of a verb's procedure after the leases: large values, and options."""
    match verb:
        case Ack() | Release():
            return (), {}
        case Complete():
            return (verb.result,), {"json": verb.result_json}
        case Defer():
            clear = int(not verb.keep_memo and verb.memo is None)
            times = {"due_us": verb.due_us, "delay_us": verb.delay_us}
            return (verb.memo,), {**times, "clear_memo": clear, "json": verb.memo_json}
        case Fail():
            options = {"delay_us": verb.delay_us, "reference": verb.reference}
            return (verb.error.encode(), verb.details), options
        case Kill():
            return (verb.error.encode(), verb.details), {"reference": verb.reference}
        case Extend():
            return (), {"lease_us": verb.lease_us, "exact": verb.exact}
        case Progress():
            return (in_bytes(verb.note),), {"millionths": verb.millionths}


def message_row(row: Row) -> MessageRow:
    """A message's columns, with its names as text."""
    (id, channel, body, headers, key, version, type_, *rest, group, origin, first_at) = row
    sent = (id, text(channel), body, headers, text(key), version, text(type_))
    return rows.message_row((*sent, *rest, text(group), text(origin), first_at))


def peek_row(row: Row) -> PeekRow:
    width = len(MessageRow._fields)
    state, result, error, *rest, note = row[width:]
    more = (text(state), result, text(error), *rest, text(note))
    return rows.peek_row((*message_row(row[:width]), *more))


class Caller:
    """The procedures of one installation, which are called by its prefix."""

    prefix: str

    def call(self, name: str, arguments: int) -> str:
        return f"CALL {self.prefix}{name}({', '.join(['%s'] * arguments)})"
