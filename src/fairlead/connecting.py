"""From a URL to a backend and to connections of our own."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from fairlead.backends.base import Backend
from fairlead.drivers.base import AsyncDriver, Listening, OwnDriver, Watching
from fairlead.errors import InvalidArgument

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,30}")
_URLS = "sqlite:///file.db, sqlite:// (in memory), postgresql://… or mysql://…"


@dataclass(frozen=True, slots=True)
class Options:
    """How our own connections behave; the same for every backend where it applies."""

    schema: str = "fairlead"
    pool_size: int = 10
    timeout: float = 5.0  # to connect, or to wait for SQLite's write lock
    synchronous: str = "FULL"  # SQLite only: "NORMAL" may lose the last commits on power loss
    prepare: bool = True  # PostgreSQL only: False behind PgBouncer in transaction mode
    listen: bool = True  # PostgreSQL only: False: sleepers poll, no LISTEN (so too if not prepare)


@dataclass(frozen=True, slots=True)
class Target:
    """One database: its backend, and how to open a connection to it."""

    backend: Backend
    open: Callable[[], OwnDriver]
    open_async: Callable[[], Awaitable[AsyncDriver]] | None  # None: run the sync one in a thread
    pool_size: int
    shown: str  # the URL without its password
    migrates_itself: bool = False
    watch: Callable[[], Watching] | None = None  # SQLite: see other connections' commits
    listen: Callable[[], Listening] | None = None  # PostgreSQL: be told
    listen_async: Callable[[], Awaitable[Any]] | None = None


def check_schema_name(schema: str) -> str:
    """The only identifier that is put into SQL texts."""
    if not _SCHEMA.fullmatch(schema):
        raise InvalidArgument(
            f"schema must match [a-z_][a-z0-9_]{{0,30}}, {schema!r} does not: it names tables"
        )
    return schema


def backend_for(dialect: str, schema: str = "fairlead") -> Backend:
    """A backend by its dialect: sqlite, postgresql, mysql (or mariadb)."""
    check_schema_name(schema)
    if dialect == "sqlite":
        if schema != "fairlead":
            raise InvalidArgument(
                "SQLite has no schemas: use another file for another installation"
            )
        return import_module("fairlead.backends.sqlite").SqliteBackend()
    if dialect in ("postgresql", "postgres"):
        return import_module("fairlead.backends.postgres").PostgresBackend(schema)
    if dialect in ("mysql", "mariadb"):
        return import_module("fairlead.backends.mysql").MysqlBackend(f"{schema}_")
    raise InvalidArgument(f"unknown dialect {dialect!r}: use sqlite, postgresql or mysql")


def target(url: str, options: Options) -> Target:
    """Read a URL. Nothing is opened yet."""
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"{url!r} is not a database URL: use {_URLS}")
    scheme, _, rest = url.partition(":")
    if "+" in scheme:
        scheme = scheme.split("+", 1)[0]
        raise InvalidArgument(f"write {scheme}:{_hide(rest)}: Fairlead picks the driver itself")
    if scheme == "sqlite":
        return _sqlite(url, options)
    if scheme in ("postgresql", "postgres"):
        return _postgres(url, options)
    if scheme in ("mysql", "mariadb"):
        return _mysql(url, options)
    raise InvalidArgument(f"{_hide(url)!r} is not a database URL: use {_URLS}")


def _hide(url: str) -> str:
    """The URL without its passwords, for people and logs."""
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
    path = path[1:] or ":memory:"
    synchronous = options.synchronous.upper()
    if synchronous not in ("FULL", "NORMAL"):
        raise InvalidArgument(f'synchronous must be "FULL" or "NORMAL", not {synchronous!r}')
    driver = import_module("fairlead.drivers.sqlite")

    def open() -> OwnDriver:
        return driver.SqliteDriver(
            driver.connect(path, synchronous=synchronous, timeout=options.timeout)
        )

    # One connection: SQLite has one writer, and waiting in Python is fair where its busy
    # handler, which sleeps and tries again, is not.
    watch = None if path == ":memory:" else lambda: driver.SqliteWatching(path)
    backend = backend_for("sqlite", options.schema)
    return Target(backend, open, None, 1, url, migrates_itself=True, watch=watch)


def _postgres(url: str, options: Options) -> Target:
    driver = _need("fairlead.drivers.psycopg", "'psycopg[binary]>=3.2'")
    listen = listen_async = None
    if options.listen and options.prepare:
        listening = import_module("fairlead.drivers.listening")
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
        port = parts.port or 3306
    except ValueError:  # its text may hold the password, taken for a port
        raise InvalidArgument(
            f"{_hide(url)!r} is no URL: look at its port, and write what is special in a password "
            "as %2F and the like"
        ) from None
    arguments: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": port,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": unquote(parts.path.removeprefix("/")),
        "unix_socket": dict(parse_qsl(parts.query)).get("unix_socket"),
        "timeout": options.timeout,
    }
    if not arguments["database"]:
        raise InvalidArgument(f"{_hide(url)!r} names no database: mysql://user@host/database")

    def open() -> OwnDriver:
        driver = _need("fairlead.drivers.pymysql", "pymysql")
        return driver.PyMysqlDriver(driver.connect(**arguments))

    async def open_async() -> AsyncDriver:
        driver = _need("fairlead.drivers.asyncmy", "asyncmy")
        return driver.AsyncmyDriver(await driver.connect(**arguments))

    return Target(
        backend_for("mysql", options.schema), open, open_async, options.pool_size, _hide(url)
    )
