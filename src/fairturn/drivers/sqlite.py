"""Statements on a ``sqlite3.Connection``, ours or yours."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Literal

from fairturn.backends.steps import Rows
from fairturn.core.errors import UnsafeTransaction
from fairturn.core.kinds import Value
from fairturn.drivers.base import GONE

__all__ = ["register"]

# We have about ninety statements. With fewer slots the frequent ones would push each other out.
CACHED_STATEMENTS = 256
CACHE_KIB = 16 * 1024  # more was not faster in measurements, nor was mmap
WAL_KEPT = 64 * 1024 * 1024  # a long reader makes the log grow; it is cut to this size afterwards


def connect(
    path: str, *, synchronous: Literal["FULL", "NORMAL"] = "FULL", timeout: float = 5.0
) -> sqlite3.Connection:
    """Open a connection of our own, without implicit transactions, with a write-ahead log.

    ``synchronous="NORMAL"`` survives a crash of the process but may lose the last commits in a
    power failure; ``"FULL"`` loses nothing.
    """
    if synchronous not in ("FULL", "NORMAL"):
        raise ValueError(f"synchronous is 'FULL' or 'NORMAL', not {synchronous!r}")
    connection = sqlite3.connect(
        path,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
        uri=path.startswith("file:"),
    )
    try:
        _use_wal(connection, timeout)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT}")
        connection.execute("PRAGMA temp_store = MEMORY")
        register(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection, timeout: float) -> None:
    """Switch the file to WAL. SQLite does not wait for others that open the file: we do."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
            if not busy or time.monotonic() >= deadline:
                raise
        time.sleep(0.01)


def register(connection: sqlite3.Connection) -> None:
    """Define the SQL function ``fairturn_now_ns()``, the host's clock, unless it is there.

    An embedded database has no other clock, and SQLite's own functions only show milliseconds. It
    is a built-in function of Python: in one that is written in Python a Ctrl-C could arrive, and
    SQLite would turn it into an error of its own. The test costs 2 µs. Defining the function again
    would make SQLite prepare all statements again, and fails while one is running.
    """
    try:
        connection.cursor(sqlite3.Cursor).execute("SELECT fairturn_now_ns()").fetchall()
    except sqlite3.OperationalError:
        connection.create_function("fairturn_now_ns", 0, time.time_ns)


class SqliteDriver:
    """Ignores the connection's own row factory, text factory and cursor class."""

    dialect = "sqlite"
    can_copy = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        # Made by the first statement, which then raises the error of a closed connection.
        self._cursor: sqlite3.Cursor | None = None

    def execute(self, text: str, params: Sequence[Value]) -> Rows:
        cursor = self._cursor
        if cursor is None:
            cursor = self._prepare()
        connection = self.connection
        if connection.text_factory is str:
            return cursor.execute(text, params).fetchall()
        theirs = connection.text_factory
        connection.text_factory = str
        try:
            return cursor.execute(text, params).fetchall()
        finally:
            connection.text_factory = theirs

    def check_yours(self) -> None:
        """Refuse a connection in autocommit mode without an open transaction: it would commit each
        of our statements alone."""
        if self.connection.isolation_level is None and not self.connection.in_transaction:
            raise UnsafeTransaction(
                "your SQLite connection has no transaction open, so this call could be half done: "
                'execute "BEGIN IMMEDIATE" on it first'
            )

    def _prepare(self) -> sqlite3.Cursor:
        register(self.connection)
        self._cursor = self.connection.cursor(sqlite3.Cursor)
        self._cursor.row_factory = None
        return self._cursor

    def begin(self, write: bool) -> None:
        self.execute("BEGIN IMMEDIATE" if write else "BEGIN", ())

    def commit(self) -> None:
        self.execute("COMMIT", ())

    def rollback(self) -> None:
        # After a full disk or an I/O error SQLite has rolled back already.
        if self.connection.in_transaction:
            self.execute("ROLLBACK", ())

    def close(self) -> None:
        self.connection.close()

    def abort(self) -> None:
        """End the statement that another thread runs, with an error."""
        self.connection.interrupt()

    def code(self, error: BaseException) -> str | None:
        if isinstance(error, sqlite3.ProgrammingError) and "closed database" in str(error):
            return GONE
        if isinstance(error, sqlite3.Error):
            # Errors of the Python module (wrong thread, wrong parameters) have no SQLite name.
            return getattr(error, "sqlite_errorname", None)
        return None


class SqliteWatching:
    """Reads the data version, which every commit of another connection changes. It takes 3 µs."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def version(self) -> int:
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return version

    def close(self) -> None:
        self._connection.close()
