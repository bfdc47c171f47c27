"""pgqueuer: fill a queue, or drain it with one worker.

python -m bench.workers.pgqueuer_drain fill|drain async URL MESSAGES CAP

Tuned by its performance guide: `pgq autovac`, one direct asyncpg connection for the QueueManager,
a large batch_size for short jobs, uvloop (its own `pgq run` uses it). Tables stay durable.
"""

# It runs in an environment of its own, so the project's does not know its imports.
# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import sys

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from bench.workers.tally import Tally

BATCH = 500


async def fill(url: str, messages: int) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    await queries.install()
    await queries.optimize_autovacuum()
    for start in range(0, messages, 5000):
        n = min(5000, messages - start)
        payloads: list[bytes | None] = [b'{"i": %d}' % i for i in range(start, start + n)]
        await queries.enqueue(["noop"] * n, payloads, [0] * n)


async def drain(url: str, messages: int, cap: float) -> None:
    connection = await asyncpg.connect(url)
    observer = await asyncpg.connect(url)
    manager = QueueManager(Queries(AsyncpgDriver(connection)))
    tally = Tally(messages, cap)

    @manager.entrypoint("noop")
    async def noop(job: Job) -> None:
        tally.handled()

    async def remaining() -> int:
        return await observer.fetchval("SELECT count(*) FROM pgqueuer")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(manager.run(batch_size=BATCH))
        await tally.finish(remaining)


def main() -> None:
    action, _, url, messages, cap = sys.argv[1:]
    if action == "fill":
        uvloop.run(fill(url, int(messages)))
    else:
        uvloop.run(drain(url, int(messages), float(cap)))


if __name__ == "__main__":
    main()
