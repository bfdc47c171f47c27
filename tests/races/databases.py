"""The databases under the races: connections, who waits for whom, and the locks of stop points."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import pymysql

from fairturn.backends.base import Backend
from fairturn.backends.sqlite import SqliteBackend
from fairturn.drivers.base import Driver
from fairturn.drivers.run import run
from tests import servers
from tests.races.stops import StoppingMysql, StoppingPostgres

Held = Mapping[int, Iterable[str]]  # sessions, and the stop points that are held for them
BLOCKED, STOPPED = "blocked", "stopped"
_migrated: set[str] = set()


class Database(Protocol):
    name: str
    backend: Backend

    def open(self) -> Driver:
        """A connection of our own."""
        ...

    def number(self, driver: Driver) -> int:
        """The session's number at the server."""
        ...

    def waiting(self, held: Held) -> dict[int, str]:
        """Which of these sessions wait for a lock, and of what kind."""
        ...

    def hold(self, driver: Driver, names: Iterable[str]) -> None:
        """From now on the session stops at these stop points."""
        ...

    def let_go(self, driver: Driver, names: Iterable[str]) -> None: ...

    def standing(self, driver: Driver, names: Iterable[str]) -> str:
        """At which of these points does the stopped session stand?"""
        ...

    def close(self) -> None: ...


class Postgres:
    name = "postgresql"

    def __init__(self, database: str = "races") -> None:
        import psycopg

        self.backend = StoppingPostgres()
        self.url = servers.postgres_url(database)
        self.watch = psycopg.connect(self.url, autocommit=True)
        self._pid = self.watch.info.backend_pid
        if self.url not in _migrated:
            driver = self.open()
            run(self.backend.migrate(), driver, own=True)
            driver.close()
            _migrated.add(self.url)

    def open(self) -> Any:
        from fairturn.drivers.psycopg import connect

        driver = connect(self.url, timeout=20, prepare=True)
        driver.execute("SET deadlock_timeout = '50ms'", ())
        driver.execute("SET synchronous_commit = off", ())  # a race is not about the disk
        driver.execute("SET statement_timeout = '60s'", ())  # a loop without end fails its test
        return driver

    def number(self, driver: Any) -> int:
        return driver.connection.info.backend_pid

    def waiting(self, held: Held) -> dict[int, str]:
        rows = self.watch.execute(
            "SELECT pid, pg_blocking_pids(pid) FROM unnest(%s::int[]) pid", (list(held),)
        ).fetchall()
        return {pid: STOPPED if self._pid in by else BLOCKED for pid, by in rows if by}

    def hold(self, driver: Any, names: Iterable[str]) -> None:
        names = list(names)
        driver.connection.execute("SELECT set_config('stops.names', %s, false)", (",".join(names),))
        for name in names:
            self.watch.execute(
                "SELECT pg_advisory_lock(hashtext(%s), %s)", (name, self.number(driver))
            )

    def let_go(self, driver: Any, names: Iterable[str]) -> None:
        for name in names:
            self.watch.execute(
                "SELECT pg_advisory_unlock(hashtext(%s), %s)", (name, self.number(driver))
            )

    def standing(self, driver: Any, names: Iterable[str]) -> str:
        [(name,)] = self.watch.execute(
            "SELECT n FROM pg_locks l JOIN unnest(%s::text[]) n "
            "ON l.classid = (hashtext(n)::bigint & 4294967295)::oid "
            "WHERE l.locktype = 'advisory' AND l.pid = %s AND NOT l.granted",
            (list(names), self.number(driver)),
        ).fetchall()
        return name

    def close(self) -> None:
        self.watch.close()


class Mysql:
    name = "mysql"

    def __init__(self, database: str = "races") -> None:
        self.backend = StoppingMysql()
        url = servers.mysql_url(database)
        parts = urlsplit(url)
        self._where: dict[str, Any] = {
            "host": parts.hostname,
            "port": parts.port,
            "user": parts.username,
            "database": parts.path[1:],
        }
        self.watch = self.open()
        # The status holds statements that are cut off in the middle of a character.
        self.status = pymysql.connect(**self._where, use_unicode=False, autocommit=True)
        if url not in _migrated:
            run(self.backend.migrate(), self.watch, own=True)
            _migrated.add(url)

    def open(self) -> Any:
        from fairturn.drivers.mysql.pymysql import PyMysqlDriver, connect

        return PyMysqlDriver(connect(**self._where, timeout=20))

    def number(self, driver: Any) -> int:
        return driver.connection.thread_id()

    def waiting(self, held: Held) -> dict[int, str]:
        found = {number: STOPPED for number in held if self._place(number, held[number])}
        if len(found) == len(held):
            return found
        # INNODB_TRX and INNODB_LOCK_WAITS are copies up to 100 ms old; the status is not.
        with self.status.cursor() as cursor:
            cursor.execute("SHOW ENGINE INNODB STATUS")
            status = cursor.fetchall()[0][2].decode(errors="replace")
        for block in status.split("---TRANSACTION ")[1:]:
            thread = re.search(r" thread id (\d+),", block)
            if thread and "\nLOCK WAIT " in block and int(thread[1]) in held:
                found.setdefault(int(thread[1]), BLOCKED)
        return found

    def _place(self, number: int, names: Iterable[str]) -> str | None:
        """The stop point where a session stands."""
        names = list(names)
        if not names:
            return None
        texts = ", ".join("IS_USED_LOCK(%s)" for _ in names)
        locks = [f"at {name}@{number}" for name in names]
        [owners] = self.watch.execute(f"SELECT {texts}", locks)
        return next((n for n, owner in zip(names, owners, strict=True) if owner == number), None)

    def hold(self, driver: Any, names: Iterable[str]) -> None:
        names = list(names)
        driver.execute(f"SET @stops_names = '{','.join(names)}'", ())
        for name in names:
            lock = f"{name}@{self.number(driver)}"
            assert self.watch.execute("SELECT GET_LOCK(%s, 10)", (lock,)) == [(1,)]

    def let_go(self, driver: Any, names: Iterable[str]) -> None:
        for name in names:
            self.watch.execute("SELECT RELEASE_LOCK(%s)", (f"{name}@{self.number(driver)}",))

    def standing(self, driver: Any, names: Iterable[str]) -> str:
        name = self._place(self.number(driver), names)
        assert name is not None, f"stands at none of {names}"
        return name

    def close(self) -> None:
        self.status.close()
        self.watch.close()


class Sqlite:
    """Two connections to one file. A statement that finds the file locked is tried again after the
    rival's next move (session.py), so there is nobody to ask who waits."""

    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self.backend = SqliteBackend()
        self._path = str(directory / "races.db")
        driver = self.open()
        run(self.backend.migrate(), driver, own=True)
        driver.close()

    def open(self) -> Any:
        from fairturn.drivers.sqlite import SqliteDriver, connect

        return SqliteDriver(connect(self._path, synchronous="NORMAL", timeout=0))

    def number(self, driver: Any) -> int:
        return id(driver)

    def waiting(self, held: Held) -> dict[int, str]:
        return {}

    def hold(self, driver: Any, names: Iterable[str]) -> None:
        assert not list(names), "SQLite has no functions to stop in"

    def let_go(self, driver: Any, names: Iterable[str]) -> None:
        pass

    def standing(self, driver: Any, names: Iterable[str]) -> str:
        raise AssertionError("nobody stops here")

    def close(self) -> None:
        pass


def busy_file(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname.startswith(
        "SQLITE_BUSY"
    )
