"""SIGTERM (RELIABILITY F10): exit code 0, and nothing has to wait for a lease to expire. The leases
here last a minute, so what a worker leaves behind would be seen."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

import fairturn
from tests import servers
from tests.faults.crew import (
    ROUNDS,
    Crew,
    Producer,
    fresh_url,
    percentiles,
    wait_until,
)
from tests.faults.proxy import Proxy

KINDS = ["sqlite", "postgresql", "mysql"]
LEASE = 60.0
pytestmark = pytest.mark.timeout(max(300, ROUNDS * 5))


@pytest.mark.parametrize("kind", KINDS)
def test_under_load(kind: str, tmp_path: Path, rng: random.Random) -> None:
    """During a claim, an ack, a handler: nothing is leased any more when the process has ended."""
    url = fresh_url(kind, tmp_path)
    with fairturn.connect(url) as db:
        queue = db.queue("plain")
        queue.create(lease=LEASE, max_attempts=1)
        producer = Producer(url, "plain", ["plain", "plain_async"], seconds=0.005)
        with Crew(url, tmp_path, {"queues": ["plain"], "concurrency": 4}) as crew, producer:
            for _ in range(ROUNDS):
                worker = crew.start()
                wait_until(lambda one=worker: one.ready() and one.starts(), "it has work")
                time.sleep(rng.uniform(0, 0.1))  # anywhere in what it does
                assert worker.stop() == 0, worker.text()
                assert queue.stats().leased == 0
            worker = crew.start()
            producer.stop()
            wait_until(lambda: queue.stats().total == 0, "the queue is empty")
            assert worker.stop() == 0
            # Each was done once, though a second attempt would have been its death.
            assert sorted(note.n for note in crew.notes.of("end")) == sorted(producer.sent)


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_not_started_goes_back_at_once(kind: str, tmp_path: Path) -> None:
    url = fresh_url(kind, tmp_path)
    with (
        fairturn.connect(url) as db,
        Crew(url, tmp_path, {"queues": ["long"], "concurrency": 2, "grace": 60}) as crew,
    ):
        queue = db.queue("long")
        queue.create(lease=LEASE)
        # Quick ones teach the worker to fetch ahead; then come slow ones.
        gate, closed = tmp_path / "open", tmp_path / "closed"
        gate.touch()
        many = [{"n": n, "gate": str(gate)} for n in range(100)]
        many += [{"n": n, "gate": str(closed)} for n in range(100, 140)]
        queue.send_many([fairturn.Send(body, type="long_async") for body in many])
        worker = crew.start()
        wait_until(lambda: len(worker.running()) == 2, "it works")
        worker.send(signal.SIGSTOP)  # so that what it holds is what we see
        assert queue.stats().leased > 2
        worker.send(signal.SIGTERM)
        told = worker.send(signal.SIGCONT)
        wait_until(lambda: queue.stats().leased == 2, "it has given back what waited")
        percentiles(f"{kind}: what had not started was visible after", [time.monotonic() - told])
        assert len(worker.running()) == 2
        closed.touch()
        assert worker.process.wait(60) == 0
        stats = queue.stats()
        assert (stats.leased, stats.ready, stats.acked) == (0, 38, 102)


@pytest.mark.parametrize(
    ("kind", "type"),
    [
        ("sqlite", "plain"),
        ("sqlite", "process_work"),
        ("postgresql", "long"),
        ("postgresql", "long_async"),
        ("mysql", "long"),
        ("mysql", "long_async"),
    ],
)
def test_twice(kind: str, type: str, tmp_path: Path) -> None:
    """The second signal gives back what runs, whether it listens or sleeps for an hour."""
    name = {"plain": "plain", "process_work": "process"}.get(type, "long")
    body = (
        {"n": 1, "gate": str(tmp_path / "never")} if name == "long" else {"n": 1, "seconds": 3600}
    )
    url = fresh_url(kind, tmp_path)
    with (
        fairturn.connect(url) as db,
        Crew(url, tmp_path, {"queues": [name], "concurrency": 4, "grace": 3600}) as crew,
    ):
        queue = db.queue(name)
        queue.create(lease=LEASE)
        queue.send(body, type=type)
        worker = crew.start()
        wait_until(lambda: crew.notes.of("start"), "it works")
        worker.send(signal.SIGTERM)
        wait_until(worker.heard, "the first signal has come")
        worker.send(signal.SIGTERM)
        assert worker.process.wait(60) == 0, worker.text()
        stats = queue.stats()
        assert (stats.leased, stats.ready, stats.failed) == (0, 1, 0)
        assert {message.attempts for message in queue.peek(1)} == {0}


def test_a_signal_to_the_whole_group(tmp_path: Path) -> None:
    """systemd and terminals signal every process: those that run handlers finish them all the same,
    when the worker does so."""
    url = fresh_url("sqlite", tmp_path)
    options = {"queues": ["process"], "concurrency": 2, "grace": 60}
    with fairturn.connect(url) as db, Crew(url, tmp_path, options) as crew:
        queue = db.queue("process")
        queue.create(lease=LEASE)
        queue.send({"n": 1, "seconds": 1.0}, type="process_work")
        worker = crew.start()
        wait_until(lambda: crew.notes.of("start"), "it works")
        for pid in {worker.pid, *(note.pid for note in crew.notes.of("start"))}:
            os.kill(pid, signal.SIGTERM)
        assert worker.process.wait(60) == 0
        stats = queue.stats()
        assert (stats.total, stats.acked, stats.failed) == (0, 1, 0)


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_without_the_database(kind: str, tmp_path: Path) -> None:
    """It ends, though nobody answers it."""
    url = fresh_url(kind, tmp_path)
    with (
        Proxy(servers.shared(kind)["port"]) as proxy,
        fairturn.connect(url) as db,
        Crew(url, tmp_path, {"queues": ["plain"], "concurrency": 4, "grace": 1}) as crew,
    ):
        queue = db.queue("plain")
        queue.create(lease=10)  # the database may take 5 s to answer, then
        worker = crew.start(proxy.url(url))
        for n in range(100):
            queue.send({"n": n, "seconds": 0.02}, type="plain")
        wait_until(lambda: worker.running(), "it works")
        proxy.open_hole("lose")
        told = worker.send(signal.SIGTERM)
        assert worker.process.wait(60) == 0, worker.text()
        percentiles(f"{kind}: left a black hole after", [time.monotonic() - told])
