"""MySQL and MariaDB through asyncmy: our own connections, and yours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import asyncmy
from asyncmy import errors as asyncmy_errors
from asyncmy.cursors import Cursor

from fairlead.backends.base import Copy, Rows, Value
from fairlead.backends.mysql.literals import fill
from fairlead.drivers.base import GONE

GONE_NUMBERS = frozenset({0, 2006, 2013, 2014, 2055, 1053, 1927, 4031})
READ_COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
LARGE = 1_000_000  # bytes from which a statement is held against the server's max_allowed_packet
TOO_LARGE = (1153, "Got a packet bigger than 'max_allowed_packet' bytes")


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
        # A cursor of our own: yours may make dicts of rows, or leave them on the server.
        cursor = cast(Any, Cursor)(self.connection)
        await cursor.execute(statement)
        rows: Rows = list(await cursor.fetchall()) if cursor.description is not None else []
        # A CALL is over, and committed, only after what follows its rows.
        while await cursor.nextset():
            if cursor.description is not None:
                rows += await cursor.fetchall()
        return rows

    async def _check(self, statement: str) -> None:
        """Refuse what the server would answer by closing the connection."""
        if self._packet is None:
            rows = await self.execute("SELECT @@session.max_allowed_packet", ())
            self._packet = cast(int, rows[0][0])
        if len(statement) + 1024 > self._packet:
            raise cast(Any, asyncmy_errors).OperationalError(*TOO_LARGE)

    async def copy(self, copy: Copy) -> None:
        raise TypeError("this connection has no COPY: its driver says can_copy = False")

    async def begin(self, write: bool) -> None:
        await self.connection.begin()

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        if self.connection.connected:
            await self.connection.rollback()

    async def close(self) -> None:
        # In the middle of a statement there is nobody to say goodbye to.
        if self.connection.connected:
            try:
                async with asyncio.timeout(1):
                    await self.connection.ensure_closed()
            except Exception:
                self.connection.close()

    def abort(self) -> None:
        """Whoever waits for an answer on this connection gets an error now."""
        self.connection.close()

    def code(self, error: BaseException) -> str | None:
        if isinstance(error, asyncio.IncompleteReadError | ConnectionError):
            return GONE
        if not isinstance(error, cast(Any, asyncmy_errors).MySQLError):
            return None
        number = error.args[0] if error.args else 0
        if not isinstance(number, int) or number in GONE_NUMBERS:
            return GONE
        return str(number)


async def connect(
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
    try:
        # Its own connect_timeout ends where the server has to say the first word.
        async with asyncio.timeout(seconds):
            connection = await cast(Any, asyncmy).connect(
                host=host,
                port=port,
                user=user,
                password=password,
                database=database,
                unix_socket=unix_socket,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=seconds,
                init_command=READ_COMMITTED,
            )
            async with connection.cursor() as cursor:
                await cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {seconds}")
    except TimeoutError:
        raise TimeoutError(f"no answer in {seconds} s") from None
    return connection
