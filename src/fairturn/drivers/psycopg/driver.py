# Generated from drivers/psycopg/driver_async.py by `make generate`: edit that file.
"""PostgreSQL through psycopg's Connection: our own, and yours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import psycopg
from psycopg.pq import ExecStatus
from psycopg.rows import tuple_row

from fairturn.backends.steps import Copy, Rows
from fairturn.core.kinds import Value
from fairturn.drivers.psycopg.common import arguments, error_code, shut


class PsycopgDriver:
    dialect = "postgresql"

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.can_copy = True

    def execute(self, text: str, params: Sequence[Value]) -> Rows:
        # A plain cursor: yours may return dicts, or use other placeholders.
        cursor = psycopg.RawCursor(self.connection, row_factory=tuple_row)
        if params:
            cursor.execute(cast(Any, text), params, binary=True)
        else:
            # The simple protocol, which also takes a migration of many statements.
            cursor.execute(cast(Any, text), prepare=False)
        # Cheaper than cursor.description, which makes an object per column.
        result = cursor.pgresult
        has_rows = result is not None and result.status == ExecStatus.TUPLES_OK
        return cursor.fetchall() if has_rows else []

    def copy(self, copy: Copy) -> None:
        cursor = psycopg.RawCursor(self.connection, row_factory=tuple_row)
        with cursor.copy(cast(Any, copy.text)) as out:
            for block in copy.data:
                out.write(block)

    def begin(self, write: bool) -> None:
        self.execute("BEGIN", ())

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        if not self.connection.closed:
            self.connection.rollback()

    def close(self) -> None:
        self.connection.close()

    def abort(self) -> None:
        """Break the connection: a caller that waits for an answer gets an error. (psycopg's cancel
        would first ask the server, which does not answer.)"""
        shut(self.connection)

    def code(self, error: BaseException) -> str | None:
        return error_code(error)


def connect(url: str, *, timeout: float, prepare: bool) -> PsycopgDriver:
    """Open a connection of our own."""
    connection = psycopg.Connection.connect(url, **arguments(timeout, prepare))
    return PsycopgDriver(connection)
