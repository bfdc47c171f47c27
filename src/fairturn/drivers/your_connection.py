"""Find the driver for your connection, by its class.

The names of its class and of its base classes are looked up. So a subclass of a known class works,
and no library is imported that you have not imported yourself.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from fairturn.core.errors import InvalidArgument
from fairturn.drivers.base import AsyncDriver, Driver
from fairturn.drivers.sqlalchemy import SyncInAsyncDriver as ThreadlessDriver

_HELP = """\
using() does not know {kind}. It takes {known}.
For another connection write a driver and pass that instead. Ten lines are enough:

    class MyDriver:
        fairturn_driver = True
        dialect = "postgresql"          # or "mysql", "sqlite"
        can_copy = False
        def __init__(self, connection): self.connection = connection
        def execute(self, text, params):  # PostgreSQL: $1, $2 …; MySQL: %s; SQLite: ?
            cursor = self.connection.cursor(); cursor.execute(text, params)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        def code(self, error): return getattr(error, "sqlstate", None)  # or errno, sqlite_errorname

    queue.using(MyDriver(connection)).send(…)

(An async driver has `async def execute`.)"""

# The name of the connection's class: the driver's module in fairturn.drivers, and its class.
_SYNC = {
    "psycopg.Connection": ("psycopg", "PsycopgDriver"),
    "psycopg.connection.Connection": ("psycopg", "PsycopgDriver"),
    "sqlite3.Connection": ("sqlite", "SqliteDriver"),
    "pymysql.connections.Connection": ("mysql.pymysql", "PyMysqlDriver"),
    "sqlalchemy.engine.base.Connection": ("sqlalchemy", "SqlalchemyDriver"),
    "sqlalchemy.orm.session.Session": ("sqlalchemy", "SqlalchemyDriver"),
    "sqlalchemy.orm.scoping.scoped_session": ("sqlalchemy", "SqlalchemyDriver"),
    "django.db.backends.base.base.BaseDatabaseWrapper": ("django", "DjangoDriver"),
    "django.utils.connection.ConnectionProxy": ("django", "DjangoDriver"),
}
_ASYNC = {
    "psycopg.AsyncConnection": ("psycopg", "AsyncPsycopgDriver"),
    "psycopg.connection_async.AsyncConnection": ("psycopg", "AsyncPsycopgDriver"),
    "asyncpg.connection.Connection": ("asyncpg", "AsyncpgDriver"),
    "asyncpg.pool.PoolConnectionProxy": ("asyncpg", "AsyncpgDriver"),
    "asyncmy.connection.Connection": ("mysql.asyncmy", "AsyncmyDriver"),
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": ("sqlalchemy", "SyncInAsyncDriver"),
    "sqlalchemy.ext.asyncio.session.AsyncSession": ("sqlalchemy", "SyncInAsyncDriver"),
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": ("sqlalchemy", "SyncInAsyncDriver"),
}


def _find(connection: Any, known: dict[str, tuple[str, str]]) -> Callable[[Any], Any] | None:
    if getattr(connection, "fairturn_driver", False):
        return lambda driver: driver
    for cls in type(connection).__mro__:
        found = known.get(f"{cls.__module__}.{cls.__qualname__}")
        if found is not None:
            module, name = found
            return getattr(import_module(f"fairturn.drivers.{module}"), name)
    return None


def _driver(
    connection: Any,
    dialect: str,
    known: dict[str, tuple[str, str]],
    other: dict[str, tuple[str, str]],
) -> Any:
    make = _find(connection, known)
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if make is None:
        if _find(connection, other) is not None:
            door = "connect_async" if known is _SYNC else "connect"
            raise TypeError(
                f"{kind} does not fit this queue: use it with a queue of fairturn.{door}()"
            )
        raise TypeError(_HELP.format(kind=kind, known=", ".join(sorted(known))))
    driver = make(connection)
    if driver.dialect != dialect:
        raise InvalidArgument(
            f"this Database is {dialect}, but {kind} is connected to {driver.dialect}"
        )
    return driver


def driver_for(connection: Any, dialect: str) -> Driver:
    """Return the driver of a sync connection; raise a TypeError that says what to do."""
    return _driver(connection, dialect, _SYNC, _ASYNC)


def async_driver_for(connection: Any, dialect: str) -> AsyncDriver | ThreadlessDriver:
    """Return the driver of an async connection; raise a TypeError that says what to do."""
    return _driver(connection, dialect, _ASYNC, _SYNC)
