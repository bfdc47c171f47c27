"""Celery with its SQS broker: a sender here, and a worker as people start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.clients.serving import Served
from tests.clients.test_boto3 import counts
from tests.server.serve_programs import SECONDS, wait_for

PREFIX = "celery-"  # of its queues, as celery_app.py says
SENDER = """
    import time
    from tests.clients.celery_app import add, hopeless, later, moody, ordered

    for n in range(30):
        add.delay(n, 1)
    moody.delay("grüße €")
    hopeless.delay()
    later.apply_async((time.time(),), countdown=2)
    add.apply_async((1000, 0), DelaySeconds=1, MessageGroupId="tenant")
    for n in range(5):
        ordered.apply_async((n,), queue="orders.fifo", MessageGroupId="g")
"""


class Worker:
    """``celery worker``, two processes; its log is in a file."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "celery", "-A", "tests.clients.celery_app", "worker"]
        command += ["-c", "2", "-Q", "tasks,orders.fifo", "--loglevel", "INFO"]
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )

    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def wait_for(self, met: Any) -> None:
        def met_or_ended() -> bool:
            assert self.process.poll() is None, f"the worker has ended:\n{self.log()}"
            return met()

        wait_for(met_or_ended, lambda: f"not done:\n{self.log()}")

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(SECONDS) == 0, self.log()


@contextmanager
def worker(environment: dict[str, str], log: Path) -> Iterator[Worker]:
    one = Worker(environment, log)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def noted(file: Path) -> dict[str, list[Any]]:
    """The values of each kind of note, in order of time, and when."""
    found: dict[str, list[Any]] = {}
    lines = file.read_text().splitlines() if file.exists() else []
    for line in lines:
        entry = json.loads(line)
        found.setdefault(entry["what"], []).append((entry["value"], entry["at"]))
    return found


def values(file: Path, what: str) -> list[Any]:
    return [value for value, _ in noted(file).get(what, [])]


def test_celery(served: Served, sqs: Any, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    environment = {**os.environ, "CLIENTS_NOTES": str(notes), "CLIENTS_URL": served.url}
    with worker(environment, tmp_path / "worker.log") as one:
        sent = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(SENDER)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (sent.returncode, sent.stdout, sent.stderr) == (0, "", "")
        urls = [
            sqs.get_queue_url(QueueName=PREFIX + name)["QueueUrl"]
            for name in ("tasks", "orders.fifo")
        ]

        def done() -> bool:
            return sum(map(len, noted(notes).values())) >= 42 and not any(
                sum(counts(sqs, url)) for url in urls
            )

        one.wait_for(done)
        one.stop()
    assert sorted(values(notes, "add")) == [*range(1, 31), 1000]
    assert values(notes, "moody") == [["grüße €", n] for n in range(3)]
    assert values(notes, "hopeless") == [None, None]
    # Celery itself deals the messages of a group to its processes.
    assert sorted(values(notes, "ordered")) == list(range(5))
    ((asked, at),) = noted(notes)["later"]
    assert at - asked >= 2, "it did not wait for its countdown"

    said = one.log()
    assert said.count("ERROR") == 1, said  # hopeless
    assert "consumer: Cannot connect" not in said, said
    refused = [
        line for line in served.logged() if line.get("status", 200) not in (200, 499)
    ]  # 499: the polls that were open when it left
    assert not refused, refused
