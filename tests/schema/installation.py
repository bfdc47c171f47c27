"""A database to migrate: its URL, plain SQL on it, and backends of other versions of Fairturn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import fairturn
from fairturn.backends.mysql import MysqlBackend
from fairturn.backends.postgres import PostgresBackend
from fairturn.backends.postgres.schema import MIGRATIONS
from fairturn.drivers.run import run
from tests import servers

SERVERS = ("postgresql", "mysql")
# What the first migrate of a database does: the same files on every engine.
TABLES = [migration.name for migration in MIGRATIONS]
ALL = [*TABLES, "routines"]


class Installation:
    def __init__(self, engine: str, url: str) -> None:
        self.engine = engine
        self.url = url
        self.installed = "fairturn.installed" if engine == "postgresql" else "fairturn_installed"

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """One statement of your own, committed."""
        return run_sql(self.engine, self.url, text)

    def backend(self, *texts: str) -> Any:
        """A backend whose routines are these files; without any: the present ones."""
        cls: Any = PostgresBackend if self.engine == "postgresql" else MysqlBackend
        backend = cls()
        if texts:
            backend.routine_texts = texts
        return backend

    def texts(self) -> tuple[str, ...]:
        return self.backend().routine_texts

    @contextmanager
    def driver(self) -> Iterator[Any]:
        target = fairturn.connect(self.url).target
        driver = target.open()
        try:
            yield driver
        finally:
            driver.close()

    def migrate(self, *texts: str) -> list[str]:
        with self.driver() as driver:
            return run(self.backend(*texts).migrate(), driver, own=True)

    def routines(self) -> set[str]:
        """The names of all routines that are there."""
        if self.engine == "postgresql":
            text = (
                "SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace('fairturn') "
                "ORDER BY 1"
            )
        else:
            text = (
                "SELECT SUBSTR(ROUTINE_NAME, 10) FROM information_schema.ROUTINES "
                "WHERE ROUTINE_SCHEMA = DATABASE()"
            )
        return {row[0] for row in self.sql(text)}

    def drop(self, routine: str) -> None:
        kind = "FUNCTION fairturn." if self.engine == "postgresql" else "PROCEDURE fairturn_"
        self.sql(f"DROP {kind}{routine}")

    def works(self) -> bool:
        """Does a message go in and come out?"""
        with fairturn.connect(self.url) as db:
            queue = db.queue("works")
            queue.create()
            queue.send(1)
            [message] = queue.receive()
            message.ack()
            return queue.stats().total == 0


def run_sql(engine: str, url: str, text: str) -> list[tuple[Any, ...]]:
    if engine == "postgresql":
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(text)  # type: ignore
            return cursor.fetchall() if cursor.description else []
    import pymysql

    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname, port=parts.port or 3306, user="root", database=parts.path[1:]
    )
    try:
        with connection.cursor() as cursor:
            cursor.execute(text)
            rows = list(cursor.fetchall())
        connection.commit()
        return rows
    finally:
        connection.close()


def new(engine: str, name: str) -> Installation:
    """An empty database."""
    make = servers.postgres_url if engine == "postgresql" else servers.mysql_url
    return Installation(engine, make(name))
