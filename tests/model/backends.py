"""The databases the model is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from fairturn.backends.base import Backend
from fairturn.drivers.base import Driver
from fairturn.drivers.run import run

Opened = tuple[Backend, Driver]
NAMES = ("sqlite", "postgresql", "mysql")


@dataclass(frozen=True)
class Target:
    name: str
    open: Callable[[], Opened]  # an empty, migrated database
    close: Callable[[Driver], None]


@contextmanager
def target(name: str) -> Iterator[Target]:
    if name == "sqlite":
        yield Target(name, _sqlite, lambda driver: driver.close())
        return
    backend, driver = _server(name)
    try:
        run(backend.migrate(), driver, True)

        def open() -> Opened:
            empty(backend, driver)
            return backend, driver

        yield Target(name, open, lambda driver: None)
    finally:
        driver.close()


def empty(backend: Backend, driver: Driver) -> None:
    """Leave nothing of the example before: a server's database is too dear to make anew."""
    for queue in run(backend.queues(None), driver, True):
        run(backend.queue_drop(queue["name"], 0), driver, True)
    for group in run(backend.groups(1000, 0), driver, True):
        run(backend.group_cancel(group[0], 0), driver, True)
    for permit in run(backend.permits(0), driver, True):
        run(backend.permit_close(permit.id, 0), driver, True)
    # Later than anything an example lives through, so that closed groups and events go, too.
    while run(backend.maintain(10_000, 4_000_000_000_000_000), driver, True)[4]:
        pass


def _sqlite() -> Opened:
    from fairturn.backends.sqlite import SqliteBackend
    from fairturn.drivers.sqlite import SqliteDriver, connect

    backend, driver = SqliteBackend(), SqliteDriver(connect(":memory:"))
    run(backend.migrate(), driver, True)
    return backend, driver


def _server(name: str) -> Opened:
    from tests import servers

    backend: Any
    driver: Any
    if name == "postgresql":
        from fairturn.backends.postgres import PostgresBackend
        from fairturn.drivers.psycopg import connect

        backend = PostgresBackend()
        driver = connect(servers.postgres_url("model"), timeout=10, prepare=True)
    else:
        from fairturn.backends.mysql import MysqlBackend
        from fairturn.drivers.mysql.pymysql import PyMysqlDriver, connect

        backend = MysqlBackend()
        url = urlsplit(servers.mysql_url("model"))
        connection = connect(
            host=url.hostname or "",
            port=url.port or 3306,
            user=unquote(url.username or ""),
            password=unquote(url.password or ""),
            database=unquote(url.path[1:]),
        )
        driver = PyMysqlDriver(connection)
    return backend, driver
