# Generated from aio/batch.py by `make generate`: edit that file.
"""A batch: sends and policy changes of many queues, in one transaction."""

from __future__ import annotations

from typing import Any

from fairturn.core import check
from fairturn.execution.sync.runner import Runner
from fairturn.operations.batch import BatchQueue, Collected
from fairturn.operations.call import Core


class Batch:
    """Collects sends and policy changes, and runs them at the end of its ``with`` block, sorted so
    that two batches cannot deadlock. After an exception in the block nothing is run."""

    def __init__(self, core: Core, runner: Runner) -> None:
        self._core = core
        self._runner = runner
        self.collected = Collected()

    def queue(self, name: str) -> BatchQueue:
        """Return a queue whose sends are collected."""
        return BatchQueue(self.collected, check.name(name, "queue"))

    def using(self, connection: Any) -> Batch:
        """Return the same batch on your connection, in your transaction."""
        batch = Batch(self._core, self._runner.using(connection))
        batch.collected = self.collected
        return batch

    def run(self) -> None:
        """Run everything that has been collected, and start an empty batch."""
        collected, self.collected = self.collected, Collected()
        self._runner.run(collected.run(self._core))

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.run()
