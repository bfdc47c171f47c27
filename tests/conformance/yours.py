"""Every kind of connection a user may bring, behind one sync face.

``Kind.open(url)`` -> a ``Mine`` with ``begin``, ``commit``, ``rollback``, ``execute`` (a statement
of the user's own, without parameters), ``connection`` (what is passed to ``using``) and ``close``.
Async kinds run on a loop of their own through ``mine.wait``.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests.conformance.connections import mysql_arguments, sqlite_path

READ_COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"


class Mine:
    """A user's connection. Subclasses say how each step is done; a coroutine is awaited."""

    connection: Any = None
    is_async = False

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop() if self.is_async else None
        self._cleanup: list[Callable[[], Any]] = []
        try:
            self.wait(self.open(url))
        except BaseException:
            self.close()
            raise

    def wait(self, value: Any) -> Any:
        if asyncio.iscoroutine(value) or asyncio.isfuture(value):
            assert self.loop is not None
            return self.loop.run_until_complete(value)
        return value

    def open(self, url: str) -> Any:
        raise NotImplementedError

    def begin(self) -> Any:
        """Most begin by themselves."""

    def commit(self) -> Any:
        return self.wait(self.connection.commit())

    def rollback(self) -> Any:
        return self.wait(self.connection.rollback())

    def execute(self, text: str) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        for step in reversed(self._cleanup):
            self.wait(step())
        self._cleanup.clear()
        if self.loop is not None:
            with suppress(Exception):
                self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


# --- SQLite -------------------------------------------------------------------------------------


class Sqlite3(Mine):
    row_factory: Any = None

    def open(self, url: str) -> None:
        self.connection = sqlite3.connect(sqlite_path(url), isolation_level=None, timeout=30)
        self.connection.row_factory = self.row_factory
        self._cleanup.append(self.connection.close)

    def begin(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")

    def execute(self, text: str) -> Any:
        return [tuple(row) for row in self.connection.execute(text).fetchall()]


class Sqlite3Row(Sqlite3):
    row_factory = sqlite3.Row


class Sqlite3Bytes(Sqlite3):
    """A text factory of the user's own."""

    def open(self, url: str) -> None:
        super().open(url)
        self.connection.text_factory = bytes


# --- PostgreSQL ---------------------------------------------------------------------------------


class Psycopg(Mine):
    options: dict[str, Any] = {}  # noqa: RUF012

    def open(self, url: str) -> None:
        import psycopg

        self.connection = psycopg.connect(url, **self.options)
        self._cleanup.append(self.connection.close)

    def execute(self, text: str) -> Any:
        import psycopg
        from psycopg.rows import tuple_row

        cursor = psycopg.Cursor(self.connection, row_factory=tuple_row)
        cursor.execute(text)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


class PsycopgDict(Psycopg):
    """With dicts as rows and cursors of another class, as an application may have them."""

    def open(self, url: str) -> None:
        import psycopg
        from psycopg.rows import dict_row

        self.options = {"row_factory": dict_row, "cursor_factory": psycopg.ClientCursor}
        super().open(url)


class PsycopgAutocommit(Psycopg):
    """With autocommit, and the transaction begun by hand."""

    options = {"autocommit": True}  # noqa: RUF012

    def begin(self) -> None:
        self.execute("BEGIN")


class AsyncPsycopg(Mine):
    is_async = True

    async def open(self, url: str) -> None:
        import psycopg

        self.connection = await psycopg.AsyncConnection.connect(url)
        self._cleanup.append(self.connection.close)

    def execute(self, text: str) -> Any:
        async def run() -> Any:
            cursor = await self.connection.execute(text)
            return await cursor.fetchall() if cursor.description else []

        return self.wait(run())


class Asyncpg(Mine):
    is_async = True

    async def open(self, url: str) -> None:
        import asyncpg

        self.connection = await asyncpg.connect(url)
        self._cleanup.append(self.connection.close)

    def begin(self) -> None:
        self.transaction = self.connection.transaction()
        self.wait(self.transaction.start())

    def commit(self) -> None:
        self.wait(self.transaction.commit())

    def rollback(self) -> None:
        self.wait(self.transaction.rollback())

    def execute(self, text: str) -> Any:
        return [tuple(row) for row in self.wait(self.connection.fetch(text))]


class AsyncpgPool(Asyncpg):
    """A connection borrowed from asyncpg's pool: a proxy."""

    async def open(self, url: str) -> None:
        import asyncpg

        pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
        self._cleanup.append(pool.close)
        self.connection = await pool.acquire()
        self._cleanup.append(lambda: pool.release(self.connection))


# --- MySQL --------------------------------------------------------------------------------------


class PyMysql(Mine):
    cursor: str = "Cursor"

    def open(self, url: str) -> None:
        import pymysql

        kind = getattr(pymysql.cursors, self.cursor)
        self.connection = pymysql.connect(**mysql_arguments(url), cursorclass=kind)
        self._cleanup.append(self.connection.close)
        self.execute(READ_COMMITTED)
        self.connection.commit()

    def begin(self) -> None:
        self.connection.begin()

    def execute(self, text: str) -> Any:
        import pymysql

        with pymysql.cursors.Cursor(self.connection) as cursor:
            cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else []


class PyMysqlDict(PyMysql):
    cursor = "DictCursor"


class Asyncmy(Mine):
    is_async = True

    async def open(self, url: str) -> None:
        import asyncmy

        self.connection = await asyncmy.connect(**mysql_arguments(url))
        self._cleanup.append(self.connection.ensure_closed)
        async with self.connection.cursor() as cursor:
            await cursor.execute(READ_COMMITTED)
        await self.connection.commit()

    def begin(self) -> None:
        self.wait(self.connection.begin())

    def execute(self, text: str) -> Any:
        async def run() -> Any:
            async with self.connection.cursor() as cursor:
                await cursor.execute(text)
                return [tuple(row) for row in await cursor.fetchall()] if cursor.description else []

        return self.wait(run())


# --- SQLAlchemy ---------------------------------------------------------------------------------


def _engine_url(url: str, driver: str) -> str:
    return url.replace("://", f"+{driver}://", 1)


def _immediate(engine: Any) -> None:
    """SQLAlchemy's own recipe for transactions that begin where you say so."""
    from sqlalchemy import event

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


class AlchemyConnection(Mine):
    driver = ""
    options: dict[str, Any] = {}  # noqa: RUF012

    def open(self, url: str) -> None:
        import sqlalchemy

        self.engine = sqlalchemy.create_engine(_engine_url(url, self.driver), **self.options)
        self._cleanup.append(self.engine.dispose)
        if self.driver == "pysqlite":
            _immediate(self.engine)
        self.connection = self.bring()
        self._cleanup.append(self.connection.close)

    def bring(self) -> Any:
        return self.engine.connect()

    def execute(self, text: str) -> Any:
        import sqlalchemy

        result = self.connection.execute(sqlalchemy.text(text))
        return [tuple(row) for row in result.fetchall()] if result.returns_rows else []


class AlchemySession(AlchemyConnection):
    def bring(self) -> Any:
        from sqlalchemy.orm import Session

        return Session(self.engine)


class AlchemyScoped(AlchemyConnection):
    def bring(self) -> Any:
        from sqlalchemy.orm import scoped_session, sessionmaker

        session = scoped_session(sessionmaker(self.engine))
        self._cleanup.append(session.remove)
        return session


class AlchemyAsyncConnection(Mine):
    is_async = True
    driver = ""
    options: dict[str, Any] = {}  # noqa: RUF012

    async def open(self, url: str) -> None:
        from sqlalchemy.ext.asyncio import create_async_engine

        self.engine = create_async_engine(_engine_url(url, self.driver), **self.options)
        self._cleanup.append(self.engine.dispose)
        self.connection = await self.bring()
        self._cleanup.append(self.connection.close)

    async def bring(self) -> Any:
        return await self.engine.connect()

    def execute(self, text: str) -> Any:
        import sqlalchemy

        result = self.wait(self.connection.execute(sqlalchemy.text(text)))
        return [tuple(row) for row in result.fetchall()] if result.returns_rows else []


class AlchemyAsyncSession(AlchemyAsyncConnection):
    async def bring(self) -> Any:
        from sqlalchemy.ext.asyncio import AsyncSession

        return AsyncSession(self.engine)


class AlchemyAsyncScoped(AlchemyAsyncConnection):
    async def bring(self) -> Any:
        from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker

        session = async_scoped_session(async_sessionmaker(self.engine), lambda: self)
        self._cleanup.append(session.remove)
        return session


def _of(base: type[Mine], driver: str, **options: Any) -> type[Mine]:
    return type(base.__name__, (base,), {"driver": driver, "options": options})


# --- Django -------------------------------------------------------------------------------------


class Django(Mine):
    """django.db.connection inside atomic()."""

    engine = ""
    options: dict[str, Any] = {}  # noqa: RUF012

    def settings(self, url: str) -> dict[str, Any]:
        if self.engine == "sqlite3":
            return {"NAME": sqlite_path(url)}
        given = mysql_arguments(url)
        return {
            "NAME": given["database"],
            "HOST": given["host"],
            "PORT": given["port"],
            "USER": given["user"],
            "PASSWORD": given["password"],
        }

    def open(self, url: str) -> None:
        import django
        from django.conf import settings
        from django.db import connections

        if not settings.configured:
            settings.configure(USE_TZ=True)
            django.setup()

        given = {"ENGINE": f"django.db.backends.{self.engine}", **self.settings(url)}
        handler = type(connections)({"default": {**given, "OPTIONS": self.options}})
        self.connection = handler["default"]
        self._cleanup.append(self.connection.close)

    def begin(self) -> None:
        self.connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)

    def commit(self) -> None:
        self.connection.commit()
        self.connection.set_autocommit(True)

    def rollback(self) -> None:
        self.connection.rollback()
        self.connection.set_autocommit(True)

    def execute(self, text: str) -> Any:
        with self.connection.cursor() as cursor:
            cursor.execute(text)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


class DjangoMysql(Django):
    """Django on MySQL through PyMySQL, which pretends to be mysqlclient."""

    def open(self, url: str) -> None:
        import pymysql

        pymysql.install_as_MySQLdb()
        super().open(url)


def _django(base: type[Mine], engine: str, **options: Any) -> type[Mine]:
    return type(base.__name__, (base,), {"engine": engine, "options": options})


# --- all of them --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    name: str
    backend: str
    cls: type[Mine]

    @property
    def is_async(self) -> bool:
        return self.cls.is_async


_COMMITTED = {"isolation_level": "READ COMMITTED"}
KINDS = [
    Kind("sqlite3", "sqlite", Sqlite3),
    Kind("sqlite3-Row", "sqlite", Sqlite3Row),
    Kind("sqlite3-bytes", "sqlite", Sqlite3Bytes),
    Kind("sqlalchemy-Connection", "sqlite", _of(AlchemyConnection, "pysqlite")),
    Kind("sqlalchemy-Session", "sqlite", _of(AlchemySession, "pysqlite")),
    Kind("sqlalchemy-scoped_session", "sqlite", _of(AlchemyScoped, "pysqlite")),
    Kind("django", "sqlite", _django(Django, "sqlite3", transaction_mode="IMMEDIATE")),
    Kind("psycopg", "postgresql", Psycopg),
    Kind("psycopg-dict_row", "postgresql", PsycopgDict),
    Kind("psycopg-autocommit", "postgresql", PsycopgAutocommit),
    Kind("psycopg-async", "postgresql", AsyncPsycopg),
    Kind("asyncpg", "postgresql", Asyncpg),
    Kind("asyncpg-pool", "postgresql", AsyncpgPool),
    Kind("sqlalchemy-Connection", "postgresql", _of(AlchemyConnection, "psycopg")),
    Kind("sqlalchemy-Session", "postgresql", _of(AlchemySession, "psycopg")),
    Kind("sqlalchemy-scoped_session", "postgresql", _of(AlchemyScoped, "psycopg")),
    Kind("sqlalchemy-AsyncConnection", "postgresql", _of(AlchemyAsyncConnection, "psycopg_async")),
    Kind("sqlalchemy-AsyncSession", "postgresql", _of(AlchemyAsyncSession, "psycopg_async")),
    Kind("sqlalchemy-asyncpg", "postgresql", _of(AlchemyAsyncConnection, "asyncpg")),
    Kind("sqlalchemy-asyncpg-Session", "postgresql", _of(AlchemyAsyncSession, "asyncpg")),
    Kind("sqlalchemy-async_scoped", "postgresql", _of(AlchemyAsyncScoped, "asyncpg")),
    Kind("django", "postgresql", _django(Django, "postgresql")),
    Kind("pymysql", "mysql", PyMysql),
    Kind("pymysql-DictCursor", "mysql", PyMysqlDict),
    Kind("asyncmy", "mysql", Asyncmy),
    Kind("sqlalchemy-Connection", "mysql", _of(AlchemyConnection, "pymysql", **_COMMITTED)),
    Kind("sqlalchemy-Session", "mysql", _of(AlchemySession, "pymysql", **_COMMITTED)),
    Kind("sqlalchemy-scoped_session", "mysql", _of(AlchemyScoped, "pymysql", **_COMMITTED)),
    Kind(
        "sqlalchemy-AsyncConnection", "mysql", _of(AlchemyAsyncConnection, "asyncmy", **_COMMITTED)
    ),
    Kind("sqlalchemy-AsyncSession", "mysql", _of(AlchemyAsyncSession, "asyncmy", **_COMMITTED)),
    Kind("django", "mysql", _django(DjangoMysql, "mysql", isolation_level="read committed")),
]


@contextmanager
def plain(backend: str, url: str) -> Iterator[Mine]:
    """The backend's plainest sync connection."""
    kind = next(kind for kind in KINDS if kind.backend == backend and not kind.is_async)
    mine = kind.cls(url)
    try:
        yield mine
    finally:
        mine.close()
