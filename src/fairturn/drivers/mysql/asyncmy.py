"""MySQL and MariaDB through asyncmy: our own connections, and yours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import asyncmy
from asyncmy import errors as asyncmy_errors
from asyncmy.cursors import Cursor

from fairturn.backends.mysql.literals import fill
from fairturn.backends.steps import Rows
from fairturn.core.kinds import Value
from fairturn.drivers.base import GONE
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


class AsyncmyDriver:
    dialect = "mysql"
    can_copy = False

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._packet: int | None = None

    async def execute(self, text: str, params: Sequence[Value]) -> Rows:
        statement = fill(text, params)
        if len(statement) > LARGE:
            await self._check(statement)
        # A plain cursor: yours may return dicts, or leave the rows on the server.
        cursor = cast(Any, Cursor)(self.connection)
        await cursor.execute(statement)
        rows: Rows = list(await cursor.fetchall()) if cursor.description is not None else []
        # A CALL is complete, and committed, only when all its results have been read.
        while await cursor.nextset():
            if cursor.description is not None:
                rows += await cursor.fetchall()
        return rows

    async def _check(self, statement: str) -> None:
        """Refuse a statement that is too large: the server would close the connection."""
        if self._packet is None:
            [(packet,)] = await self.execute("SELECT @@session.max_allowed_packet", ())
            self._packet = cast(int, packet)
        if len(statement) + 1024 > self._packet:
            raise cast(Any, asyncmy_errors).OperationalError(*TOO_LARGE)

    async def begin(self, write: bool) -> None:
        await self.connection.begin()

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        if self.connection.connected:
            await self.connection.rollback()

    async def close(self) -> None:
        # In the middle of a statement the server does not answer the goodbye: then just close.
        if self.connection.connected:
            try:
                async with asyncio.timeout(1):
                    await self.connection.ensure_closed()
            except Exception:
                self.connection.close()

    def abort(self) -> None:
        """Break the connection: a task that waits for an answer gets an error."""
        self.connection.close()

    def code(self, error: BaseException) -> str | None:
        if isinstance(error, asyncio.IncompleteReadError | ConnectionError):
            return GONE
        if not isinstance(error, cast(Any, asyncmy_errors).MySQLError):
            return None
        return error_code(error)


async def connect(*, timeout: float = 10.0, **address: Any) -> Any:
    """Open a connection of our own. ``timeout`` is for connecting and for waiting for locks;
    ``address`` has host, port, unix_socket, user, password and database."""
    seconds = max(1, round(timeout))
    try:
        # connect_timeout ends when TCP is connected; the server may still not answer.
        async with asyncio.timeout(seconds):
            connection = await cast(Any, asyncmy).connect(
                **address,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=seconds,
                init_command=READ_COMMITTED,
            )
            try:
                async with connection.cursor() as cursor:
                    await cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {seconds}")
                    await _join_cluster(cursor)
            except BaseException:
                connection.close()
                raise
    except TimeoutError:
        raise TimeoutError(f"no answer in {seconds} s") from None
    return connection


async def _join_cluster(cursor: Any) -> None:
    """Set what a session needs in a Galera cluster."""
    is_on, ready = ASK_GALERA
    await cursor.execute(is_on)
    if await cursor.fetchall():
        await cursor.execute(ready)
        if not is_ready(await cursor.fetchall()):
            raise cast(Any, asyncmy_errors).OperationalError(*NOT_READY)
        await cursor.execute(IN_GALERA)
