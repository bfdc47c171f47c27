"""Read a database URL: which backend, and how to open connections of our own."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from fairturn.backends.base import Backend
from fairturn.core.errors import InvalidArgument
from fairturn.drivers.base import AsyncOwnDriver, Listening, OwnDriver, Watching
from fairturn.execution.hosts import read_hosts

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,30}")
_URLS = "sqlite:///file.db, sqlite:// (in memory), postgresql://… or mysql://…"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of connect(): how our own connections behave."""

    schema: str = "fairturn"
    pool_size: int = 10
    timeout: float = 5.0  # to connect, or to wait for SQLite's write lock
    synchronous: str = "FULL"  # SQLite only: "NORMAL" may lose the last commits on power loss
    prepare: bool = True  # PostgreSQL only: False behind PgBouncer in transaction mode
    listen: bool = True  # PostgreSQL only: False: poll instead of LISTEN (as with prepare=False)


@dataclass(frozen=True, slots=True)
class Target:
    """One database: its backend, and how to open its connections."""

    backend: Backend
    open: Callable[[], OwnDriver]
    open_async: Callable[[], Awaitable[AsyncOwnDriver]] | None  # None: use the sync one in a thread
    pool_size: int
    shown: str  # the URL without its password
    migrates_itself: bool = False
    watch: Callable[[], Watching] | None = None  # SQLite: notice commits of other connections
    listen: Callable[[], Listening] | None = None  # PostgreSQL: receive notifications
    listen_async: Callable[[], Awaitable[Any]] | None = None


def check_schema_name(schema: str) -> str:
    """Check the only name that is inserted into SQL texts."""
    if not _SCHEMA.fullmatch(schema):
        raise InvalidArgument(f"schema must match [a-z_][a-z0-9_]{{0,30}}: {schema!r} does not")
    return schema


def backend_for(dialect: str, schema: str = "fairturn") -> Backend:
    """Return the backend of a dialect: sqlite, postgresql, mysql (or mariadb)."""
    check_schema_name(schema)
    if dialect == "sqlite":
        if schema != "fairturn":
            raise InvalidArgument(
                "SQLite has no schemas: use another file for another installation"
            )
        from fairturn.backends.sqlite import SqliteBackend

        return SqliteBackend()
    if dialect in ("postgresql", "postgres"):
        from fairturn.backends.postgres import PostgresBackend

        return PostgresBackend(schema)
    if dialect in ("mysql", "mariadb"):
        from fairturn.backends.mysql import MysqlBackend

        return MysqlBackend(f"{schema}_")
    raise InvalidArgument(f"unknown dialect {dialect!r}: use sqlite, postgresql or mysql")


def migrations(dialect: str, *, schema: str = "fairturn") -> list[tuple[str, str]]:
    """Return the schema as ordered (name, SQL) pairs, for those who run migrations themselves."""
    return backend_for(dialect, schema).migrations()


def target(url: str, options: Options) -> Target:
    """Read a URL. No connection is opened yet."""
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"{url!r} is not a database URL: use {_URLS}")
    scheme, _, rest = url.partition(":")
    if "+" in scheme:
        scheme = scheme.split("+", 1)[0]
        raise InvalidArgument(f"write {scheme}:{_hide(rest)}: Fairturn picks the driver itself")
    if scheme == "sqlite":
        return _sqlite(url, options)
    if scheme in ("postgresql", "postgres"):
        return _postgres(url, options)
    if scheme in ("mysql", "mariadb"):
        return _mysql(url, options)
    raise InvalidArgument(f"{_hide(url)!r} is not a database URL: use {_URLS}")


def _hide(url: str) -> str:
    """Return the URL without its passwords, for people and logs."""
    url = re.sub(r"(//[^:/?#]*):.*@", r"\1:***@", url)
    return re.sub(r"([?&](?:password|passfile|sslpassword)=)[^&]*", r"\1***", url)


def _need(module: str, packages: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed: pip install {packages}", name=error.name
        ) from None


def _sqlite(url: str, options: Options) -> Target:
    if not url.startswith("sqlite://"):
        raise InvalidArgument(f"{url!r} is not a database URL: use {_URLS}")
    if "?" in url:
        raise InvalidArgument(
            f"{url!r}: a SQLite URL takes no parameters; options are arguments of connect()"
        )
    path = unquote(url.removeprefix("sqlite://"))
    if path and not path.startswith("/"):
        raise InvalidArgument(
            f"{url!r} has two slashes: a relative file has three (sqlite:///jobs.db), "
            "an absolute one four (sqlite:////var/lib/jobs.db)"
        )
    path = path.removeprefix("/") or ":memory:"
    synchronous = options.synchronous.upper()
    if synchronous not in ("FULL", "NORMAL"):
        raise InvalidArgument(f'synchronous must be "FULL" or "NORMAL", not {synchronous!r}')
    driver = import_module("fairturn.drivers.sqlite")

    def open() -> OwnDriver:
        return driver.SqliteDriver(
            driver.connect(path, synchronous=synchronous, timeout=options.timeout)
        )

    # One connection: SQLite has one writer. Callers wait for it in Python, in their order; SQLite's
    # own busy handler sleeps and tries again, which is not fair.
    watch = None if path == ":memory:" else lambda: driver.SqliteWatching(path)
    backend = backend_for("sqlite", options.schema)
    return Target(backend, open, None, 1, url, migrates_itself=True, watch=watch)


def _postgres(url: str, options: Options) -> Target:
    driver = _need("fairturn.drivers.psycopg", "'psycopg[binary]>=3.2'")
    listen = listen_async = None
    if options.listen and options.prepare:
        listening = import_module("fairturn.drivers.psycopg.notifications")
        arguments = (url, options.timeout, options.schema)
        listen = functools.partial(listening.PsycopgListening, *arguments)
        listen_async = functools.partial(listening.AsyncPsycopgListening.open, *arguments)
    return Target(
        backend_for("postgresql", options.schema),
        lambda: driver.connect(url, timeout=options.timeout, prepare=options.prepare),
        lambda: driver.connect_async(url, timeout=options.timeout, prepare=options.prepare),
        options.pool_size,
        _hide(url),
        listen=listen,
        listen_async=listen_async,
    )


def _mysql(url: str, options: Options) -> Target:
    try:
        parts = urlsplit(url)
        hosts = read_hosts(parts.netloc.rpartition("@")[2])
    except ValueError:  # its text may contain the password, read as a port
        raise InvalidArgument(
            f"{_hide(url)!r} is not a valid URL: check the port, and write special characters of a "
            "password as %2F, %40 and so on"
        ) from None
    arguments: dict[str, Any] = {
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": unquote(parts.path.removeprefix("/")),
        "unix_socket": dict(parse_qsl(parts.query)).get("unix_socket"),
        "timeout": options.timeout,
    }
    if not arguments["database"]:
        raise InvalidArgument(f"{_hide(url)!r} names no database: mysql://user@host/database")

    def open() -> OwnDriver:
        driver = _need("fairturn.drivers.mysql.pymysql", "pymysql")
        connect = functools.partial(driver.connect, **arguments)
        return driver.PyMysqlDriver(hosts.connect(connect))

    async def open_async() -> AsyncOwnDriver:
        driver = _need("fairturn.drivers.mysql.asyncmy", "asyncmy")
        connect = functools.partial(driver.connect, **arguments)
        return driver.AsyncmyDriver(await hosts.connect_async(connect))

    return Target(
        backend_for("mysql", options.schema), open, open_async, options.pool_size, _hide(url)
    )
