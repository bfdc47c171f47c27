"""PostgreSQL through your asyncpg connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.backends.base import Copy, Rows, Value
from fairlead.drivers.base import GONE


class AsyncpgDriver:
    dialect = "postgresql"

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.can_copy = False  # its COPY API takes no ready-made statement; unnest does as well

    async def execute(self, text: str, params: Sequence[Value]) -> Rows:
        return [tuple(row) for row in await self.connection.fetch(text, *params)]

    async def copy(self, copy: Copy) -> None:
        raise TypeError("this connection has no COPY: its driver says can_copy = False")

    async def begin(self, write: bool) -> None:
        await self.connection.execute("BEGIN")

    async def commit(self) -> None:
        await self.connection.execute("COMMIT")

    async def rollback(self) -> None:
        await self.connection.execute("ROLLBACK")

    async def close(self) -> None:
        await self.connection.close()

    def code(self, error: BaseException) -> str | None:
        sqlstate = getattr(error, "sqlstate", None)
        if isinstance(sqlstate, str):
            return sqlstate
        module = type(error).__module__
        if module.startswith("asyncpg.") or isinstance(error, ConnectionError):
            return GONE
        return None
