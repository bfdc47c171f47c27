"""Promise 1: what was sent survives kill -9 of everything."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fairturn
from tests import servers

pytestmark = pytest.mark.server

MESSAGES = 20


@pytest.mark.parametrize("kind", [servers.Postgres, servers.Mysql], ids=lambda kind: kind.kind)
def test_what_was_sent_survives_kill_9_of_the_server(kind: type[servers.Server]) -> None:
    with kind() as server:
        url = server.create_database("durable")  # type: ignore[attr-defined]
        with fairturn.connect(url) as db:
            db.migrate()
            queue = db.queue("q")
            queue.create()
            for n in range(MESSAGES):
                queue.send(n)
            [gone, held] = queue.receive(2)
            gone.ack()
            server.kill9()
            server.start()
            assert [m.body for m in queue.peek(100)] == list(range(1, MESSAGES))
            held.ack()  # the lease was durable too
            assert (queue.stats().sent, queue.stats().acked) == (MESSAGES, 2)


def test_what_was_sent_survives_kill_9_of_the_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'durable.db'}"
    program = f"""
import os, signal
import fairturn

queue = fairturn.connect({url!r}).queue("q")
queue.create()
for n in range({MESSAGES}):
    queue.send(n)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    with fairturn.connect(url) as db:
        assert [m.body for m in db.queue("q").receive(100)] == list(range(MESSAGES))
