"""PostgreSQL through your asyncpg connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairturn.backends.steps import Rows
from fairturn.core.kinds import Value
from fairturn.drivers.base import GONE


class AsyncpgDriver:
    dialect = "postgresql"

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.can_copy = False  # its COPY takes no statement; the backend uses unnest instead

    async def execute(self, text: str, params: Sequence[Value]) -> Rows:
        return [tuple(row) for row in await self.connection.fetch(text, *params)]

    def code(self, error: BaseException) -> str | None:
        sqlstate = getattr(error, "sqlstate", None)
        if isinstance(sqlstate, str):
            return sqlstate
        module = type(error).__module__
        if module.startswith("asyncpg.") or isinstance(error, ConnectionError):
            return GONE
        return None
