"""How a worker stops: nothing it holds may wait for a lease to expire."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import fairturn
from tests.worker.bench import PATIENCE, Bench, eventually


async def test_what_runs_is_finished(bench: Bench) -> None:
    """rsqueue's agent: stop."""
    started, hold = threading.Semaphore(0), threading.Event()
    done: list[str] = []

    @bench.task()
    def plain() -> None:
        started.release()
        hold.wait(PATIENCE)
        done.append("plain")

    @bench.task()
    async def coroutine() -> None:
        started.release()
        await asyncio.to_thread(hold.wait, PATIENCE)
        done.append("coroutine")

    async with bench.worker() as worker:
        await plain.send_async()
        await coroutine.send_async()
        await eventually(lambda: started.acquire(blocking=False))
        await eventually(lambda: started.acquire(blocking=False))
        worker.stop()
        await plain.send_async()  # too late for this worker
        assert done == []
        hold.set()
    assert sorted(done) == ["coroutine", "plain"]
    stats = await bench.stats()
    assert (stats.acked, stats.ready, stats.leased) == (2, 1, 0)


async def test_what_was_prefetched_is_visible_at_once(bench: Bench) -> None:
    hold = asyncio.Event()
    ran: list[int] = []

    @bench.task()
    async def task(n: int) -> None:
        ran.append(n)
        if n == 100:
            await hold.wait()

    async with bench.worker(concurrency=1) as worker:
        await task.send_many_async({"n": n} for n in range(30))  # quick: it learns to prefetch
        await eventually(bench.empty)
        await bench.queue.pause()
        await task.with_options(priority=1).send_async(100)
        await task.send_many_async({"n": n} for n in range(200, 205))
        await bench.queue.resume()
        await eventually(lambda: worker.plan.buffered)
        held = worker.plan.buffered
        worker.stop()
        given = await eventually(lambda: bench.queue.receive(10))  # while 100 still runs
        hold.set()
    assert 100 in ran
    assert held > 0
    assert len(given) == 5
    assert {(m.attempts, m.recovered) for m in given} == {(1, False)}
    assert (await bench.stats()).released == held


async def test_after_the_grace_a_coroutine_is_cancelled_and_released(bench: Bench) -> None:
    """rsqueue's agent: stop timeout."""
    left: list[Any] = []
    started = asyncio.Event()

    @bench.task()
    async def endless(ctx: fairturn.AsyncContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.append(ctx.cancelled)

    async with bench.worker(grace=0.05):
        await endless.send_async()
        await started.wait()
    assert left == [True]
    (message,) = await bench.queue.receive()
    assert (message.attempts, message.deliveries, message.recovered) == (1, 2, False)
    assert await bench.failures() == []


async def test_after_the_grace_a_thread_is_told_and_its_message_released(bench: Bench) -> None:
    started, end = threading.Event(), threading.Event()
    told: list[bool] = []

    @bench.task()
    def deaf(ctx: fairturn.Context) -> None:
        started.set()
        try:
            while True:
                time.sleep(0.001)
        except BaseException:
            told.append(ctx.cancelled)
            end.wait(PATIENCE)  # and does not leave

    async with bench.worker(grace=0.05) as worker:
        await deaf.send_async()
        await eventually(started.is_set)
    assert told == [True]
    (message,) = await bench.queue.receive()
    assert (message.attempts, message.deliveries) == (1, 2)
    end.set()  # its late end changes nothing
    await eventually(lambda: not worker.slots.running)
    await message.ack()


async def test_abort_does_not_wait(bench: Bench) -> None:
    started = threading.Semaphore(0)

    @bench.task()
    async def endless() -> None:
        started.release()
        await asyncio.Event().wait()

    @bench.task()
    def busy() -> None:
        started.release()
        while True:
            time.sleep(0.001)

    async with bench.worker(grace=3600) as worker:
        await endless.send_async()
        await busy.send_async()
        for _ in range(2):
            await eventually(lambda: started.acquire(blocking=False))
        worker.abort()
    stats = await bench.stats()
    assert (stats.ready, stats.leased, stats.released) == (2, 0, 2)


async def test_a_worker_may_be_stopped_before_it_has_started(bench: Bench) -> None:
    @bench.task()
    async def task() -> None: ...

    worker = bench.worker()
    worker.stop()
    await worker.run()
    assert not worker.ready


async def test_a_worker_stops_while_its_database_is_away() -> None:
    app = fairturn.App("postgresql://nobody@127.0.0.1:1/nowhere")

    @app.task
    async def task() -> None: ...

    async with app.worker() as worker:
        await eventually(lambda: worker.metrics.database_errors > 1)
        assert not worker.ready
    app.close()


async def test_the_last_acks_are_written(bench: Bench) -> None:
    count = 0

    @bench.task()
    async def task() -> None:
        nonlocal count
        count += 1
        if count == 50:
            worker.stop()

    await task.send_many_async([{}] * 200)
    worker = bench.worker()
    await worker.run()
    stats = await bench.stats()
    assert (stats.acked, stats.ready, stats.leased) == (count, 200 - count, 0)
    assert count >= 50


async def test_a_second_worker_goes_on_where_the_first_stopped(bench: Bench) -> None:
    done: list[int] = []

    @bench.task()
    async def task(n: int) -> None:
        done.append(n)
        if len(done) == 20:
            first.stop()

    await task.send_many_async({"n": n} for n in range(100))
    first = bench.worker()
    await first.run()
    async with bench.worker():
        await eventually(bench.empty)
    assert sorted(done) == list(range(100))


async def test_the_permit_is_given_back(bench: Bench) -> None:
    @bench.task()
    async def task() -> None: ...

    table = "fairturn.permit" if bench.backend == "postgresql" else "fairturn_permit"
    mine = f"SELECT count(*) FROM {table} WHERE name = '{bench.name}'"
    async with bench.worker() as worker:
        await eventually(lambda: worker.ready)
        assert bench.sql(mine)[0][0] == 1
    assert bench.sql(mine)[0][0] == 0
