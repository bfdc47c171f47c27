"""A Patroni cluster changes its leader, by switchovers and by kill -9, while all parts of Fairturn
work: nothing that was acknowledged is lost if the cluster is synchronous, and every part goes on by
itself. `make failovers` does it twenty times and prints what it measures."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.clusters.load import LISTENERS, Load
from tests.clusters.patroni import Patroni
from tests.faults.crew import wait_until

FAILOVERS = int(os.environ.get("FAIRTURN_FAILOVERS", "2"))
pytestmark = [
    pytest.mark.deep,
    pytest.mark.server,
    pytest.mark.timeout(max(300, 60 + FAILOVERS * 60)),
    # An error in a thread of ours would only be printed.
    pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning"),
]
SWITCHOVER, KILL = "switchover", "kill -9"


@dataclass(slots=True)
class Fault:
    kind: str
    began: float
    led: float = 0.0  # there was a new leader
    sends: float = 0.0  # the longest pause
    receives: float = 0.0


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
    faults: list[Fault] = []
    with logs_on_failure(cluster), Load(front, cluster.direct_url("jobs"), tmp_path) as load:
        all_work(cluster, load)
        for turn in range(FAILOVERS):
            fault = Fault(SWITCHOVER if turn % 2 == 0 else KILL, time.monotonic())
            faults.append(fault)
            if fault.kind == KILL:
                if not cluster.synchronous:
                    fall_behind(cluster, load)
                cluster.kill9_leader()
            else:
                cluster.switchover()
            fault.led = time.monotonic()
            all_work(cluster, load)
            fault.sends, fault.receives = load.pauses(fault.began, time.monotonic())
            cluster.restart_dead()
            all_work(cluster, load)
        load.drain()
        report(cluster, load, faults)
        assert load.unexpected() == set()
        assert load.skipped() == set()
        if cluster.synchronous:
            assert load.lost() == set()
            assert load.unread() == set()
            assert load.asker.gone == 0
        else:
            assert load.lost(), "nothing was lost: would the test notice it?"
        assert load.worker.stop() == 0


def fall_behind(cluster: Patroni, load: Load) -> None:
    """The new leader will not have what is done from here on."""
    cluster.hold_back()
    load.wait_working(time.monotonic())


def all_work(cluster: Patroni, load: Load) -> None:
    """Every part works from now on, and those that wait are woken by the present leader."""
    load.wait_working(time.monotonic())
    wait_until(lambda: listeners(cluster) == LISTENERS, "all waiting parts listen")


def listeners(cluster: Patroni) -> int:
    """How many connections of Fairturn listen on the present leader."""
    with psycopg.connect(cluster.direct_url("jobs")) as own:
        row = own.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'fairturn' AND query LIKE 'LISTEN %'"
        ).fetchone()
    return 0 if row is None else row[0]


# --- what is printed ------------------------------------------------------------------------------


def report(cluster: Patroni, load: Load, faults: list[Fault]) -> None:
    """No test asks for a time: it would tell how busy the machine is."""
    print(
        f"\n{'synchronous' if cluster.synchronous else 'asynchronous'} cluster: "
        f"{len(load.sent())} sends acknowledged, {len(load.deliveries())} deliveries"
    )
    print(f"{'fault':10}  times  lost  twice  new leader       sends stop       receives stop")
    for kind in dict.fromkeys(fault.kind for fault in faults):
        print(row(kind, load, faults))
    print(
        f"{len(load.unexpected())} unexpected, {len(load.unread())} events not read, "
        f"{load.reader.twice} read twice, {load.reader.set_back} cursors lost, "
        f"{load.asker.gone} waits for what is gone"
    )
    for part in load.parts:
        kinds = sorted({type(error).__name__ for error in part.errors})
        print(f"  {part.name}: {len(part.times)} successes, {len(part.errors)} errors {kinds}")


def row(kind: str, load: Load, faults: list[Fault]) -> str:
    """What was lost or came twice belongs to the fault that followed, or went before."""
    begins = [fault.began for fault in faults]
    ends = [0.0, *(fault.led for fault in faults)]
    lost = again = 0
    for number, fault in enumerate(faults):
        if fault.kind == kind:
            lost += len(load.lost(ends[number], fault.led))
            following = begins[number + 1] if number + 1 < len(faults) else math.inf
            again += load.again(fault.began, following)
    mine = [fault for fault in faults if fault.kind == kind]
    times = "  ".join(
        f"{min(values):4.1f} to {max(values):4.1f} s"
        for values in (
            [fault.led - fault.began for fault in mine],
            [fault.sends for fault in mine],
            [fault.receives for fault in mine],
        )
    )
    return f"{kind:10}  {len(mine):5}  {lost:4}  {again:5}  {times}"
