"""Fairturn: fill a queue, or drain it with one worker.

python -m bench.workers.fairturn_drain fill|drain async|sync|channels URL MESSAGES CAP

"channels": every channel may have one message running (max_concurrency=1).
"""

from __future__ import annotations

import asyncio
import sys

import fairturn
from bench.workers.tally import Tally, channel_of

CONCURRENCY = 100
POOL = 4


def fill(url: str, case: str, messages: int) -> None:
    app = fairturn.App(url, pool_size=POOL)
    app.db.migrate()
    if case == "channels":
        app.db.queue("noop").create(policy=fairturn.Policy(max_concurrency=1))

        @app.task(queue="noop", name="noop", channel=lambda i, channel, **_: channel)
        def limited(i: int, channel: str) -> None:
            raise RuntimeError("the filling process runs no handler")

        limited.send_many([{"i": i, "channel": channel_of(i, messages)} for i in range(messages)])
    else:
        app.db.queue("noop").create()

        @app.task(queue="noop", name="noop")
        def noop(i: int) -> None:
            raise RuntimeError("the filling process runs no handler")

        noop.send_many([{"i": i} for i in range(messages)])
    app.close()


async def drain(url: str, case: str, messages: int, cap: float) -> None:
    app = fairturn.App(url, pool_size=POOL)
    tally = Tally(messages, cap)
    if case == "channels":

        @app.task(queue="noop", name="noop", channel=lambda i, channel, **_: channel)
        async def limited(i: int, channel: str) -> None:
            tally.enter(channel)
            await asyncio.sleep(0)
            tally.leave(channel)
    elif case == "sync":

        @app.task(queue="noop", name="noop")
        def threaded(i: int) -> None:
            tally.handled()
    else:

        @app.task(queue="noop", name="noop")
        async def noop(i: int) -> None:
            tally.handled()

    async def remaining() -> int:
        stats = await app.async_db.queue("noop").stats()
        return stats.ready + stats.scheduled + stats.leased

    async with app.worker(concurrency=CONCURRENCY):
        await tally.finish(remaining)


def main() -> None:
    action, case, url, messages, cap = sys.argv[1:]
    if action == "fill":
        fill(url, case, int(messages))
    else:
        asyncio.run(drain(url, case, int(messages), float(cap)))


if __name__ == "__main__":
    main()
