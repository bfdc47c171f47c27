"""PostgreSQL through psycopg's AsyncConnection: our own, and yours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import psycopg
from psycopg.pq import ExecStatus
from psycopg.rows import tuple_row

from fairturn.backends.steps import Copy, Rows
from fairturn.core.kinds import Value
from fairturn.drivers.psycopg.common import arguments, error_code, shut


class AsyncPsycopgDriver:
    dialect = "postgresql"

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection
        self.can_copy = True

    async def execute(self, text: str, params: Sequence[Value]) -> Rows:
        # A plain cursor: yours may return dicts, or use other placeholders.
        cursor = psycopg.AsyncRawCursor(self.connection, row_factory=tuple_row)
        if params:
            await cursor.execute(cast(Any, text), params, binary=True)
        else:
            # The simple protocol, which also takes a migration of many statements.
            await cursor.execute(cast(Any, text), prepare=False)
        # Cheaper than cursor.description, which makes an object per column.
        result = cursor.pgresult
        has_rows = result is not None and result.status == ExecStatus.TUPLES_OK
        return await cursor.fetchall() if has_rows else []

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
        """Break the connection: a caller that waits for an answer gets an error. (psycopg's cancel
        would first ask the server, which does not answer.)"""
        shut(self.connection)

    def code(self, error: BaseException) -> str | None:
        return error_code(error)


async def connect_async(url: str, *, timeout: float, prepare: bool) -> AsyncPsycopgDriver:
    """Open a connection of our own."""
    connection = await psycopg.AsyncConnection.connect(url, **arguments(timeout, prepare))
    return AsyncPsycopgDriver(connection)
