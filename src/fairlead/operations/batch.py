"""A batch: sends and policy changes over many queues, in one transaction (semantics §16)."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlead.backends.base import Op, PolicyRow, SendRow
from fairlead.operations import sending
from fairlead.operations.call import Call, Core
from fairlead.values import Sent


class Pending:
    """A send of a batch; ``sent`` is there once the batch has run."""

    __slots__ = ("_sent",)

    def __init__(self) -> None:
        self._sent: Sent | None = None

    @property
    def sent(self) -> Sent:
        if self._sent is None:
            raise RuntimeError("the batch has not run yet: look after its with block")
        return self._sent

    def fulfil(self, sent: Sent) -> None:
        self._sent = sent


@dataclass(slots=True)
class Collected:
    """What a batch has collected. The last word on a policy counts."""

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
        """Sorted, so that two batches take their locks in the same order."""
        policies = sorted(self.policies.items())
        sets = [(queue, channel, row) for (queue, channel), row in policies if row is not None]
        clears = [where for where, row in policies if row is None]
        queues = sorted(self.sends)
        rows = [(queue, [row for row, _ in self.sends[queue]]) for queue in queues]
        every = [row for _, items in rows for row in items]
        if any(row[15] is not None for row in every):
            core.grouped = True

        def start() -> Op[None]:
            if not policies and not rows:
                return
            answers = yield from core.backend.batch(sets, clears, rows, core.now())
            for (queue, items), outcomes in zip(rows, answers, strict=True):
                sending.check_outcomes(queue, items, outcomes)
            for queue, outcomes in zip(queues, answers, strict=True):
                for (_, pending), (id, outcome) in zip(self.sends[queue], outcomes, strict=True):
                    pending.fulfil(sending.sent(id, outcome))

        return Call("batch", start, after=sending.after(core, every))
