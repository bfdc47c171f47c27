"""What a handler does through its context: progress, more time, one transaction with its ack."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import fairturn
from fairturn import LeaseLost
from tests.worker.bench import PATIENCE, Bench, eventually


async def test_progress_is_seen_by_those_who_wait(bench: Bench) -> None:
    go_on = threading.Event()

    @bench.task(result=True)
    def plain(ctx: fairturn.Context) -> None:
        ctx.progress(0.5, note="half")
        go_on.wait(PATIENCE)

    @bench.task(result=True)
    async def coroutine(ctx: fairturn.AsyncContext) -> None:
        await ctx.progress(0.5, note="half")
        await asyncio.to_thread(go_on.wait, PATIENCE)

    async with bench.worker():
        for task in (plain, coroutine):
            go_on.clear()
            sent = await task.send_async()
            seen = await bench.queue.wait(id=sent, partial=0.1, timeout=PATIENCE)
            assert (seen.state, seen.progress, seen.note) == ("leased", 0.5, "half")
            go_on.set()
            assert (await task.wait_async(sent, PATIENCE)).state == "done"


async def test_extend_prolongs_the_lease_and_the_timeout(bench: Bench) -> None:
    seen: list[Any] = []
    first_deadline = 3.0  # ample for one round trip on a busy machine

    @bench.task(timeout=first_deadline, retry=False)
    async def coroutine(ctx: fairturn.AsyncContext) -> None:
        before = ctx.message.lease_until
        await ctx.extend(3600)
        seen.append((ctx.message.lease_until - before).total_seconds() > 3000)
        seen.append(ctx.remaining > 3000)
        await asyncio.sleep(first_deadline)  # beyond it: that is what is tested

    @bench.task(timeout=first_deadline, retry=False)
    def plain(ctx: fairturn.Context) -> None:
        ctx.extend(3600)
        seen.append(ctx.remaining > 3000)
        time.sleep(first_deadline)

    async with bench.worker():
        await coroutine.send_async()
        await plain.send_async()
        await eventually(bench.empty)
    assert seen == [True] * 3
    assert (await bench.stats()).acked == 2


async def test_the_current_context(bench: Bench) -> None:
    seen: list[Any] = []

    def whose() -> Any:
        context = fairturn.current_context()
        return context and (context.task, context.message.id, context.queue, context.attempt)

    @bench.task()
    def plain() -> None:
        seen.append(whose())

    @bench.task()
    async def coroutine() -> None:
        await asyncio.sleep(0)
        seen.append(whose())

    assert whose() is None
    async with bench.worker():
        first, second = await plain.send_async(), await coroutine.send_async()
        await eventually(bench.empty)
        assert whose() is None
    expected = [("plain", first, bench.name, 1), ("coroutine", second, bench.name, 1)]
    assert sorted(seen, key=str) == sorted(expected, key=str)


# --- one transaction ------------------------------------------------------------------------------
def effect_tasks(bench: Bench) -> list[Any]:
    """A task of each kind that writes a row and, for an even number, fails in its transaction."""

    @bench.task(retry=False)
    def plain(n: int, ctx: fairturn.Context) -> None:
        with ctx.transaction() as connection:
            bench.effect(connection, n)
            if n % 2 == 0:
                raise ValueError("even")

    @bench.task(retry=False)
    async def coroutine(n: int, ctx: fairturn.AsyncContext) -> None:
        async with ctx.transaction() as connection:
            await bench.effect_async(connection, n)
            if n % 2 == 0:
                raise ValueError("even")

    return [plain, coroutine]


@pytest.mark.parametrize("kind", [0, 1], ids=["plain", "coroutine"])
async def test_a_row_and_the_ack_commit_together_or_not_at_all(bench: Bench, kind: int) -> None:
    task = effect_tasks(bench)[kind]
    async with bench.worker() as worker:
        await task.send_many_async({"n": n} for n in range(20))
        await eventually(bench.empty)
        numbers = worker.metrics.tasks[bench.name, task.name]
    assert bench.effects() == list(range(1, 20, 2))
    stats = await bench.stats()
    assert (stats.acked, stats.dead, stats.delivered) == (10, 10, 20)
    assert await bench.failures() == ["ValueError: even"] * 10
    assert sum(numbers.outcomes) == 20
    assert not worker.metrics.lost_acks


@pytest.mark.parametrize("kind", [0, 1], ids=["plain", "coroutine"])
async def test_a_stale_lease_rolls_the_transaction_back(bench: Bench, kind: int) -> None:
    seen: list[Any] = []
    entered, stolen = threading.Event(), threading.Event()

    @bench.task(lease=0.001, retry=False)
    def plain(n: int, ctx: fairturn.Context) -> None:
        entered.set()
        stolen.wait(PATIENCE)
        try:
            with ctx.transaction() as connection:
                bench.effect(connection, n)
        except LeaseLost:
            seen.append("lost")
            raise

    @bench.task(lease=0.001, retry=False)
    async def coroutine(n: int, ctx: fairturn.AsyncContext) -> None:
        entered.set()
        await asyncio.to_thread(stolen.wait, PATIENCE)
        try:
            async with ctx.transaction() as connection:
                await bench.effect_async(connection, n)
        except LeaseLost:
            seen.append("lost")
            raise

    task = [plain, coroutine][kind]
    async with bench.worker(concurrency=1) as worker:  # or it would take the message again itself
        await task.send_async(1)
        await eventually(entered.is_set)
        # The database forgets the worker; so the lease is over and another may have the message.
        bench.forget_permits()
        (other,) = await eventually(lambda: bench.queue.receive(lease=PATIENCE))
        assert (other.deliveries, other.recovered) == (2, True)
        stolen.set()
        await eventually(lambda: seen)
        await eventually(lambda: worker.plan.running == 0)
        await other.ack()
    assert bench.effects() == []
    assert worker.metrics.snapshot()["tasks"][0][2][6] == 1  # lost
    assert (await bench.stats()).acked == 1


async def test_a_handler_that_fails_after_its_transaction_is_done(bench: Bench) -> None:
    @bench.task(retry=False, result=True)
    def plain(ctx: fairturn.Context) -> int:
        with ctx.transaction() as connection:
            bench.effect(connection, 1)
        raise ValueError("too late")

    async with bench.worker():
        await plain.send_async()
        await eventually(bench.empty)
    assert bench.effects() == [1]
    stats = await bench.stats()
    assert (stats.acked, stats.dead, stats.failed) == (1, 0, 0)


async def test_what_is_sent_in_the_transaction_exists_only_if_it_commits(bench: Bench) -> None:
    ran: list[int] = []

    @bench.task()
    async def child(n: int) -> None:
        ran.append(n)

    @bench.task(retry=False)
    def parent(n: int, ctx: fairturn.Context) -> None:
        with ctx.transaction() as connection:
            child.using(connection).send(n)
            if n == 1:
                raise ValueError("no child")

    async with bench.worker():
        await parent.send_many_async([{"n": 1}, {"n": 2}])
        await eventually(bench.empty)
    assert ran == [2]
