"""procrastinate: fill a queue, or drain it with one worker.

python -m bench.workers.procrastinate_drain fill|drain async|channels URL MESSAGES CAP

It fetches one job per statement, so there is no batch to tune: `concurrency` lets the fetch of the
next job overlap the finishing of others, and the pool has room for them.
"""

# It runs in an environment of its own, so the project's does not know its imports.
# pyright: reportMissingImports=false, reportFunctionMemberAccess=false

from __future__ import annotations

import asyncio
import sys

import procrastinate
import psycopg

from bench.workers.tally import Tally, channel_of

CONCURRENCY = 20


def application(url: str) -> procrastinate.App:
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=CONCURRENCY)
    return procrastinate.App(connector=connector)


async def fill(url: str, case: str, messages: int) -> None:
    app = application(url)

    @app.task(name="noop", queue="noop")
    async def noop(i: int, channel: str) -> None:
        raise RuntimeError("the filling process runs no handler")

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        jobs: dict[str, list[dict[str, object]]] = {}
        for i in range(messages):
            channel = channel_of(i, messages) if case == "channels" else ""
            jobs.setdefault(channel, []).append({"i": i, "channel": channel})
        for channel, arguments in jobs.items():
            deferrer = noop.configure(lock=channel) if channel else noop.configure()
            for start in range(0, len(arguments), 5000):
                await deferrer.batch_defer_async(*arguments[start : start + 5000])


async def drain(url: str, case: str, messages: int, cap: float) -> None:
    app = application(url)
    tally = Tally(messages, cap)
    observer = await psycopg.AsyncConnection.connect(url, autocommit=True)

    if case == "channels":

        @app.task(name="noop", queue="noop")
        async def limited(i: int, channel: str) -> None:
            tally.enter(channel)
            await asyncio.sleep(0)
            tally.leave(channel)
    else:

        @app.task(name="noop", queue="noop")
        async def noop(i: int, channel: str) -> None:
            tally.handled()

    async def remaining() -> int:
        rows = await observer.execute(
            "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        )
        [(left,)] = await rows.fetchall()
        return left

    async with app.open_async(), asyncio.TaskGroup() as tasks:
        tasks.create_task(app.run_worker_async(queues=["noop"], concurrency=CONCURRENCY))
        await tally.finish(remaining)


def main() -> None:
    action, case, url, messages, cap = sys.argv[1:]
    if action == "fill":
        asyncio.run(fill(url, case, int(messages)))
    else:
        asyncio.run(drain(url, case, int(messages), float(cap)))


if __name__ == "__main__":
    main()
