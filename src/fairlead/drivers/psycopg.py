"""PostgreSQL through psycopg 3, sync and async: our own connections, and yours."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from typing import Any, cast

import psycopg
from psycopg.pq import ExecStatus
from psycopg.rows import tuple_row

from fairlead.backends.base import Copy, Rows, Value
from fairlead.drivers.base import GONE

# Our own sessions: the isolation that receive needs; no statement may hang on a dead peer for ever.
_OPTIONS = "-c default_transaction_isolation=read\\ committed -c jit=off"
_KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


def _code(error: BaseException) -> str | None:
    if not isinstance(error, psycopg.Error):
        return None
    if error.sqlstate is not None:
        return error.sqlstate
    return GONE if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) else "XX000"


def _has_rows(result: Any) -> bool:
    # (cursor.description would say so too, but builds an object per column to do it.)
    return result is not None and result.status == ExecStatus.TUPLES_OK


def shut(connection: Any) -> None:
    """Whoever waits for an answer on this connection gets an error now."""
    # It may be closed, by us or by the server, at any time.
    with (
        contextlib.suppress(OSError, psycopg.OperationalError),
        socket.socket(fileno=os.dup(connection.fileno())) as copy,
    ):
        copy.shutdown(socket.SHUT_RDWR)


class PsycopgDriver:
    dialect = "postgresql"

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.can_copy = True

    def execute(self, text: str, params: Sequence[Value]) -> Rows:
        # A cursor of our own: yours may make dicts of rows, or use other placeholders.
        cursor = psycopg.RawCursor(self.connection, row_factory=tuple_row)
        if params:
            cursor.execute(cast(Any, text), params, binary=True)
        else:
            # The simple protocol, which takes a migration of many statements too.
            cursor.execute(cast(Any, text), prepare=False)
        return cursor.fetchall() if _has_rows(cursor.pgresult) else []

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
        """Whoever waits for an answer on this connection, in another thread, gets an error now."""
        shut(self.connection)

    def code(self, error: BaseException) -> str | None:
        return _code(error)


class AsyncPsycopgDriver:
    dialect = "postgresql"

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection
        self.can_copy = True

    async def execute(self, text: str, params: Sequence[Value]) -> Rows:
        cursor = psycopg.AsyncRawCursor(self.connection, row_factory=tuple_row)
        if params:
            await cursor.execute(cast(Any, text), params, binary=True)
        else:
            # The simple protocol, which takes a migration of many statements too.
            await cursor.execute(cast(Any, text), prepare=False)
        return await cursor.fetchall() if _has_rows(cursor.pgresult) else []

    async def copy(self, copy: Copy) -> None:
        cursor = psycopg.AsyncRawCursor(self.connection, row_factory=tuple_row)
        async with cursor.copy(cast(Any, copy.text)) as out:
            for block in copy.data:
                await out.write(block)

    async def begin(self, write: bool) -> None:
        await self.execute("BEGIN", ())

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        if not self.connection.closed:
            await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()

    def abort(self) -> None:
        """Whoever waits for an answer on this connection gets an error now. (Cancelling would ask
        the server first, which does not answer.)"""
        shut(self.connection)

    def code(self, error: BaseException) -> str | None:
        return _code(error)


def arguments(timeout: float, prepare: bool) -> dict[str, Any]:
    """How a connection of our own is opened."""
    arguments: dict[str, Any] = {
        "autocommit": True,
        "connect_timeout": max(1, round(timeout)),
        "prepare_threshold": 1 if prepare else None,
        "application_name": "fairlead",
        **_KEEPALIVE,
    }
    if prepare:
        # A pooler in transaction mode refuses startup options; the functions check the isolation.
        arguments["options"] = _OPTIONS
    return arguments


def connect(url: str, *, timeout: float, prepare: bool) -> PsycopgDriver:
    """Open a connection of our own."""
    return PsycopgDriver(psycopg.connect(url, **arguments(timeout, prepare)))


async def connect_async(url: str, *, timeout: float, prepare: bool) -> AsyncPsycopgDriver:
    """Open a connection of our own."""
    connection = await psycopg.AsyncConnection.connect(url, **arguments(timeout, prepare))
    return AsyncPsycopgDriver(connection)
