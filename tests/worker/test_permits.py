"""A worker whose permit is lost: its handlers are told, others get its messages, it goes on."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from typing import Any

import pytest

import fairturn
from tests.conformance.connections import sqlite_path
from tests.worker.bench import PATIENCE, Bench, eventually


async def test_a_handler_whose_permit_is_lost_is_cancelled_and_runs_elsewhere(
    bench: Bench,
) -> None:
    name = await bench.create(lease=10)  # so long lives a permit
    told: list[Any] = []
    started = threading.Semaphore(0)
    done: list[int] = []

    @bench.task(queue=name, lease=0.1)
    async def coroutine(ctx: fairturn.AsyncContext) -> None:
        if ctx.message.deliveries > 1:
            done.append(ctx.message.deliveries)
            return
        started.release()
        try:
            await asyncio.Event().wait()
        finally:
            told.append(ctx.cancelled)

    @bench.task(queue=name, lease=0.1)
    def plain(ctx: fairturn.Context) -> None:
        if ctx.message.deliveries > 1:
            done.append(ctx.message.deliveries)
            return
        started.release()
        try:
            while True:
                time.sleep(0.001)
        finally:
            told.append(ctx.cancelled)

    # Without a free slot it receives nothing under the permit that it does not know to be lost.
    async with bench.worker(name="first " + bench.name, concurrency=2) as first:
        await coroutine.send_async()
        await plain.send_async()
        for _ in range(2):
            await eventually(lambda: started.acquire(blocking=False))
        async with bench.worker(name="second " + bench.name):
            bench.forget_permits("first " + bench.name)
            await eventually(lambda: told == [True, True])
            await eventually(bench.empty)
            await eventually(lambda: first.plan.running == 0)
        # The first has taken a new permit and works on.
        await coroutine.with_options(lease=PATIENCE).send_async()
        await eventually(lambda: started.acquire(blocking=False))
        first.abort()
    assert done == [2, 2]
    stats = await bench.stats(name)
    assert (stats.acked, stats.dead, stats.failed) == (2, 0, 0)
    lost = first.metrics.snapshot()["tasks"]
    assert sum(outcomes[6] for _, _, outcomes, _, _ in lost) == 2


async def test_an_idle_worker_takes_a_new_permit(bench: Bench) -> None:
    done: list[int] = []

    @bench.task()
    async def task(n: int) -> None:
        done.append(n)

    async with bench.worker() as worker:
        for n in range(5):
            await eventually(lambda: worker.ready)
            bench.forget_permits()
            await task.send_async(n)
            await eventually(lambda n=n: n in done)
    assert done == [0, 1, 2, 3, 4]


async def test_a_busy_worker_survives_the_loss_of_its_permits_again_and_again(
    bench: Bench,
) -> None:
    """A heartbeat may find out while a receive is on its way, before it, or after it."""
    name = await bench.create(lease=10)
    done: set[int] = set()

    @bench.task(queue=name, lease=0.1)
    async def task(n: int) -> None:
        await asyncio.sleep(0.001)
        done.add(n)

    async with bench.worker(concurrency=8) as worker:
        await eventually(lambda: worker.ready)
        for batch in range(6):
            numbers = range(batch * 100, batch * 100 + 100)
            await task.send_many_async({"n": n} for n in numbers)
            await eventually(lambda numbers=numbers: done & set(numbers))
            bench.forget_permits()
            await worker.heartbeat._beat()  # as it does three times in the life of a permit
        await eventually(lambda: len(done) == 600)
        await eventually(bench.empty)
        assert worker._background is not None
        assert not worker._background.done()


async def test_nothing_is_claimed_between_a_lost_permit_and_the_next(bench: Bench) -> None:
    @bench.task()
    async def task() -> None: ...

    async with bench.worker() as worker:
        await eventually(lambda: worker.ready)
        worker.heartbeat._drop(worker.heartbeat.held_permit, "so says the test")
        assert worker.plan.claim(time.monotonic() + 10, {}) is None
        await task.send_async()
        await eventually(bench.empty)


async def test_doubt_lasts_until_there_is_a_new_permit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    @bench.task()
    async def task() -> None: ...

    async with bench.worker() as worker:
        await eventually(lambda: worker.ready)
        old, permit = worker.heartbeat.held_permit, worker.db.permit
        refused: list[str] = []

        async def refuse(name: str, **options: Any) -> Any:
            if len(refused) < 2:  # the database goes away at the worst moment
                refused.append(name)
                raise fairturn.DatabaseUnavailable("not now")
            return await permit(name, **options)

        monkeypatch.setattr(worker.db, "permit", refuse)
        worker.heartbeat.replace_permit()
        assert worker.plan.claim(time.monotonic() + 10, {}) is None
        await eventually(lambda: worker.heartbeat.held_permit is not old)
        assert len(refused) == 2
        await task.send_async()
        await eventually(bench.empty)


async def test_a_handler_cancelled_before_its_first_step_leaves_its_slot(bench: Bench) -> None:
    ran: list[int] = []

    class LoseNext(fairturn.Middleware):
        def finished(self, context: Any, verdict: Any, seconds: float) -> None:
            if context.message.body["n"] == 100:
                # Runs after the next has been started and before its coroutine takes a step.
                worker.loop.call_soon(worker._permit_lost, worker.heartbeat.held_permit)

    bench.app.middleware.append(LoseNext())

    @bench.task()
    async def task(n: int) -> None:
        ran.append(n)

    async with bench.worker(concurrency=1) as worker:
        await task.send_many_async({"n": n} for n in range(30))  # quick: it learns to prefetch
        await eventually(bench.empty)
        await task.send_many_async([{"n": 100}, {"n": 101}])
        await eventually(lambda: 100 in ran)
        await task.send_async(200)
        await eventually(lambda: 200 in ran)
        await eventually(lambda: worker.plan.running == 0)


@pytest.mark.parametrize("backend", ["sqlite"])  # the only one with one lock for all writers
async def test_what_cannot_be_given_back_at_once_is_given_back_later(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Prefetched messages go back when handlers take long. Here the database is locked then."""
    caplog.set_level(logging.DEBUG, "fairturn.worker")
    hold = asyncio.Event()
    ran: list[int] = []
    bench.app._options["timeout"] = 0.05

    @bench.task()
    async def task(n: int) -> None:
        ran.append(n)
        if n == 100:
            await hold.wait()

    async with bench.worker(concurrency=1) as worker:
        await task.send_many_async({"n": n} for n in range(30))
        await eventually(bench.empty)
        await bench.queue.pause()
        await task.with_options(priority=1).send_async(100)
        await task.send_many_async({"n": n} for n in range(200, 205))
        await bench.queue.resume()
        await eventually(lambda: worker.plan.buffered)
        held = worker.plan.buffered
        other = sqlite3.connect(sqlite_path(bench.url), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await eventually(lambda: worker.plan.buffered == 0)  # on their way back, in vain
        await eventually(lambda: "messages wait for their release" in caplog.text)
        other.rollback()
        other.close()

        async def all_visible() -> bool:
            return (await bench.stats()).ready == 5

        await eventually(all_visible)
        assert held > 0
        hold.set()
        await eventually(bench.empty)
    assert sorted(ran) == [*range(30), 100, *range(200, 205)]
