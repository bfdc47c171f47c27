"""The supervisor with processes that misbehave, the sources it watches, and the sums it keeps."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from pathlib import Path

import pytest

from fairturn.observe.worker_metrics import Metrics
from fairturn.supervision import supervisor as module
from fairturn.supervision.reload import Sources
from fairturn.supervision.supervisor import Supervisor

SECONDS = 60.0


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


async def until(records: pytest.LogCaptureFixture, pattern: str, times: int = 1) -> list[str]:
    async with asyncio.timeout(SECONDS):
        while len(found := re.findall(pattern, records.text)) < times:
            await asyncio.sleep(0.02)
    return found


def test_the_pauses_between_deaths_grow(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACKOFF", (0.1, 0.4))
    caplog.set_level(logging.INFO)

    async def main() -> int:
        supervisor = Supervisor(lambda _: python("raise SystemExit(7)"), 1, grace=1)
        running = asyncio.create_task(supervisor.run())
        await until(caplog, "ended with exit code 7", times=5)
        supervisor.signalled()
        return await running

    assert asyncio.run(main()) == 0
    assert re.findall(r"replaced in (\S+) s", caplog.text)[:5] == [
        "0.1",
        "0.2",
        "0.4",
        "0.4",
        "0.4",
    ]


def test_a_program_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> int:
        supervisor = Supervisor(lambda _: ["/nowhere/python"], 1, grace=1)
        running = asyncio.create_task(supervisor.run())
        await until(caplog, "process 1 could not be started: .*No such file")
        assert supervisor.ready() == (False, "process 1 of 1 is not running")
        supervisor.signalled()
        return await running

    assert asyncio.run(main()) == 0


DEAF = """
import os, signal, socket, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
line = socket.socket(fileno=int(os.environ["FAIRTURN_SUPERVISOR"].split(",")[0]))
line.sendall(b'{"hello": {}}\\n')
print("deaf", flush=True)
time.sleep(600)
"""


def test_a_process_that_does_not_leave_is_killed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MARGIN", 0.2)

    async def main() -> int:
        greeted = asyncio.Event()
        supervisor = Supervisor(lambda _: python(DEAF), 1, grace=0.1, hello=lambda _: greeted.set())
        running = asyncio.create_task(supervisor.run())
        await greeted.wait()
        supervisor.signalled()
        return await running

    assert asyncio.run(main()) == 1
    assert "does not stop: killed" in caplog.text


def test_a_third_signal_kills(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[tuple[int, str]] = []

    async def main() -> int:
        supervisor = Supervisor(
            lambda _: python(DEAF),
            1,
            grace=600,
            output=lambda number, line: lines.append((number, line)),
        )
        running = asyncio.create_task(supervisor.run())
        async with asyncio.timeout(SECONDS):
            while not lines:
                await asyncio.sleep(0.02)
        for _ in range(3):
            supervisor.signalled()
        return await running

    assert asyncio.run(main()) == 1
    assert lines == [(1, "deaf")]
    assert "does not stop: killed" in caplog.text


def test_sources(tmp_path: Path) -> None:
    for name in ("shop.py", "pkg/inner.py", "notes.txt", ".git/hook.py", "env/pyvenv.cfg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    sources = Sources(tmp_path)
    assert sources.changed() == []
    (tmp_path / "shop.py").write_text("12")
    assert sources.changed() == ["shop.py"]
    (tmp_path / "pkg/inner.py").unlink()
    (tmp_path / "pkg/other.py").write_text("")
    assert sources.changed() == ["pkg/inner.py", "pkg/other.py"]
    for name in ("notes.txt", ".git/hook.py", "env/lib.py"):
        (tmp_path / name).write_text("123")
    assert sources.changed() == []


def test_sums_of_processes_that_have_ended() -> None:
    one, other = Metrics(), Metrics()
    for metrics in (one, other):
        metrics.tasks["emails", "welcome"].add("ack", False, 0.002)
        metrics.tasks["emails", "welcome"].add("fail", True, 7.0)
        metrics.received["emails"] = 2
        metrics.lost_acks["emails"] = 1
        metrics.receives, metrics.database_errors = 5, 1
    other.tasks["emails", "report"].add("complete", False, 1.0)
    past = Metrics()
    past.add(one.snapshot())
    past.add(other.snapshot())
    told = past.snapshot()
    assert (told["received"], told["lost_acks"]) == ({"emails": 4}, {"emails": 2})
    assert (told["receives"], told["database_errors"]) == (10, 2)
    [welcome, report] = told["tasks"]
    assert welcome[2] == [2, 0, 0, 0, 2, 0, 0]
    assert sum(welcome[3]) == 4
    assert welcome[4] == pytest.approx(14.004)
    assert report[:2] == ["emails", "report"]
