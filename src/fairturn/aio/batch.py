"""A batch: sends and policy changes of many queues, in one transaction."""

from __future__ import annotations

from typing import Any

from fairturn.core import check
from fairturn.execution.aio.runner import AsyncRunner
from fairturn.operations.batch import BatchQueue, Collected
from fairturn.operations.call import Core


class AsyncBatch:
    """Collects sends and policy changes, and runs them at the end of its ``with`` block, sorted so
    that two batches cannot deadlock. After an exception in the block nothing is run."""

    def __init__(self, core: Core, runner: AsyncRunner) -> None:
        self._core = core
        self._runner = runner
        self.collected = Collected()

    def queue(self, name: str) -> BatchQueue:
        """Return a queue whose sends are collected."""
        return BatchQueue(self.collected, check.name(name, "queue"))

    def using(self, connection: Any) -> AsyncBatch:
        """Return the same batch on your connection, in your transaction."""
        batch = AsyncBatch(self._core, self._runner.using(connection))
        batch.collected = self.collected
        return batch

    async def run(self) -> None:
        """Run everything that has been collected, and start an empty batch."""
        collected, self.collected = self.collected, Collected()
        await self._runner.run(collected.run(self._core))

    async def __aenter__(self) -> AsyncBatch:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.run()
