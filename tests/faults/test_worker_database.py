"""The database is killed and started again while workers and producers run (RELIABILITY F2): what
was confirmed is done, no worker ends, and they go on as soon as it accepts."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fairturn
from tests import servers
from tests.faults.crew import (
    FULL,
    LEASE,
    ROUNDS,
    Crew,
    Member,
    Producer,
    connection,
    effects,
    fresh_url,
    make_effects,
    percentiles,
    wait_until,
)

WORKERS = 3
KILLS = min(ROUNDS, 10) if ROUNDS < 1000 else 100
if not FULL:
    KILLS = 2
pytestmark = pytest.mark.timeout(max(300, KILLS * 30))


@pytest.fixture(params=[servers.Postgres, servers.Mysql])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param() as server:  # durable, as its maker ships it
        yield server


def resumed(member: Member, since: float) -> float | None:
    """Seconds until it first started a handler after that moment."""
    assert member.alive(), f"the worker has ended:\n{member.text()}"
    return next((note.at - since for note in member.starts() if note.at > since), None)


def lines(members: list[Member]) -> int:
    return max(len(member.log.read_text(errors="replace").splitlines()) for member in members)


def test_the_database_dies_and_comes_back(server: Any, tmp_path: Path, rng: random.Random) -> None:
    url = server.create_database("crew")
    with fairturn.connect(url) as db:
        db.migrate()
        for name in ("plain", "effect"):
            db.queue(name).create(lease=LEASE, max_attempts=0)
    make_effects(url)
    plain = Producer(url, "plain", ["plain", "plain_async"], keys=True)
    # A send that may have happened is not repeated: each number is at most one message.
    effect = Producer(url, "effect", ["effect", "effect_async"])
    after: list[float] = []
    outages: list[float] = []
    with Crew(url, tmp_path, {"queues": ["plain", "effect"], "concurrency": 6}) as crew:
        members = crew.start_ready(WORKERS)
        with plain, effect:
            before = lines(members)
            for _ in range(KILLS):
                wait_until(lambda: all(member.running() for member in members), "all have work")
                time.sleep(rng.uniform(0, 0.3))  # anywhere in what they do
                gone = time.monotonic()
                server.kill9()
                server.start()
                accepts = time.monotonic()
                outages.append(accepts - gone)
                wait_until(
                    lambda since=accepts: all(resumed(m, since) is not None for m in members),
                    "the workers go on",
                )
                after += [resumed(member, accepts) or 0.0 for member in members]
            said = lines(members) - before
            plain.stop()
            effect.stop()
        with fairturn.connect(url) as db:
            wait_until(lambda: db.stats().total == 0, "the queues are empty", 60)
            assert db.stats().killed == 0
        assert [member.stop() for member in members] == [0] * WORKERS
        check(url, crew, plain, effect)
    print(
        f"{server.kind}: {len(plain.sent) + len(effect.sent)} messages, {KILLS} kills, outages of "
        f"{min(outages):.1f} to {max(outages):.1f} s, {said} log lines of one worker, "
        f"{plain.errors + effect.errors} errors of the producers"
    )
    percentiles(f"{server.kind}: working again after", after)


def check(url: str, crew: Crew, plain: Producer, effect: Producer) -> None:
    assert plain.errors + effect.errors, "the database did not go away"
    ended = crew.notes.numbers("end")
    assert plain.sent - ended == set()
    found = effects(url)
    lost = effect.sent - found.keys()
    assert not lost
    assert found.keys() <= effect.sent | effect.maybe
    assert {n: times for n, times in found.items() if times != 1} == {}


@contextlib.contextmanager
def read_only(kind: str, url: str) -> Iterator[Any]:
    """The database takes no writes, as a primary that was demoted; connections end on the way."""
    name = url.rpartition("/")[2]
    begin, end = {
        "postgresql": (
            f"ALTER DATABASE {name} SET default_transaction_read_only = on",
            f"ALTER DATABASE {name} RESET default_transaction_read_only",
        ),
        "mysql": ("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"),
    }[kind]
    with connection(url) as raw:
        cursor = raw.cursor()
        cursor.execute(begin)
        try:
            if kind == "postgresql":  # it holds for new sessions
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            yield
        finally:
            cursor.execute("SET default_transaction_read_only = off" if "ALTER" in end else end)
            cursor.execute(end)


def as_somebody(url: str) -> str:
    """The same MariaDB database, made by somebody who is not root: root may always write."""
    name = url.rpartition("/")[2]
    servers._server("mysql").create_database(name)
    with connection(url) as raw:
        raw.cursor().execute("CREATE OR REPLACE USER crew@'127.0.0.1'")
        raw.cursor().execute(f"GRANT ALL ON {name}.* TO crew@'127.0.0.1'")
    theirs = url.replace("root@", "crew@")
    with fairturn.connect(theirs) as db:
        db.migrate()
    return theirs


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_the_database_becomes_a_standby(kind: str, tmp_path: Path) -> None:
    """And then a primary again: the worker takes it as an absence."""
    url = fresh_url(kind, tmp_path)
    theirs = url if kind == "postgresql" else as_somebody(url)
    with fairturn.connect(theirs) as db, Crew(theirs, tmp_path, {"queues": ["plain"]}) as crew:
        queue = db.queue("plain")
        queue.create(lease=LEASE, max_attempts=0)
        worker = crew.start_ready(1)[0]
        queue.send({"n": 1}, type="plain")
        wait_until(lambda: crew.notes.numbers("end") == {1}, "it works")
        with read_only(kind, url):
            wait_until(lambda: "the heartbeat fails" in worker.text(), "it notices")
            assert worker.alive()
        queue.send({"n": 2}, type="plain", key="once", on_conflict="ignore")
        wait_until(lambda: worker.alive() and queue.stats().total == 0, "it works again")
        assert crew.notes.numbers("end") == {1, 2}
        assert worker.stop() == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mysql"])
def test_somebody_drops_the_queue(kind: str, tmp_path: Path) -> None:
    """A mistake of somebody's, or a database that is restored from a backup: when the queue is
    there again, it works on."""
    url = fresh_url(kind, tmp_path)
    with fairturn.connect(url) as db, Crew(url, tmp_path, {"queues": ["plain", "long"]}) as crew:
        db.queue("plain").create(lease=LEASE)
        worker = crew.start_ready(1)[0]
        db.queue("plain").drop()
        wait_until(lambda: not worker.alive() or "plain" in worker.text(), "it notices")
        assert worker.alive()
        gate = tmp_path / "gate"
        gate.touch()
        db.queue("long").send({"n": 1, "gate": str(gate)}, type="long")
        wait_until(lambda: crew.notes.numbers("end") == {1}, "it serves the other one")
        db.queue("plain").create(lease=LEASE)
        db.queue("plain").send({"n": 2}, type="plain")
        wait_until(lambda: crew.notes.numbers("end") == {1, 2}, "it works again")
        assert worker.stop() == 0
