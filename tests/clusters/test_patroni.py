"""A Patroni cluster changes its leader, by switchovers and by kill -9, while all parts of Fairturn
work: nothing that was acknowledged is lost if the cluster is synchronous, and every part goes on by
itself. `make failovers` does it twenty times and prints what it measures."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.load import Load
from tests.clusters.patroni import Patroni

FAILOVERS = int(os.environ.get("FAIRTURN_FAILOVERS", "2"))
pytestmark = [
    pytest.mark.deep,
    pytest.mark.server,
    pytest.mark.timeout(max(300, 60 + FAILOVERS * 60)),
]


@pytest.fixture(params=["synchronous", "asynchronous"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Patroni]:
    with Patroni(synchronous=request.param == "synchronous") as cluster:
        yield cluster


@contextlib.contextmanager
def logs_on_failure(cluster: Patroni) -> Iterator[None]:
    try:
        yield
    except BaseException:
        print(cluster.logs())
        raise


def test_the_leader_changes(cluster: Patroni, tmp_path: Path) -> None:
    front = cluster.create_database("jobs")
    rows: list[str] = []
    with logs_on_failure(cluster), Load(front, cluster.direct_url("jobs"), tmp_path) as load:
        load.wait_working(time.monotonic())
        for turn in range(FAILOVERS):
            kill = turn % 2 == 1
            began = time.monotonic()
            if kill:
                cluster.kill9_leader()
            else:
                cluster.switchover()
            led = time.monotonic()
            load.wait_working(led)
            sends, receives = load.pauses(began, time.monotonic())
            cluster.restart_dead()
            load.wait_working(time.monotonic())
            rows.append(
                f"{'kill -9' if kill else 'switchover':10} new leader {led - began:5.1f} s, "
                f"longest pause of sends {sends:5.1f} s, of receives {receives:5.1f} s"
            )
        assert listeners(cluster), "nobody listens any more"
        load.drain()
        report(cluster, load, rows)
        assert load.unexpected() == set()
        if cluster.synchronous:
            assert load.lost() == set()
            assert load.unread() == set()
            assert load.asker.gone == 0
        assert load.worker.stop() == 0


def listeners(cluster: Patroni) -> int:
    """How many connections of Fairturn listen on the present leader."""
    import psycopg

    with psycopg.connect(cluster.direct_url("jobs")) as own:
        row = own.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'fairturn' AND query LIKE 'LISTEN %'"
        ).fetchone()
    return 0 if row is None else row[0]


def report(cluster: Patroni, load: Load, rows: list[str]) -> None:
    kind = "synchronous" if cluster.synchronous else "asynchronous"
    deliveries = load.deliveries()
    print(f"\n{kind}: {len(load.sent())} sends acknowledged, {len(deliveries)} deliveries")
    for row in rows:
        print(row)
    print(
        f"lost {len(load.lost())}, delivered twice {len(deliveries) - len(set(deliveries))}, "
        f"unexpected {len(load.unexpected())}, events not read {len(load.unread())}, "
        f"read twice {load.reader.twice}, waits for a message that is gone {load.asker.gone}"
    )
    for part in load.parts:
        kinds = sorted({type(error).__name__ for error in part.errors})
        print(f"  {part.name}: {len(part.times)} successes, {len(part.errors)} errors {kinds}")
