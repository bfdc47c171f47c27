"""A backup that is taken while everybody works, and is put back later under the same clients: what
was committed in between is gone, and its numbers come again."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fairturn
from tests.campaign.cast import Cast
from tests.campaign.site import Site
from tests.campaign.world import QUEUES
from tests.server_process import find_binary, wait_until

PAGE = 1000
KINDS = ("sqlite", "postgresql", "mysql")


@dataclass(frozen=True)
class Restored:
    """No call was carried out by the old database after ``closed_at``, and none by the restored one
    before ``opened_at``."""

    closed_at: float
    opened_at: float
    messages: list[list[int]]  # the id and the delivery number of each that the backup has


class Backups:
    def __init__(self, site: Site, cast: Cast) -> None:
        self._site = site
        self._cast = cast
        self._file = cast.directory / "backup"

    def take(self) -> float:
        """Return a time soon after the moment of which the backup is."""
        return {"sqlite": self._copy, "postgresql": self._pg_dump, "mysql": self._mariadb_dump}[
            self._site.kind
        ]()

    def put_back(self) -> Restored:
        if self._site.kind == "sqlite":
            return self._write_over()
        for proxy in self._site.proxies:
            proxy.open_hole("lose")
            proxy.cut()
        self._end_sessions()
        self._site.server.create_database("campaign")  # the old one is dropped
        closed_at = time.monotonic()
        self._load()
        with self._site.connect() as db:
            messages = list_messages(db)
        self._all_notice()
        opened_at = time.monotonic()
        for proxy in self._site.proxies:
            proxy.heal()
            proxy.cut()
        return Restored(closed_at, opened_at, messages)

    def _all_notice(self) -> None:
        """Wait until each process has written a line since the database is closed: no answer of the
        old one is on its way any more."""
        sizes = self._cast.history_sizes()

        def grown() -> bool:
            now = self._cast.history_sizes()
            return all(now.get(name, 0) > size for name, size in sizes.items())

        wait_until(grown, "every process notices that the database is away")

    # --- SQLite: its backup API, both ways -------------------------------------------------------
    def _path(self) -> str:
        return self._site.url.removeprefix("sqlite:///")

    def _copy(self) -> float:
        with (
            contextlib.closing(sqlite3.connect(self._path(), timeout=30)) as source,
            contextlib.closing(sqlite3.connect(self._file)) as target,
        ):
            source.backup(target)
        return time.monotonic()

    def _write_over(self) -> Restored:
        """The first page locks the file; all others wait for that lock, and the last page commits.
        So it is closed in between."""
        times: list[float] = []
        with fairturn.connect(f"sqlite:///{self._file}") as db:
            messages = list_messages(db)

        def page(_status: int, _left: int, _pages: int) -> None:
            if not times:
                times.append(time.monotonic())
                self._all_notice()
            times[1:] = [time.monotonic()]

        with (
            contextlib.closing(sqlite3.connect(self._file)) as source,
            contextlib.closing(sqlite3.connect(self._path(), timeout=30)) as target,
        ):
            source.backup(target, pages=1, progress=page, sleep=0.05)
        return Restored(times[0], times[-1], messages)

    # --- servers ---------------------------------------------------------------------------------
    def _pg_dump(self) -> float:
        import psycopg

        with psycopg.connect(self._site.url) as session:
            session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            [snapshot] = session.execute("SELECT pg_export_snapshot()").fetchone() or ()
            taken_at = time.monotonic()
            words = ["--snapshot", snapshot, "-f", str(self._file), self._site.url]
            run("pg_dump", "postgresql-client", *words)
        return taken_at

    def _login(self) -> list[str]:
        return ["-uroot", "-h127.0.0.1", f"-P{self._site.server.port}"]

    def _mariadb_dump(self) -> float:
        words = [*self._login(), "--routines", "--single-transaction", "campaign"]
        self._file.write_bytes(run("mariadb-dump", "mariadb-client", *words))
        return time.monotonic()

    def _load(self) -> None:
        if self._site.kind == "postgresql":
            words = ["-qv", "ON_ERROR_STOP=1", "-f", str(self._file), self._site.url]
            run("psql", "postgresql-client", *words)
        else:
            run("mariadb", "mariadb-client", *self._login(), "campaign", stdin=self._file)

    def _end_sessions(self) -> None:
        """A statement of a client that is cut off may still run. (PostgreSQL ends it when the
        database is dropped.)"""
        if self._site.kind == "mysql":
            with contextlib.closing(self._site.server.connect("mysql")) as session:
                wait_until(lambda: self._kill_all(session), "all sessions end")

    def _kill_all(self, session: Any) -> bool:
        import pymysql

        cursor = session.cursor()
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = 'campaign'")
        found = [row[0] for row in cursor.fetchall()]
        for number in found:
            with contextlib.suppress(pymysql.MySQLError):  # it is gone already
                cursor.execute(f"KILL CONNECTION {number}")
        return not found


def list_messages(db: fairturn.Database) -> list[list[int]]:
    found: list[list[int]] = []
    for name in QUEUES:
        after = 0
        while page := db.queue(name).peek(PAGE, after=after):
            found += [[message.id, message.deliveries] for message in page]
            after = page[-1].id
    return found


def run(program: str, package: str, *words: str, stdin: Path | None = None) -> bytes:
    given = None if stdin is None else stdin.read_bytes()
    command = [find_binary(program, package), *words]
    return subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True).stdout
