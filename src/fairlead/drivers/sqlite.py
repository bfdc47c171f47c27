"""Statements on a ``sqlite3.Connection``, ours or yours."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Literal

from fairlead.backends.base import Copy, Rows, Value
from fairlead.drivers.base import GONE
from fairlead.errors import UnsafeTransaction

# Our statements number some ninety; fewer slots than that and the hot ones push each other out.
CACHED_STATEMENTS = 256
CACHE_KIB = 16 * 1024  # more made no difference in measurements, nor did mmap
WAL_KEPT = 64 * 1024 * 1024  # a long reader makes the log grow; this is cut off after it has gone


def connect(
    path: str, *, synchronous: Literal["FULL", "NORMAL"] = "FULL", timeout: float = 5.0
) -> sqlite3.Connection:
    """A connection of our own: no implicit transactions, write-ahead log, prepared to wait.

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
    """Switch the file to WAL. SQLite does not wait for other openers here, so we do."""
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
    """Teach the connection ``fairlead_now_ns()``, the host's clock, if it is new.

    An embedded database has no other clock, and SQLite's own functions only show milliseconds. It
    is a built-in function because Python handles signals in those written in Python, and SQLite
    would make an error of its own of a Ctrl-C that arrived there. Asking first costs 2 µs. Defining
    it again would make SQLite prepare every statement anew, and fails while one is running.
    """
    try:
        connection.cursor(sqlite3.Cursor).execute("SELECT fairlead_now_ns()").fetchall()
    except sqlite3.OperationalError:
        connection.create_function("fairlead_now_ns", 0, time.time_ns)


class SqliteDriver:
    """One connection. Never trusts its row factory, text factory or cursor class."""

    dialect = "sqlite"
    can_copy = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        # Made by the first statement, so that a closed connection is an error of that statement.
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
        """Your connection in autocommit mode with no transaction open would commit each of our
        statements alone."""
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

    def copy(self, copy: Copy) -> None:
        raise TypeError("SQLite has no COPY")

    def begin(self, write: bool) -> None:
        self.execute("BEGIN IMMEDIATE" if write else "BEGIN", ())

    def commit(self) -> None:
        self.execute("COMMIT", ())

    def rollback(self) -> None:
        # A full disk or an I/O error may have rolled back already.
        if self.connection.in_transaction:
            self.execute("ROLLBACK", ())

    def close(self) -> None:
        self.connection.close()

    def abort(self) -> None:
        """A statement that another thread is running ends with an error now."""
        self.connection.interrupt()

    def code(self, error: BaseException) -> str | None:
        if isinstance(error, sqlite3.ProgrammingError) and "closed database" in str(error):
            return GONE
        if isinstance(error, sqlite3.Error):
            # Errors of the module itself (wrong thread, wrong parameters) have no SQLite name.
            return getattr(error, "sqlite_errorname", None)
        return None


class SqliteWatching:
    """Sees that any other connection, here or in another process, has committed: 3 µs a look."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def version(self) -> int:
        return self._connection.execute("PRAGMA data_version").fetchone()[0]

    def close(self) -> None:
        self._connection.close()
