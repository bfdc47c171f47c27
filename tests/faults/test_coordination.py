"""Groups and batches under kill -9 and contention, in real processes on real servers.

The size is set by FAIRTURN_FAULTS (rounds); `make faults` runs the thousand, `make test` a smoke.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import fairturn
from tests import servers

ROUNDS = int(os.environ.get("FAIRTURN_FAULTS", "12"))
WORKERS = 8


class Worker:
    def __init__(self, url: str, queue: str, seed: int) -> None:
        self._command = [sys.executable, "-m", "tests.faults.worker", url, queue, str(seed)]
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.answer() == "ready"

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def again(self) -> None:
        self.end()
        self._start()


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'faults.db'}"
    return (
        servers.postgres_url("faults")
        if request.param == "postgresql"
        else (servers.mysql_url("faults"))
    )


@pytest.fixture
def db(url: str) -> Iterator[fairturn.Database]:
    with fairturn.connect(url) as db:
        db.migrate()
        yield db


@pytest.mark.timeout(3600)
def test_one_end_work_for_each_group(db: fairturn.Database, url: str) -> None:
    """Eight workers ack the last members at the same time; in every fourth round one of them is
    killed in the middle of it, and its member is worked on by another."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    queue = db.queue("last-acks")
    queue.create(max_attempts=0)
    workers = [Worker(url, queue.name, seed + i) for i in range(WORKERS)]
    try:
        for number in range(ROUNDS):
            name = f"group-{number}"
            group = db.group(name, queue.name, end=fairturn.Send({"end": name}, type="end"))
            group.send_many([fairturn.Send({"i": i}, type="member") for i in range(WORKERS)])
            assert group.start()
            victim = chance.choice(workers) if number % 4 == 3 else None
            for worker in workers:
                worker.tell("lease 0.5" if worker is victim else "lease 60")
            assert [worker.answer() for worker in workers] == ["1"] * WORKERS
            for worker in chance.sample(workers, WORKERS):
                worker.tell("ack")
                if worker is victim and chance.random() < 0.7:
                    worker.kill()
            if victim is not None:
                victim.kill()
            for worker in workers:
                if worker is not victim:
                    assert worker.answer() == "acked"
            if victim is not None:
                victim.again()
                for message in queue.receive(1, types=["member"], wait=0.1):
                    message.ack()
                status = group.status()
                while status is not None and not status.closed:
                    for message in queue.receive(1, types=["member"], wait=0.1):
                        message.ack()
                    status = group.status()
            status = group.wait(30)
            assert status is not None
            assert status.state == "ended", status
        ends = Counter(
            message.body["end"] for message in queue.receive(10_000, types=["end"], lease=600)
        )
        assert ends == Counter(f"group-{number}" for number in range(ROUNDS))
        assert queue.receive(1) == []
    finally:
        for worker in workers:
            worker.end()


@pytest.mark.timeout(3600)
def test_batches_in_opposite_orders(db: fairturn.Database, url: str) -> None:
    """No deadlock reaches a caller, whatever the orders."""
    each = ROUNDS * 5
    for name in ("a", "b", "c"):
        db.queue(f"batches-{name}").create()
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    workers = [Worker(url, "batches", seed + i) for i in range(2)]
    try:
        for worker in workers:
            worker.tell(f"batches {each}")
        assert [worker.answer() for worker in workers] == ["done", "done"]
    finally:
        for worker in workers:
            worker.end()
    assert db.queue("batches-a").stats().ready == 14
