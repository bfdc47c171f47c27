"""What Fairlead needs of a connection: ten lines that anybody can write for theirs.

A driver wraps one connection. ``execute`` sends one statement and returns its rows as a list of
plain tuples, whatever row factory the connection has. ``code`` names a database error in the
backend's own language (PostgreSQL: the SQLSTATE, MySQL: the error number, SQLite: the error name
such as ``SQLITE_BUSY``), ``"gone"`` when the connection is lost, ``None`` when the exception is not
the database's. ``begin``, ``commit``, ``rollback`` are only ever called on our own connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fairlead.backends.base import Copy, Rows, Value

GONE = "gone"


class Driver(Protocol):
    connection: Any
    dialect: str
    can_copy: bool

    def execute(self, text: str, params: Sequence[Value]) -> Rows: ...
    def copy(self, copy: Copy) -> None: ...
    def begin(self, write: bool) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...
    def code(self, error: BaseException) -> str | None: ...


class OwnDriver(Driver, Protocol):
    """A connection of our own."""

    def abort(self) -> None:
        """Called in another thread: whatever waits for an answer here ends with an error now."""
        ...


class AsyncDriver(Protocol):
    connection: Any
    dialect: str
    can_copy: bool

    async def execute(self, text: str, params: Sequence[Value]) -> Rows: ...
    async def copy(self, copy: Copy) -> None: ...
    async def begin(self, write: bool) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def close(self) -> None: ...
    def abort(self) -> None: ...
    def code(self, error: BaseException) -> str | None: ...


class Listening(Protocol):
    """A connection on which PostgreSQL tells us in which queue something happened."""

    pid: int  # by which the database knows this listener

    def wait(self) -> list[str]:
        """Block until something is told, or interrupt(): the names of the queues."""
        ...

    def interrupt(self) -> None: ...
    def __enter__(self) -> Listening: ...
    def __exit__(self, *_: Any) -> None: ...


class Watching(Protocol):
    """A connection on which SQLite shows that another one has committed."""

    def version(self) -> int: ...
    def close(self) -> None: ...
