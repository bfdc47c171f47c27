"""Your SQLAlchemy Connection or Session, sync or async, over any of the three databases.

Statements go through ``exec_driver_sql`` of its connection. So they are part of its transaction,
and the session's objects are not flushed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeVar

from fairturn.backends.steps import Op, Rows
from fairturn.core.kinds import Value
from fairturn.drivers import placeholders
from fairturn.drivers.base import GONE
from fairturn.drivers.run import run

T = TypeVar("T")

_DIALECTS = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite"}


def error_code(error: BaseException) -> str | None:
    """Return the code of the database driver's error, which SQLAlchemy or Django has wrapped."""
    inner = getattr(error, "orig", None) or error.__cause__ or error
    for candidate in (inner, getattr(inner, "__cause__", None)):
        if candidate is None:
            continue
        # MySQL's number first: PyMySQL's errors also have an SQLSTATE, which is less exact.
        args = getattr(candidate, "args", ())
        if args and isinstance(args[0], int):
            return str(args[0])
        for name in ("sqlstate", "pgcode", "sqlite_errorname"):
            value = getattr(candidate, name, None)
            if isinstance(value, str):
                return value
    if getattr(error, "connection_invalidated", False):
        return GONE
    return None


class SqlalchemyDriver:
    can_copy = False

    def __init__(self, connection: Any) -> None:
        # A Session (or scoped_session) has connection(); a Connection has exec_driver_sql itself.
        if not hasattr(connection, "exec_driver_sql"):
            connection = connection.connection()
        self.connection = connection
        name = str(connection.dialect.name)
        self.dialect: str = _DIALECTS.get(name, name)
        # All other drivers take the placeholders of the catalogues.
        self._named = self.dialect == "postgresql" and "format" in connection.dialect.paramstyle
        if self.dialect == "sqlite":
            sqlite = import_module("fairturn.drivers.sqlite")
            sqlite.register(connection.connection.driver_connection)

    def execute(self, text: str, params: Sequence[Value]) -> Rows:
        if self._named:
            bound: Any = placeholders.by_name(params)
            text = placeholders.named(text)
        else:
            bound = tuple(params)
        result = self.connection.exec_driver_sql(text, bound)
        return [tuple(row) for row in result.fetchall()] if result.returns_rows else []

    def code(self, error: BaseException) -> str | None:
        return error_code(error) if hasattr(error, "orig") else None


class SyncInAsyncDriver:
    """An AsyncConnection or AsyncSession: the whole operation runs through its ``run_sync``."""

    can_copy = False

    def __init__(self, connection: Any) -> None:
        if not hasattr(connection, "run_sync"):
            connection = connection()  # an async_scoped_session: the scope's AsyncSession
        self.connection = connection
        sync = getattr(connection, "sync_connection", None) or connection.sync_session
        name = str((sync if hasattr(sync, "dialect") else sync.get_bind()).dialect.name)
        self.dialect: str = _DIALECTS.get(name, name)

    async def run(self, op: Op[T]) -> T:
        def drive(sync: Any) -> T:
            return run(op, SqlalchemyDriver(sync), own=False)

        return await self.connection.run_sync(drive)

    def code(self, error: BaseException) -> str | None:
        return error_code(error) if hasattr(error, "orig") else None
