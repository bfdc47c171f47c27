"""MySQL and MariaDB through PyMySQL: our own connections, and yours."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import Any, cast

import pymysql
from pymysql.cursors import Cursor
from pymysql.err import MySQLError, OperationalError

from fairturn.backends.mysql.literals import fill
from fairturn.backends.steps import Rows
from fairturn.core.kinds import Value
from fairturn.drivers.mysql.common import (
    ASK_GALERA,
    IN_GALERA,
    LARGE,
    NOT_READY,
    READ_COMMITTED,
    TOO_LARGE,
    error_code,
    is_ready,
)


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
        # A plain cursor: yours may return dicts, or leave the rows on the server.
        cursor = cast(Any, Cursor(self.connection))
        cursor.execute(statement)
        rows: Rows = list(cursor.fetchall()) if cursor.description is not None else []
        # A CALL is complete, and committed, only when all its results have been read.
        while cursor.nextset():
            if cursor.description is not None:
                rows += cursor.fetchall()
        return rows

    def _check(self, statement: str) -> None:
        """Refuse a statement that is too large: the server would close the connection."""
        if self._packet is None:
            [(packet,)] = self.execute("SELECT @@session.max_allowed_packet", ())
            self._packet = cast(int, packet)
        if len(statement) + 1024 > self._packet:
            raise OperationalError(*TOO_LARGE)

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
        """Break the connection: a thread that waits for an answer gets an error."""
        # We or the server may have closed it already.
        with contextlib.suppress(OSError, AttributeError):
            self.connection._sock.shutdown(socket.SHUT_RDWR)

    def code(self, error: BaseException) -> str | None:
        # The class as it was imported: install_as_MySQLdb() and Django replace pymysql.err.
        if not isinstance(error, MySQLError):
            return None
        return error_code(error)


def connect(*, timeout: float = 10.0, **address: Any) -> Any:
    """Open a connection of our own. ``timeout`` is for connecting and for waiting for locks;
    ``address`` has host, port, unix_socket, user, password and database."""
    seconds = max(1, round(timeout))
    connection = cast(Any, pymysql).connect(
        **address,
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=seconds,  # until TCP is connected; then, until the server has answered:
        read_timeout=seconds,
        init_command=READ_COMMITTED,
        program_name="fairturn",
    )
    try:
        cursor = connection.cursor()
        cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {seconds}")
        _join_cluster(cursor)
    except BaseException:
        connection.close()
        raise
    connection._read_timeout = None  # a statement may take any time
    return connection


def _join_cluster(cursor: Any) -> None:
    """Set what a session needs in a Galera cluster."""
    is_on, ready = ASK_GALERA
    cursor.execute(is_on)
    if cursor.fetchall():
        cursor.execute(ready)
        if not is_ready(cursor.fetchall()):
            raise OperationalError(*NOT_READY)
        cursor.execute(IN_GALERA)
