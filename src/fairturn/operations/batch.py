"""A batch: sends and policy changes of many queues, in one transaction (semantics §16)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fairturn.backends.base import Batch
from fairturn.backends.steps import Op
from fairturn.core import check
from fairturn.core.rows import SendRow
from fairturn.core.sends import Send, Sent
from fairturn.core.settings import Policy, PolicyRow, policy_row
from fairturn.operations import sends
from fairturn.operations.call import Call, Core


class Pending:
    """A send of a batch; it has ``sent`` after the batch has run."""

    __slots__ = ("_sent",)

    def __init__(self) -> None:
        self._sent: Sent | None = None

    @property
    def sent(self) -> Sent:
        if self._sent is None:
            raise RuntimeError("the batch has not run yet: read this after its with block")
        return self._sent

    def fulfil(self, sent: Sent) -> None:
        self._sent = sent


@dataclass(slots=True)
class Collected:
    """The sends and policies of a batch. The last policy of a channel counts."""

    policies: dict[tuple[str, str], PolicyRow | None] = field(
        default_factory=dict[tuple[str, str], "PolicyRow | None"]
    )
    sends: dict[str, list[tuple[SendRow, Pending]]] = field(
        default_factory=dict[str, list[tuple[SendRow, Pending]]]
    )

    def send(self, queue: str, row: SendRow) -> Pending:
        pending = Pending()
        self.sends.setdefault(queue, []).append((row, pending))
        return pending

    def run(self, core: Core) -> Call[None]:
        """Return the call. Queues and channels are sorted, so that two batches lock rows in the
        same order and cannot deadlock."""
        policies = sorted(self.policies.items())
        sets = [(queue, channel, row) for (queue, channel), row in policies if row is not None]
        clears = [where for where, row in policies if row is None]
        names = sorted(self.sends)
        rows = [(queue, [row for row, _ in self.sends[queue]]) for queue in names]
        every = [row for _, items in rows for row in items]
        if any(row.group is not None for row in every):
            core.grouped = True

        def start() -> Op[None]:
            if not policies and not rows:
                return
            answers = yield from core.backend.batch(Batch(sets, clears, rows), core.now())
            found = [
                sends.results(queue, items, outcomes)
                for (queue, items), outcomes in zip(rows, answers, strict=True)
            ]
            for queue, results in zip(names, found, strict=True):
                for (_, pending), sent in zip(self.sends[queue], results, strict=True):
                    pending.fulfil(sent)

        return Call("batch", start, after=sends.after(core, every))


class BatchQueue:
    """A queue inside a batch."""

    def __init__(self, collected: Collected, name: str) -> None:
        self.name = name
        self._collected = collected

    def send(self, body: Any, **options: Any) -> Pending:
        """Collect a send; the options are those of Queue.send()."""
        return self._collected.send(self.name, sends.encode(Send(body, **options)))

    def channel(self, name: str) -> BatchChannel:
        """Return a channel of this queue."""
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
        row = policy_row(Policy(**policy))
        self.queue._collected.policies[self.queue.name, self.name] = row  # pyright: ignore[reportPrivateUsage]

    def clear_policy(self) -> None:
        """Collect the removal of this channel's policy."""
        self.queue._collected.policies[self.queue.name, self.name] = None  # pyright: ignore[reportPrivateUsage]
