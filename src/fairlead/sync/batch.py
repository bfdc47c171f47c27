"""A batch: sends and policy changes over many queues, in one transaction."""

from __future__ import annotations

from typing import Any

from fairlead.operations import check, queues, sending
from fairlead.operations.batch import Collected, Pending
from fairlead.operations.call import Core
from fairlead.sync.running import Runner
from fairlead.values import Send


class Batch:
    """Collects, and runs everything at the end of its with block, sorted so that two batches never
    wait for each other in a circle. An exception in the block: nothing is run."""

    def __init__(self, core: Core, runner: Runner) -> None:
        self.core = core
        self.runner = runner
        self.collected = Collected()

    def queue(self, name: str) -> BatchQueue:
        """A queue whose sends are collected."""
        return BatchQueue(self.collected, check.name(name, "queue"))

    def using(self, connection: Any) -> Batch:
        """The same batch on your connection, in your transaction."""
        batch = Batch(self.core, self.runner.using(connection))
        batch.collected = self.collected
        return batch

    def run(self) -> None:
        """Run what has been collected so far, and start afresh."""
        collected, self.collected = self.collected, Collected()
        self.runner.run(collected.run(self.core))

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.run()


class BatchQueue:
    """A queue inside a batch."""

    def __init__(self, collected: Collected, name: str) -> None:
        self.name = name
        self._collected = collected

    def send(self, body: Any, **options: Any) -> Pending:
        """Collect a send; the options are those of Queue.send()."""
        return self._collected.send(self.name, sending.encode_send(Send(body, **options)))

    def channel(self, name: str) -> BatchChannel:
        """A channel of this queue."""
        return BatchChannel(self, check.name(name, "channel", empty=True))


class BatchChannel:
    """A channel inside a batch."""

    def __init__(self, queue: BatchQueue, name: str) -> None:
        self.queue = queue
        self.name = name

    def send(self, body: Any, **options: Any) -> Pending:
        """Collect a send to this channel."""
        return self.queue.send(body, channel=self.name, **options)

    def set_policy(self, **policy: Any) -> None:
        """Collect a policy; the arguments are those of Channel.set_policy()."""
        row = queues.policy_row(**policy)
        self.queue._collected.policies[self.queue.name, self.name] = row  # pyright: ignore[reportPrivateUsage]

    def clear_policy(self) -> None:
        """Collect the removal of this channel's policy."""
        self.queue._collected.policies[self.queue.name, self.name] = None  # pyright: ignore[reportPrivateUsage]
