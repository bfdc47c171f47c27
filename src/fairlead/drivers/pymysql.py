"""MySQL and MariaDB through PyMySQL: our own connections, and yours."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import Any, cast

import pymysql
from pymysql.cursors import Cursor
from pymysql.err import MySQLError, OperationalError

from fairlead.backends.base import Copy, Rows, Value
from fairlead.backends.mysql.literals import fill
from fairlead.drivers.base import GONE

# What the server sends when it closes a connection, and what the client finds out by itself.
GONE_NUMBERS = frozenset({0, 2006, 2013, 2014, 2055, 1053, 1927, 4031})
READ_COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
LARGE = 1_000_000  # bytes from which a statement is held against the server's max_allowed_packet
TOO_LARGE = (1153, "Got a packet bigger than 'max_allowed_packet' bytes")


class PyMysqlDriver:
    dialect = "mysql"
    can_copy = False

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._packet: int | None = None

    def execute(self, text: str, params: Sequence[Value]) -> Rows:
        statement = fill(text, params)
        if len(statement) > LARGE:
            self._check(statement)
        # A cursor of our own: yours may make dicts of rows, or leave them on the server.
        cursor = cast(Any, Cursor(self.connection))
        cursor.execute(statement)
        rows: Rows = list(cursor.fetchall()) if cursor.description is not None else []
        # A CALL is over, and committed, only after what follows its rows.
        while cursor.nextset():
            if cursor.description is not None:
                rows += cursor.fetchall()
        return rows

    def _check(self, statement: str) -> None:
        """Refuse what the server would answer by closing the connection."""
        if self._packet is None:
            self._packet = cast(int, self.execute("SELECT @@session.max_allowed_packet", ())[0][0])
        if len(statement) + 1024 > self._packet:
            raise OperationalError(*TOO_LARGE)

    def copy(self, copy: Copy) -> None:
        raise TypeError("this connection has no COPY: its driver says can_copy = False")

    def begin(self, write: bool) -> None:
        self.connection.begin()

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        if self.connection.open:
            self.connection.rollback()

    def close(self) -> None:
        if self.connection.open:
            self.connection.close()

    def abort(self) -> None:
        """Whoever waits for an answer on this connection, in another thread, gets an error now."""
        # It may be closed, by us or by the server, at any time.
        with contextlib.suppress(OSError, AttributeError):
            self.connection._sock.shutdown(socket.SHUT_RDWR)

    def code(self, error: BaseException) -> str | None:
        # Not pymysql.err.MySQLError: install_as_MySQLdb() and Django put a second copy there.
        if not isinstance(error, MySQLError):
            return None
        number = error.args[0] if error.args else 0
        if not isinstance(number, int) or number in GONE_NUMBERS:
            return GONE
        return str(number)


def connect(
    *,
    host: str = "localhost",
    port: int = 3306,
    user: str = "",
    password: str = "",
    database: str,
    unix_socket: str | None = None,
    timeout: float = 10.0,
) -> Any:
    """Open a connection of our own. ``timeout`` is for connecting and for waiting for locks."""
    seconds = max(1, round(timeout))
    connection = cast(Any, pymysql).connect(
        host=host,
        port=port,
        user=user,
        password=password,
        database=database,
        unix_socket=unix_socket,
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=seconds,  # until the server has to say the first word; from there on:
        read_timeout=seconds,
        init_command=READ_COMMITTED,
        program_name="fairlead",
    )
    cursor = connection.cursor()
    cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {seconds}")
    connection._read_timeout = None  # opened: statements may take as long as they like
    return connection
