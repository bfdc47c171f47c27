"""Lists as parameters of PostgreSQL, and a queue's row."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from fairturn.backends.verbs import Lease
from fairturn.core.rows import SendRow
from fairturn.core.settings import QUEUE_DEFAULTS

_QUEUE_KEYS = ("name", "created_at", *QUEUE_DEFAULTS)


def array(values: Sequence[Any]) -> str | None:
    """Numbers as an array literal; None if all are None (the default of every item)."""
    if values.count(None) == len(values):
        return None
    return "{" + ",".join("NULL" if value is None else str(value) for value in values) + "}"


def numbers(values: Sequence[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def texts(values: Sequence[str]) -> str:
    """Texts as an array literal. A driver takes several times as long to make an array."""
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return '{"' + '","'.join(quoted) + '"}' if values else "{}"


def or_none(values: Sequence[Any]) -> list[Any] | None:
    return None if values.count(None) == len(values) else list(values)


def lease_arrays(leases: Sequence[Lease]) -> tuple[str, str]:
    """The ids, and the token that all have, or else the ids in ascending order and their tokens."""
    if not leases:
        return "{}", "{}"
    ids, tokens = zip(*leases, strict=True)
    if len(set(tokens)) == 1:
        return numbers(ids), numbers(tokens[:1])
    ids, tokens = zip(*sorted(leases), strict=True)
    return numbers(ids), numbers(tokens)


# How the values of each column of a send are passed: all items in one parameter.
_ENCODE: dict[str, Callable[[Sequence[Any]], Any]] = {
    "channel": list,
    "body": list,
    "json": array,
    "rank": array,
    "due_us": array,
    "delay_us": array,
    "key": or_none,
    "on_conflict": "".join,
    "version": array,
    "type": or_none,
    "headers": or_none,
    "lease_us": array,
    "max_attempts": array,
    "expires_us": array,
    "max_wait_us": array,
    "group": or_none,
    "once": or_none,
    "once_us": array,
}


def send_params(queue: str, items: Sequence[SendRow], now: int | None) -> tuple[Any, ...]:
    """The parameters of send_rows."""
    return (queue, *send_columns(items), now)


def send_columns(items: Sequence[SendRow]) -> Any:
    """The items by column, encoded: a SendRow whose every field has the values of all of them."""
    columns = zip(*items, strict=True) if items else [()] * len(SendRow._fields)
    pairs = zip(_ENCODE.values(), columns, strict=True)
    return SendRow._make([encode(values) for encode, values in pairs])


def queue_dict(text: str, meta: str | None = None) -> dict[str, Any]:
    row = {**json.loads(text), "meta": meta}
    return {key: row[key] for key in _QUEUE_KEYS}
