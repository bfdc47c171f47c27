"""What Fairturn needs from a connection. A driver adapts one connection to it.

``execute`` sends one statement and returns its rows as a list of plain tuples, whatever row factory
the connection has. ``code`` returns the backend's name of a database error (PostgreSQL: the
SQLSTATE, MySQL: the error number, SQLite: the error name such as ``SQLITE_BUSY``), ``"gone"`` if
the connection is lost, None if the exception is not an error of the database. ``can_copy``: the
driver also has ``copy(step)``, for PostgreSQL's COPY.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fairturn.backends.steps import Rows
from fairturn.core.kinds import Value

GONE = "gone"


class Driver(Protocol):
    """Your connection."""

    connection: Any
    dialect: str
    can_copy: bool

    def execute(self, text: str, params: Sequence[Value]) -> Rows: ...
    def code(self, error: BaseException) -> str | None: ...


class OwnDriver(Driver, Protocol):
    """A connection of our own."""

    def begin(self, write: bool) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None:
        """Break the connection: a thread or task that waits for an answer gets an error."""
        ...


class AsyncDriver(Protocol):
    """Your async connection."""

    connection: Any
    dialect: str
    can_copy: bool

    async def execute(self, text: str, params: Sequence[Value]) -> Rows: ...
    def code(self, error: BaseException) -> str | None: ...


class AsyncOwnDriver(AsyncDriver, Protocol):
    """An async connection of our own."""

    async def begin(self, write: bool) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def close(self) -> None: ...
    def abort(self) -> None: ...


class Listening(Protocol):
    """A connection that receives PostgreSQL's notifications."""

    pid: int  # the listener's id in the database

    def wait(self) -> list[str]:
        """Block until a notification or interrupt(); return the names of the queues."""
        ...

    def interrupt(self) -> None: ...
    def __enter__(self) -> Listening: ...
    def __exit__(self, *_: Any) -> None: ...


class Watching(Protocol):
    """A connection that shows SQLite's data version."""

    def version(self) -> int: ...
    def close(self) -> None: ...
