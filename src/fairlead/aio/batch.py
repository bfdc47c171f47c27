"""A batch: sends and policy changes over many queues, in one transaction."""

from __future__ import annotations

from typing import Any

from fairlead.aio.running import AsyncRunner
from fairlead.operations import check
from fairlead.operations.batch import Collected
from fairlead.operations.call import Core
from fairlead.sync.batch import BatchQueue


class AsyncBatch:
    """Collects, and runs everything at the end of its with block, sorted so that two batches never
    wait for each other in a circle. An exception in the block: nothing is run."""

    def __init__(self, core: Core, runner: AsyncRunner) -> None:
        self.core = core
        self.runner = runner
        self.collected = Collected()

    def queue(self, name: str) -> BatchQueue:
        """A queue whose sends are collected."""
        return BatchQueue(self.collected, check.name(name, "queue"))

    def using(self, connection: Any) -> AsyncBatch:
        """The same batch on your connection, in your transaction."""
        batch = AsyncBatch(self.core, self.runner.using(connection))
        batch.collected = self.collected
        return batch

    async def run(self) -> None:
        """Run what has been collected so far, and start afresh."""
        collected, self.collected = self.collected, Collected()
        await self.runner.run(collected.run(self.core))

    async def __aenter__(self) -> AsyncBatch:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.run()
