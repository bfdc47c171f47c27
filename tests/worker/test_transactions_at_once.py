"""Many handlers in transactions at once, some of which have to leave."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest

from fairturn import AsyncContext, LeaseLost
from fairturn.tasks.context import Run
from tests.worker.bench import Bench, eventually

MANY = 60  # more than the threads that asyncio.to_thread has on any machine


async def test_many_coroutines_want_a_transaction(bench: Bench) -> None:
    """On SQLite there is one at a time: those who wait for it must not keep it from ending."""

    @bench.task(retry=False)
    async def coroutine(n: int, ctx: AsyncContext) -> None:
        async with ctx.transaction() as connection:
            await bench.effect_async(connection, n)
            await asyncio.sleep(0)

    async with bench.worker(concurrency=MANY):
        await coroutine.send_many_async({"n": n} for n in range(2 * MANY))
        await eventually(bench.empty)
    assert bench.effects() == list(range(2 * MANY))
    assert await bench.failures() == []


@pytest.mark.parametrize("times", [20, pytest.param(60, marks=pytest.mark.deep)])
@pytest.mark.parametrize("kind", ["done", "failed", "lost"])
async def test_a_coroutine_that_is_cancelled_leaves_no_transaction(
    bench: Bench, kind: str, times: int
) -> None:
    """Wherever it is cancelled: while it begins, in its block, while it commits or rolls back."""

    async def handle(ctx: AsyncContext, n: int) -> None:
        async with ctx.transaction() as connection:
            await bench.effect_async(connection, n)
            if kind == "failed":
                raise ValueError("failed")
        done.append(n)

    done: list[int] = []
    gc.disable()  # it would end a transaction that nobody knows any more, some day
    try:
        for n in range(times):
            await bench.queue.send(n)
            (message,) = await bench.queue.receive()
            ctx = AsyncContext("t", message, Run(), bench.app.db)
            if kind == "lost":
                await message.ack()
            task = asyncio.create_task(handle(ctx, n))
            for _ in range(n % 20):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ValueError, LeaseLost):
                await task
            del ctx, task
            # On SQLite another one could not even begin.
            bench.sql(f"INSERT INTO effect (queue, n) VALUES ('{bench.name}-other', {n})")
    finally:
        gc.enable()
    # It may have committed and been cancelled then.
    assert set(done) <= set(bench.effects()) <= (set(range(times)) if kind == "done" else set())
    gone = times if kind == "lost" else len(bench.effects())
    assert (await bench.stats()).leased == times - gone
