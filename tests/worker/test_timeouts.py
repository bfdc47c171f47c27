"""How long a handler may run, and what it is when it is told to leave."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import fairturn
from fairturn import Backoff
from tests.worker.bench import PATIENCE, Bench, eventually


async def test_the_timeout_of_a_coroutine_function(bench: Bench) -> None:
    left: list[Any] = []

    @bench.task(timeout=0.5, retry={fairturn.TaskTimeout: Backoff(initial=0, max_attempts=2)})
    async def slow(ctx: fairturn.AsyncContext) -> None:
        assert ctx.remaining <= 0.5
        assert before + 0.5 <= ctx.deadline <= time.time() + 0.5
        try:
            await asyncio.Event().wait()
        finally:
            left.append(ctx.cancelled)

    before = time.time()
    async with bench.worker() as worker:
        outcome = await slow.wait_async(await slow.send_async(), PATIENCE)
        assert worker.plan.running == 0
    assert outcome.error == "TaskTimeout: slow took longer than 0.5 s"
    assert left == [True, True]


async def test_the_timeout_of_a_plain_function(bench: Bench) -> None:
    left: list[Any] = []

    @bench.task(timeout=0.5, retry=Backoff(initial=0, max_attempts=2))
    def slow(ctx: fairturn.Context) -> None:
        try:
            while True:
                time.sleep(0.001)
        except Exception:  # an interruption must pass
            left.append("swallowed")
        finally:
            left.append(ctx.cancelled)

    async with bench.worker():
        outcome = await slow.wait_async(await slow.send_async(), PATIENCE)
    assert outcome.error == "TaskTimeout: slow took longer than 0.5 s"
    assert left == [True, True]


async def test_a_thread_that_was_interrupted_works_on(bench: Bench) -> None:
    done: list[int] = []

    @bench.task(timeout=0.02, retry=False)
    def slow() -> None:
        while True:
            time.sleep(0.001)

    @bench.task()
    def quick(n: int) -> None:
        done.append(n)

    async with bench.worker(concurrency=1):
        for n in range(5):
            await slow.send_async()
            await quick.send_async(n)
        await eventually(bench.empty)
    assert sorted(done) == [0, 1, 2, 3, 4]
    assert (await bench.stats()).dead == 5


async def test_a_handler_in_time_is_not_cancelled(bench: Bench) -> None:
    @bench.task(timeout=PATIENCE, result=True)
    async def quick(ctx: fairturn.AsyncContext) -> bool:
        return ctx.cancelled or ctx.remaining is None

    @bench.task(result=True)
    def free(ctx: fairturn.Context) -> bool:
        return ctx.cancelled or ctx.remaining is not None or ctx.deadline is not None

    async with bench.worker():
        for task in (quick, free):
            assert (await task.wait_async(await task.send_async(), PATIENCE)).result is False


async def test_exit_and_cancellation_in_a_handler_are_failures(bench: Bench) -> None:
    @bench.task(retry=False)
    def leaves() -> None:
        raise SystemExit(3)

    @bench.task(retry=False)
    async def cancels() -> None:
        raise asyncio.CancelledError

    async with bench.worker():
        for task, text in ((leaves, "SystemExit: 3"), (cancels, "CancelledError")):
            outcome = await task.wait_async(await task.send_async(), PATIENCE)
            assert (outcome.state, outcome.error) == ("dead", text)
