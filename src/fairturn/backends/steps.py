"""The steps of an operation: it yields them and gets their results back.

An operation is a generator. It yields statements ``(text, params)``, gets back their rows (a list
of tuples) and returns a plain value. It imports no driver and never sleeps, so the same operation
runs on any connection, sync or async, ours or yours (drivers/run.py).

It stores and compares times of the database, or in tests of its caller. Only PostgreSQL's receive
also reads this machine's monotonic clock, to see how old its scan hints are
(postgres/scan_hints.py). The memory backend has a clock of its own.

Parameters and results are only ``int``, ``str``, ``bytes`` and ``None``. Every time is in
microseconds.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fairturn.core.kinds import Value

T = TypeVar("T")
Row = tuple[Any, ...]  # as a driver returns it; core/rows.py has rows with names
Rows = list[Row]


class Begin:
    """Yielded first by an operation of several statements: they belong in one transaction.

    On our own connection the runner opens it and commits when the operation returns; inside your
    transaction it does nothing.
    """

    __slots__ = ("write",)

    def __init__(self, write: bool) -> None:
        self.write = write


BEGIN = Begin(write=True)
BEGIN_READ = Begin(write=False)


@dataclass(frozen=True, slots=True)
class Copy:
    """A bulk load: ``text`` is the COPY statement, ``data`` its binary stream in blocks. A block is
    made while the server works on the one before.

    Only yielded to a driver whose ``can_copy`` is true.
    """

    text: str
    data: Iterable[bytes]


class CanCopy:
    """Yielded to ask whether the driver can COPY; the answer is True or False."""


CAN_COPY = CanCopy()

Statement = tuple[str, Sequence[Value]] | Begin | Copy | CanCopy
Op = Generator[Any, Any, T]
