"""Errors of the database that nobody has foreseen: a worker waits, tries again, and never leaves."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

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
            return sum(cancel_all(backend, mine) for _ in range(300))

    await task.send_many_async({"n": n} for n in range(600))
    async with bench.worker(concurrency=4, prefetch=0) as worker:
        cancelled = await asyncio.to_thread(cancel_often)
        await eventually(lambda: len(done) == 600)
        await eventually(bench.empty)
        assert worker._background is not None
        assert not worker._background.done()
    assert cancelled > 0
