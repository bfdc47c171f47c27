"""A server that takes connections and says nothing, from the start or in the middle of opening one:
`timeout` is the longest that opening takes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import fairturn
from fairturn.core.errors import DatabaseUnavailable
from fairturn.drivers.psycopg.notifications import AsyncPsycopgListening, PsycopgListening
from tests import servers
from tests.faults.crew import fresh_url
from tests.faults.proxy import Proxy

KINDS = ["postgresql", "mysql"]


@pytest.fixture(params=KINDS)
def mute(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server that says nothing at all."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"{request.param}://me@127.0.0.1:{listening.getsockname()[1]}/mine"


async def queues(url: str) -> None:
    async with fairturn.connect_async(url, timeout=1) as db:
        await db.queues()


def test_from_the_start(mute: str) -> None:
    with (
        fairturn.connect(mute, timeout=1) as db,
        pytest.raises(DatabaseUnavailable, match=r"cannot connect to .*: .+"),
    ):
        db.queues()


def test_from_the_start_async(mute: str) -> None:
    with pytest.raises(DatabaseUnavailable, match=r"cannot connect to .*: .+"):
        asyncio.run(queues(mute))


# --- when the connection is made, and we say how we want it ---------------------------------------
@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    url = fresh_url("mysql", tmp_path)
    with Proxy(servers.shared("mysql")["port"]) as proxy:
        proxy.lose_from(b"innodb_lock_wait_timeout")
        yield proxy.url(url)


@pytest.mark.server
def test_mysql_at_the_settings(silent: str) -> None:
    with fairturn.connect(silent, timeout=1) as db, pytest.raises(DatabaseUnavailable):
        db.queues()


@pytest.mark.server
def test_mysql_at_the_settings_async(silent: str) -> None:
    with pytest.raises(DatabaseUnavailable):
        asyncio.run(queues(silent))


@pytest.mark.server
def test_mysql_a_statement_may_take_longer_than_opening(tmp_path: Path) -> None:
    with (
        fairturn.connect(fresh_url("mysql", tmp_path), timeout=3) as db,
        db._runner.transaction() as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT SLEEP(3.3)")


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[str]:
    url = fresh_url("postgresql", tmp_path)
    with Proxy(servers.shared("postgresql")["port"]) as proxy:
        proxy.lose_from(b"LISTEN")
        yield proxy.url(url)


@pytest.mark.server
def test_postgresql_at_listen(deaf: str) -> None:
    with pytest.raises(ConnectionError):
        PsycopgListening(deaf, 1, "fairturn")


@pytest.mark.server
def test_postgresql_at_listen_async(deaf: str) -> None:
    with pytest.raises(ConnectionError):
        asyncio.run(AsyncPsycopgListening.open(deaf, 1, "fairturn"))
