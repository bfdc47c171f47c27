"""Lists and rows as they cross the seam."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fairlead.backends.base import QUEUE_DEFAULTS, Lease, SendRow

_QUEUE_KEYS = ("name", "created_at", *QUEUE_DEFAULTS)


def array(values: Sequence[Any]) -> str | None:
    """Numbers as an array literal; None if all are None (the default of every item)."""
    if all(value is None for value in values):
        return None
    return "{" + ",".join("NULL" if value is None else str(value) for value in values) + "}"


def numbers(values: Sequence[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def texts(values: Sequence[str]) -> str:
    """Texts as an array literal: made several times faster than a driver makes its array."""
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return '{"' + '","'.join(quoted) + '"}' if values else "{}"


def or_none(values: list[Any]) -> list[Any] | None:
    return None if all(value is None for value in values) else values


def leases(leases: Sequence[Lease]) -> tuple[str, str]:
    """Ids and delivery numbers. Of several deliveries of one message the latest comes first: only
    that can be its lease."""
    if len({id for id, _ in leases}) < len(leases):
        leases = sorted(leases, key=lambda lease: -lease[1])
    return numbers([id for id, _ in leases]), numbers([delivery for _, delivery in leases])


def send_params(queue: str, items: Sequence[SendRow], now: int | None) -> tuple[Any, ...]:
    """The parameters of send_rows."""
    columns = list(zip(*items, strict=True))
    text = {i: or_none(list(columns[i])) for i in (6, 9, 10, 15, 16)}
    numeric = {i: array(columns[i]) for i in (2, 3, 4, 5, 8, 11, 12, 13, 14, 17)}
    return (
        queue,
        list(columns[0]),
        list(columns[1]),
        numeric[2],
        numeric[3],
        numeric[4],
        numeric[5],
        text[6],
        "".join(columns[7]),
        numeric[8],
        text[9],
        text[10],
        numeric[11],
        numeric[12],
        numeric[13],
        numeric[14],
        text[15],
        text[16],
        numeric[17],
        now,
    )


def queue_dict(text: str, meta: str | None = None) -> dict[str, Any]:
    row = {**json.loads(text), "meta": meta}
    return {key: row[key] for key in _QUEUE_KEYS}
