"""Several hosts in a MySQL URL."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

import fairturn
from fairturn.execution.hosts import Host, Hosts, read_hosts
from tests import servers


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", [("localhost", 3306)]),
        ("db", [("db", 3306)]),
        ("db:3307", [("db", 3307)]),
        ("a:1,b,[::1]:3", [("a", 1), ("b", 3306), ("::1", 3)]),
    ],
)
def test_read(text: str, hosts: list[tuple[str, int]]) -> None:
    assert read_hosts(text).hosts == hosts


@pytest.mark.parametrize("text", ["a:x", "a:1,b:99999", "a:1,b:2:3"])
def test_a_wrong_one(text: str) -> None:
    with pytest.raises(fairturn.InvalidArgument, match="check the port"):
        fairturn.connect(f"mysql://user@{text}/db")


def test_the_password_is_not_shown() -> None:
    url = "mysql://user:secret@a:1,b:2/db"
    with fairturn.connect(url) as db:
        assert repr(db) == "<Database mysql://user:***@a:1,b:2/db>"


def test_it_goes_on_with_the_host_that_answered() -> None:
    hosts = Hosts([Host("a", 1), Host("b", 2), Host("c", 3)])
    dead = {"a"}
    tried: list[str] = []

    def connect(host: str, port: int) -> str:
        tried.append(host)
        if host in dead:
            raise ConnectionRefusedError(f"{host} is dead")
        return host

    assert [hosts.connect(connect), hosts.connect(connect)] == ["b", "b"]
    assert tried == ["a", "b", "b"]  # the dead one is asked once, not for each connection
    dead |= {"b", "c"}
    with pytest.raises(ConnectionError, match="b:2: b is dead; c:3: c is dead; a:1: a is dead"):
        hosts.connect(connect)
    dead.clear()
    assert hosts.connect(connect) == "b"


@pytest.mark.server
def test_the_second_host_serves_if_the_first_is_dead() -> None:
    url = servers.mysql_url("hosts")
    there = urlsplit(url).netloc.removeprefix("root@")
    dead = f"127.0.0.1:{servers.free_port()}"
    both = url.replace(there, f"{dead},{there}")
    with fairturn.connect(both) as db:
        db.migrate()
        db.queue("hosts").create()

    async def main() -> list[str]:
        async with fairturn.connect_async(both) as db:
            return await db.queues()

    assert "hosts" in asyncio.run(main())
    with (
        fairturn.connect(url.replace(there, f"{dead},{dead}")) as db,
        pytest.raises(fairturn.DatabaseUnavailable, match=f"{dead}: .*; {dead}: "),
    ):
        db.queues()
