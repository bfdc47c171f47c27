"""Many messages, mixed handlers, workers that come and go: each message is done once in effect."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from typing import Any

import fairturn
from fairturn import Backoff, Defer
from tests.worker.bench import Bench, eventually

MESSAGES = 2000
CHANNELS = 50


async def test_each_message_is_done_exactly_once(bench: Bench, rng: random.Random) -> None:
    done: Counter[int] = Counter()
    once: set[int] = set()
    lock = threading.Lock()

    def first_time(n: int) -> bool:
        with lock:
            new = n not in once
            once.add(n)
            return new

    def end(n: int) -> None:
        with lock:
            done[n] += 1

    @bench.task(channel=lambda n: f"c{n % CHANNELS}", retry=Backoff(initial=0, jitter=0))
    async def coroutine(n: int) -> None:
        kind = n % 10
        if kind == 1 and first_time(n):
            raise ValueError(n)
        if kind == 2 and first_time(n):
            raise Defer(0)
        if kind == 3:
            await asyncio.sleep(0.01)
        end(n)

    @bench.task(channel=lambda n: f"c{n % CHANNELS}", retry=Backoff(initial=0, jitter=0))
    def plain(n: int, ctx: fairturn.Context) -> None:
        if n % 10 == 1 and first_time(n):
            raise ValueError(n)
        if n % 10 == 2 and first_time(n):
            raise Defer(0)
        if n % 10 == 3:
            ctx.progress(0.5)
        end(n)

    messages: list[Any] = [
        (coroutine if rng.random() < 0.7 else plain).message(n=n) for n in range(MESSAGES)
    ]
    workers = [bench.worker(concurrency=10, name=f"{bench.name} {i}") for i in range(3)]
    async with workers[0], workers[1]:
        await bench.queue.send_many(messages[: MESSAGES // 2])
        async with workers[2]:
            await eventually(lambda: len(done) > MESSAGES // 4)
        # The third has been stopped in the middle: what it had is done or given back.
        await bench.queue.send_many(messages[MESSAGES // 2 :])
        await eventually(lambda: len(done) == MESSAGES)
        await eventually(bench.empty)
    lost = sum(sum(worker.metrics.lost_acks.values()) for worker in workers)
    assert MESSAGES <= done.total() <= MESSAGES + lost
    stats = await bench.stats()
    assert (stats.total, stats.dead) == (0, 0)
    assert (stats.acked, stats.failed, stats.deferred) == (MESSAGES, MESSAGES // 10, MESSAGES // 10)
    assert stats.delivered == stats.acked + stats.failed + stats.deferred + stats.released
    for worker in workers:
        assert (worker.plan.running, worker.plan.buffered, worker.settler.pending) == (0, 0, 0)
