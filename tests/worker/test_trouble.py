"""Errors of the database that nobody has foreseen: a worker tries again, and never leaves."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

import fairturn
from tests.conformance import yours
from tests.worker.bench import AT_ONCE, Bench, eventually

# Cancel what others are doing at this moment, as an administrator or a time limit would.
CANCEL = {
    "postgresql": "SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND datname = current_database() AND state = 'active'",
    "mysql": "SELECT id FROM information_schema.processlist "
    "WHERE id <> connection_id() AND db = database() AND command = 'Query'",
}


def cancel_all(backend: str, mine: Any) -> int:
    """How many statements were cancelled."""
    rows = mine.execute(CANCEL[backend])
    if backend == "mysql":
        for (id,) in rows:
            with contextlib.suppress(Exception):  # it may have ended meanwhile
                mine.execute(f"KILL QUERY {id}")
    mine.commit()
    return len(rows)


@pytest.mark.parametrize("door", ["sync", "async"])
@pytest.mark.parametrize("backend", ["postgresql", "mysql"])
async def test_what_was_done_after_a_cancelled_statement_is_durable(
    bench: Bench, backend: str, door: str
) -> None:
    """MySQL may leave the transaction of a procedure open when its statement is killed, and on that
    connection nothing would ever be committed again."""
    db = fairturn.connect(bench.url, pool_size=1)
    async_db = fairturn.connect_async(bench.url, pool_size=1)
    await bench.queue.send_many(range(2000))
    over = threading.Event()

    def cancel_often() -> None:
        with yours.plain(backend, bench.url) as mine:
            while not over.is_set():
                cancel_all(backend, mine)

    async def receive() -> list[Any]:
        try:
            if door == "async":
                return await async_db.queue(bench.name).receive(2)
            return await asyncio.to_thread(db.queue(bench.name).receive, 2)
        except fairturn.DatabaseError:
            return [None]

    cancelling = asyncio.create_task(asyncio.to_thread(cancel_often))
    received: list[Any] = []
    while len(received) < 100 or (received.count(None) < 20 and len(received) < 2000):
        received += await receive()
    over.set()
    await cancelling
    cancelled = received.count(None)
    assert cancelled > 0
    # What we got is there for good; a receive that was cancelled has leased its two or none.
    beyond = (await bench.stats()).delivered - (len(received) - cancelled)
    assert 0 <= beyond <= 2 * cancelled
    db.close()
    await async_db.close()


@pytest.mark.parametrize("door", ["sync", "async"])
@pytest.mark.parametrize("backend", ["postgresql", "mysql"])
async def test_a_cancelled_send_says_whether_it_may_have_happened(
    bench: Bench, backend: str, door: str
) -> None:
    """MySQL may interrupt a procedure after its commit: one in six such sends was there."""
    db = fairturn.connect(bench.url, pool_size=1)
    async_db = fairturn.connect_async(bench.url, pool_size=1)
    over = threading.Event()

    def cancel_often() -> None:
        with yours.plain(backend, bench.url) as mine:
            while not over.is_set():
                cancel_all(backend, mine)

    async def send(n: int) -> str:
        try:
            if door == "async":
                await async_db.queue(bench.name).send(n)
            else:
                await asyncio.to_thread(db.queue(bench.name).send, n)
        except fairturn.OutcomeUnknown:
            return "unknown"
        except fairturn.DatabaseError:
            return "failed"
        return "sent"

    cancelling = asyncio.create_task(asyncio.to_thread(cancel_often))
    outcomes: list[str] = []
    while len(outcomes) < 200 or (
        len(outcomes) < 4000 and outcomes.count("sent") > len(outcomes) - 40
    ):
        outcomes.append(await send(len(outcomes)))
    over.set()
    await cancelling
    there = [m.body for m in await bench.queue.peek(10_000)]
    assert len(there) == len(set(there))
    assert {n for n, outcome in enumerate(outcomes) if outcome == "sent"} <= set(there)
    assert not {n for n, outcome in enumerate(outcomes) if outcome == "failed"} & set(there)
    assert outcomes.count("sent") < len(outcomes)
    db.close()
    await async_db.close()


@pytest.mark.parametrize("backend", ["postgresql", "mysql"])
async def test_cancelled_statements_do_not_end_a_worker(bench: Bench, backend: str) -> None:
    done: set[int] = set()
    failed: set[int] = set()

    @bench.task(retry=AT_ONCE)
    async def task(n: int) -> None:
        if n % 3 == 0 and n not in failed:
            failed.add(n)
            raise ValueError(n)
        done.add(n)

    def cancel_often() -> int:
        with yours.plain(backend, bench.url) as mine:
            return sum(cancel_all(backend, mine) for _ in range(100))

    await task.send_many_async({"n": n} for n in range(200))
    async with bench.worker(concurrency=4, prefetch=0) as worker:
        cancelled = await asyncio.to_thread(cancel_often)
        await eventually(lambda: len(done) == 200)
        await eventually(bench.empty)
        assert worker._background is not None
        assert not worker._background.done()
    assert cancelled > 0
