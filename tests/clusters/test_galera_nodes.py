"""Galera: a node that has lost the others, and what ``fairturn doctor`` says about a cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

import fairturn
from fairturn import doctor
from tests.clusters.galera import Galera
from tests.server_process import wait_until

pytestmark = [pytest.mark.deep, pytest.mark.server]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Galera]:
    with Galera() as cluster:
        cluster.create_database("jobs")
        with fairturn.connect(cluster.url(0, "jobs")) as db:
            db.migrate()
            db.queue("q").create(lease=120)
        yield cluster


@contextlib.contextmanager
def alone(cluster: Galera, number: int) -> Iterator[None]:
    """Cut a node off from the others. It runs, and refuses every statement."""
    node = cluster.nodes[number]

    def isolate(value: int) -> None:
        with contextlib.closing(node._plain()) as link:
            link.cursor().execute(f"SET GLOBAL wsrep_provider_options = 'gmcast.isolate={value}'")

    isolate(1)
    try:
        wait_until(lambda: node.status("wsrep_ready") == "OFF", "the node loses the others")
        yield
    finally:
        isolate(0)
        cluster.wait_for_size(3)


def first(cluster: Galera, number: int) -> str:
    """A URL with all hosts, this node first."""
    hosts = [urlsplit(url).netloc.removeprefix("root@") for url in cluster.urls("jobs")]
    return f"mysql://root@{','.join(hosts[number:] + hosts[:number])}/jobs"


def test_a_client_leaves_a_node_that_has_lost_the_others(cluster: Galera) -> None:
    with fairturn.connect(first(cluster, 2)) as db, fairturn.connect(cluster.url(2, "jobs")) as one:
        queue = db.queue("q")
        queue.send(0, key="before")
        one.queue("q").send(0, key="before too")
        with alone(cluster, 2):
            # A send with a key can be repeated: nobody notices.
            assert queue.send(1, key="k", on_conflict="ignore").outcome == "sent"
            with pytest.raises(fairturn.DatabaseUnavailable):
                one.queue("q").send(2, key="l", on_conflict="ignore")
            assert [m.key for m in queue.peek(10)] == ["before", "before too", "k"]
        assert one.queue("q").send(3, key="l", on_conflict="ignore").outcome == "sent"
        assert len(queue.receive(10)) == 4


def test_an_async_client_leaves_it_too(cluster: Galera) -> None:
    async def main() -> None:
        async with (
            fairturn.connect_async(first(cluster, 2)) as db,
            fairturn.connect_async(cluster.url(2, "jobs")) as one,
        ):
            queue = db.queue("q")
            await queue.send(0, key="a before")
            await one.queue("q").send(0, key="a before too")
            with alone(cluster, 2):
                sent = await queue.send(1, key="a", on_conflict="ignore")
                assert sent.outcome == "sent"
                with pytest.raises(fairturn.DatabaseUnavailable):
                    await one.queue("q").send(2, key="b", on_conflict="ignore")
            sent = await one.queue("q").send(3, key="b", on_conflict="ignore")
            assert sent.outcome == "sent"
            assert len(await queue.receive(10)) == 4

    asyncio.run(main())


def test_our_sessions(cluster: Galera) -> None:
    """A node that runs a CALL again by itself may have sent rows already."""
    ask = "SELECT @@session.wsrep_sync_wait, @@session.wsrep_retry_autocommit"
    with fairturn.connect(cluster.url(0, "jobs")) as db:
        driver = db.target.open()
        try:
            assert driver.execute(ask, ()) == [(7, 0)]
        finally:
            driver.close()

        async def main() -> None:
            assert db.target.open_async is not None
            driver = await db.target.open_async()
            try:
                assert await driver.execute(ask, ()) == [(7, 0)]
            finally:
                await driver.close()

        asyncio.run(main())


def test_doctor_knows_the_cluster(cluster: Galera) -> None:
    with fairturn.connect(cluster.url(1, "jobs")) as db:
        found = {finding.check: finding for finding in doctor.examine(db)}
    assert found["cluster"].what == "a Galera cluster of 3 nodes; this one is synced"
    assert found["cluster settings"].level == "ok"
    assert "majority" not in found
    assert "wsrep_retry_autocommit is 1" in found["your connections"].what
