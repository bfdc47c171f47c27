"""A worker whose heartbeat could not be heard loses its work, and goes on with other work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import fairturn
from fairturn import AsyncContext
from tests import servers

pytestmark = pytest.mark.server


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def app_on(name: str, lease: float) -> fairturn.App:
    app = fairturn.App(servers.postgres_url(name))
    app.db.migrate()
    app.db.queue("default").create(lease=lease)
    return app


def test_it_goes_on_after_it_has_lost_its_only_permit() -> None:
    app = app_on("lost_permit", lease=3)
    told: list[str] = []

    @app.task
    async def wait(ctx: AsyncContext) -> None:
        if told:
            told.append("done")
            return
        told.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            told.append("cancelled")

    async def main() -> None:
        wait.send()
        async with app.worker():
            await until(lambda: told)
            with psycopg.connect(app.url) as other:  # the heartbeat has to wait for this
                other.execute("SELECT * FROM fairturn.permit FOR UPDATE")
                await until(lambda: "cancelled" in told)
            await until(lambda: "done" in told)
            await until(lambda: app.db.stats().total == 0)
        await app.close_async()

    asyncio.run(main())
    assert told == ["started", "cancelled", "done"]


def test_handlers_in_transactions_do_not_keep_the_heartbeat_waiting() -> None:
    """As many of them as there are connections, for longer than the permit lives."""
    app = app_on("busy_pool", lease=3)
    deliveries: list[int] = []
    opened = 0
    go = asyncio.Event()

    @app.task
    async def hold(ctx: AsyncContext) -> None:
        nonlocal opened
        async with ctx.transaction():
            opened += 1
            await go.wait()
        deliveries.append(ctx.message.deliveries)

    async def main() -> None:
        hold.send_many([{}] * 10)
        async with app.worker(concurrency=20) as worker:
            await until(lambda: opened == 10)
            before = worker.heartbeat.last
            await until(lambda: worker.heartbeat.last > before + 6)  # two lives of the permit
            go.set()
            await until(lambda: len(deliveries) == 10)
        await app.close_async()

    asyncio.run(main())
    assert deliveries == [1] * 10
