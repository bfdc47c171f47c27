"""What every test of workers needs: an app on one backend, a queue of its own, and patience."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import fairturn
from fairturn import Backoff
from tests.conformance import yours
from tests.conformance.door import unique

PATIENCE = 60.0  # seconds until a test gives up waiting; none waits that long when all is well
AT_ONCE = Backoff(initial=0, jitter=0)  # retry without a pause


async def eventually(condition: Callable[[], Any]) -> Any:
    """Wait until it is true (an awaitable is awaited), and return what it gave."""
    found: Any = None
    pause = 0.001
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                found = condition()
                if inspect.isawaitable(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, 0.05)  # the longer it takes, the less we ask
    except TimeoutError:
        source = inspect.getsource(condition).strip()
        raise AssertionError(f"never became true: {source} (last: {found!r})") from None


class Bench:
    """An App and its database. The test's queues are dropped after it."""

    def __init__(self, backend: str, url: str) -> None:
        self.backend = backend
        self.url = url
        self.name = unique("w")
        self.app = fairturn.App(url, name=self.name)
        self.made: list[str] = []

    async def open(self) -> None:
        await self.create(self.name)

    async def create(self, name: str | None = None, **settings: Any) -> str:
        """A queue that belongs to the test."""
        name = name or unique("w")
        self.made.append(name)
        assert await self.app.async_db.queue(name).create(**settings)
        return name

    async def close(self) -> None:
        for name in self.made:
            await self.app.async_db.queue(name).drop()
        await self.app.close_async()

    def task(self, **options: Any) -> Any:
        """@bench.task(…): a task in the test's queue."""
        return self.app.task(**{"queue": self.name, **options})

    def worker(self, **options: Any) -> fairturn.Worker:
        return self.app.worker(**{"concurrency": 4, "name": self.name, **options})

    @property
    def queue(self) -> fairturn.AsyncQueue:
        return self.app.async_db.queue(self.name)

    async def stats(self, queue: str | None = None) -> fairturn.Stats:
        return await self.app.async_db.queue(queue or self.name).stats()

    async def empty(self) -> bool:
        """Is nothing left in the test's queues that still has to be done?"""
        for name in self.made:
            stats = await self.stats(name)
            if stats.ready or stats.scheduled or stats.leased:
                return False
        return True

    async def failures(self, id: int | None = None) -> list[str]:
        """The failure log, oldest first."""
        return [failure.error for failure in (await self.queue.failures(100, id=id))[::-1]]

    def sql(self, text: str) -> list[Any]:
        """A statement on a connection of the test's own."""
        with yours.plain(self.backend, self.url) as mine:
            mine.begin()
            rows = mine.execute(text)
            mine.commit()
            return rows

    def forget_permits(self, name: str | None = None) -> None:
        """Make the database forget the permits of a worker, as if they had expired."""
        table = "fairturn.permit" if self.backend == "postgresql" else "fairturn_permit"
        self.sql(f"DELETE FROM {table} WHERE name = '{name or self.name}'")

    def effects(self) -> list[int]:
        """What handlers of this test wrote with ``effect``."""
        rows = self.sql(f"SELECT n FROM effect WHERE queue = '{self.name}' ORDER BY n")
        return [row[0] for row in rows]

    def effect(self, connection: Any, n: int) -> None:
        """A row of the user's own, written in a transaction."""
        with_cursor = connection.cursor()
        with_cursor.execute(f"INSERT INTO effect (queue, n) VALUES ('{self.name}', {n})")
        with_cursor.close()

    async def effect_async(self, connection: Any, n: int) -> None:
        if self.backend == "sqlite":
            self.effect(connection, n)
            return
        async with connection.cursor() as cursor:
            await cursor.execute(f"INSERT INTO effect (queue, n) VALUES ('{self.name}', {n})")


class AtOnce:
    """Counts how many are inside at once, and the most that ever were. For threads and tasks."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    def __enter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        self.now -= 1
