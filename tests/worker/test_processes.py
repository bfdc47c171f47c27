"""Handlers in processes of their own: results, errors, deaths, time-outs, and no process left."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator

import pytest

import fairturn
from tests.worker import process_app
from tests.worker.bench import PATIENCE, Bench, eventually

# What a process does with its message is the same everywhere; that it reaches its database is not.
ONE_BACKEND = pytest.mark.parametrize("backend", ["sqlite"])


@pytest.fixture
def app(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[fairturn.App]:
    """The module's app on the test's database, for us and for the processes we start."""
    monkeypatch.setenv("FAIRTURN_TEST_URL", bench.url)
    monkeypatch.setattr(process_app.app, "url", bench.url)
    monkeypatch.setattr(bench, "app", process_app.app)
    monkeypatch.setattr(bench, "name", process_app.QUEUE)
    yield process_app.app
    deadline = time.monotonic() + PATIENCE  # one that was told to end may still be ending
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert multiprocessing.active_children() == []


async def test_results_errors_and_signals(bench: Bench, app: fairturn.App) -> None:
    async with bench.worker(concurrency=2):
        sent = [await process_app.where.send_async(n) for n in range(6)]
        found = [(await process_app.where.wait_async(one, PATIENCE)).result for one in sent]
        assert [n for n, _, _ in found] == list(range(6))
        assert os.getpid() not in {pid for _, pid, _ in found}
        assert len({pid for _, pid, _ in found}) <= 2  # they are used again
        assert {marked for _, _, marked in found} == {True}

        one = await process_app.where_async.send_async(5)
        n, pid = (await process_app.where_async.wait_async(one, PATIENCE)).result
        assert n == 5
        assert pid != os.getpid()

        one = await process_app.fails.send_async("näh")
        outcome = await process_app.fails.wait_async(one, PATIENCE)
        assert outcome.error == "ValueError: näh"
        assert await bench.failures(one) == ["ValueError: näh"] * 2

        one = await process_app.signals.send_async()
        outcome = await process_app.signals.wait_async(one, PATIENCE)
        assert (outcome.state, outcome.error) == ("dead", "memo ['pid']")

        one = await process_app.progresses.send_async()
        assert (await process_app.progresses.wait_async(one, PATIENCE)).result == 1

        one = await process_app.in_transaction.send_async(bench.name)
        await eventually(bench.empty)
        assert bench.effects() == [1]
        bench.sql(f"DELETE FROM effect WHERE queue = '{bench.name}'")


@ONE_BACKEND
async def test_a_process_that_dies_takes_nobody_with_it(bench: Bench, app: fairturn.App) -> None:
    async with bench.worker(concurrency=4):
        texts = {"exit": "exit code 7", "kill": "SIGKILL", "segfault": "SIGSEGV"}
        texts["real-time signal"] = "signal 35"  # it has no name in Python
        dying = {how: await process_app.dies.send_async(how) for how in texts}
        neighbours = [await process_app.where.send_async(n) for n in range(10)]
        for how, sent in dying.items():
            outcome = await process_app.dies.wait_async(sent, PATIENCE)
            assert outcome.state == "dead"
            assert texts[how] in outcome.error
            assert len(await bench.failures(sent)) == 3
        for n, sent in enumerate(neighbours):
            assert (await process_app.where.wait_async(sent, PATIENCE)).result[0] == n
            assert await bench.failures(sent) == []
        sent = await process_app.here.send_async()
        assert (await process_app.here.wait_async(sent, PATIENCE)).result == os.getpid()


@ONE_BACKEND
async def test_a_process_that_takes_too_long_is_ended(bench: Bench, app: fairturn.App) -> None:
    async with bench.worker(concurrency=1) as worker:
        sent = await process_app.endless.send_async()
        outcome = await process_app.endless.wait_async(sent, PATIENCE)
        assert outcome.error == "TaskTimeout: endless took longer than 0.2 s"
        sent = await process_app.where.send_async(1)  # in a new process
        assert (await process_app.where.wait_async(sent, PATIENCE)).result[0] == 1
        await eventually(lambda: worker.plan.running == 0)


@ONE_BACKEND
async def test_a_process_may_ask_for_more_time(bench: Bench, app: fairturn.App) -> None:
    async with bench.worker(concurrency=1):
        sent = await process_app.extends.send_async()
        outcome = await process_app.extends.wait_async(sent, PATIENCE)
    assert (outcome.state, outcome.result, outcome.error) == ("done", True, None)


@ONE_BACKEND
async def test_a_process_that_died_between_two_messages_is_nobodys_failure(
    bench: Bench, app: fairturn.App
) -> None:
    async with bench.worker(concurrency=1):
        for n in range(3):
            sent = await process_app.where.send_async(n)
            found, pid, _ = (await process_app.where.wait_async(sent, PATIENCE)).result
            assert found == n
            (process,) = multiprocessing.active_children()
            os.kill(pid, signal.SIGKILL)
            await eventually(lambda process=process: not process.is_alive())
        assert await bench.failures() == []


@ONE_BACKEND
async def test_a_process_is_ended_and_released_when_the_worker_stops(
    bench: Bench, app: fairturn.App
) -> None:
    async with bench.worker(concurrency=2, grace=0.05) as worker:
        await process_app.waits.send_async()
        await process_app.waits.send_async()
        await eventually(lambda: worker.plan.running == 2)
        await asyncio.sleep(0)  # perhaps while its process is being started
    stats = await bench.stats()
    assert (stats.ready, stats.leased, stats.released) == (2, 0, 2)
