"""Find the driver for a connection you bring, by its class.

The class is looked up by its qualified name along the MRO, so nothing is imported that you have not
imported yourself, and a subclass of a known class works.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from fairlead.drivers.base import AsyncDriver, Driver
from fairlead.drivers.sqlalchemy import SyncInAsyncDriver as ThreadlessDriver
from fairlead.errors import InvalidArgument

_HELP = """\
using() does not know {kind}. It takes {known}.
For another connection write a driver and pass that instead. Ten lines are enough:

    class MyDriver:
        fairlead_driver = True
        dialect = "postgresql"          # or "mysql", "sqlite"
        can_copy = False
        def __init__(self, connection): self.connection = connection
        def execute(self, text, params):  # PostgreSQL: $1, $2 …; MySQL: %s; SQLite: ?
            cursor = self.connection.cursor(); cursor.execute(text, params)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        def code(self, error): return getattr(error, "sqlstate", None)  # or errno, sqlite_errorname

    queue.using(MyDriver(connection)).send(…)

(An async driver has `async def execute`.)"""

# class name -> (module of the driver, its class); the SQLAlchemy and Django drivers look at the
# connection's own driver to choose the placeholder style.
_SYNC = {
    "psycopg.Connection": ("psycopg", "PsycopgDriver"),
    "psycopg.connection.Connection": ("psycopg", "PsycopgDriver"),
    "sqlite3.Connection": ("sqlite", "SqliteDriver"),
    "pymysql.connections.Connection": ("pymysql", "PyMysqlDriver"),
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
    "asyncmy.connection.Connection": ("asyncmy", "AsyncmyDriver"),
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": ("sqlalchemy", "SyncInAsyncDriver"),
    "sqlalchemy.ext.asyncio.session.AsyncSession": ("sqlalchemy", "SyncInAsyncDriver"),
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": ("sqlalchemy", "SyncInAsyncDriver"),
}


def _find(connection: Any, known: dict[str, tuple[str, str]]) -> Callable[[Any], Any] | None:
    if getattr(connection, "fairlead_driver", False):
        return lambda driver: driver
    for cls in type(connection).__mro__:
        found = known.get(f"{cls.__module__}.{cls.__qualname__}")
        if found is not None:
            return getattr(import_module(f"fairlead.drivers.{found[0]}"), found[1])
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
                f"{kind} belongs to the other door: use it with a queue of fairlead.{door}()"
            )
        raise TypeError(_HELP.format(kind=kind, known=", ".join(sorted(known))))
    driver = make(connection)
    if driver.dialect != dialect:
        raise InvalidArgument(
            f"this Database is {dialect}, but {kind} is connected to {driver.dialect}"
        )
    return driver


def driver_for(connection: Any, dialect: str) -> Driver:
    """The driver of a sync connection, or a TypeError that says what to do."""
    return _driver(connection, dialect, _SYNC, _ASYNC)


def async_driver_for(connection: Any, dialect: str) -> AsyncDriver | ThreadlessDriver:
    """The driver of an async connection, or a TypeError that says what to do."""
    return _driver(connection, dialect, _ASYNC, _SYNC)
