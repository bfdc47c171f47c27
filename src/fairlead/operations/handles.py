"""A delivery that is known by its two numbers only: a receipt handle, another process's lease."""

from __future__ import annotations

from typing import Any, final

from fairlead import limits
from fairlead.backends.base import ROW, Row
from fairlead.errors import UsageError
from fairlead.operations import check

LEASE_UNTIL = ROW.index("lease_until")


@final
class Unknown:
    """Stands (the class itself: it survives pickling) where nobody has read the message."""


class LeaseRow(tuple[Any, ...]):
    """The row of such a message, up to the lease's end: the verbs need no more. What is not known
    raises when it is read, for there is nothing true to answer."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return super().__getitem__(index)  # pyright: ignore[reportUnknownArgumentType]
        found = super().__getitem__(index) if index < len(self) else Unknown
        if found is Unknown:
            raise UsageError(
                f"of message {self[0]} only the lease is known, by queue.lease(): its verbs work, "
                f"and queue.get(id={self[0]}) reads the message"
            )
        return found


def lease_row(id: int, delivery: int) -> LeaseRow:
    id = check.integer(id, "id", 0, 2**63 - 1)
    delivery = check.integer(delivery, "delivery", 1, limits.COUNT_MAX)
    return LeaseRow((id, *_BETWEEN, delivery, *_BEHIND))


# What nobody has read, around the two numbers: id is the first column.
_DELIVERIES = ROW.index("deliveries")
_BETWEEN = (Unknown,) * (_DELIVERIES - 1)
_BEHIND = (Unknown,) * (LEASE_UNTIL - _DELIVERIES)


def extended(row: Row, until: int) -> Row:
    """The same row with another end of its lease."""
    return type(row)((*row[:LEASE_UNTIL], until, *row[LEASE_UNTIL + 1 :]))
