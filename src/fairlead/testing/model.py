"""The model backend, which also writes down what was sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from fairlead import values
from fairlead.backends import base
from fairlead.backends.memory import MemoryBackend
from fairlead.backends.memory.state import WAITING, Message, Queue, State, Work


class World(NamedTuple):
    """Everything the model knows."""

    state: State
    sent: list[values.Message]


class Model(MemoryBackend):
    """``sent`` has each message as it was sent. One that replaced a waiting message stands in its
    place; a duplicate, which changed nothing, is not there."""

    def __init__(self, clock: Callable[[], int] | None, records: bool) -> None:
        if clock is None:
            super().__init__()
        else:
            super().__init__(clock)
        self.sent: list[values.Message] = []
        self._records = records

    # --- what was sent -------------------------------------------------------------------------
    def _send_one(
        self, q: Queue, item: base.SendRow, holder: Message | None, outcome: str, now: int
    ) -> int:
        id = super()._send_one(q, item, holder, outcome, now)
        if outcome in (base.SENT, base.REPLACED):
            waited = holder is not None and outcome == base.REPLACED and holder.state in WAITING
            self._note(q, id, waited)
        return id

    def _release(self, q: Queue, work: Work, told: dict[str, Any], now: int) -> None:
        super()._release(q, work, told, now)
        self._note(q, work.message.id, False)

    def _note(self, q: Queue, id: int, again: bool) -> None:
        if not self._records:
            return
        message = values.Message(q.name, q.messages[id].peek_row)
        ids = [earlier.id for earlier in self.sent] if again else []
        if id in ids:
            self.sent[len(ids) - 1 - ids[::-1].index(id)] = message  # its last life
        else:
            self.sent.append(message)

    # --- copies of everything ------------------------------------------------------------------
    def snapshot(self) -> World:
        return World(cast("State", super().snapshot()), [*self.sent])

    def restore(self, snapshot: object) -> None:
        assert isinstance(snapshot, World)
        super().restore(snapshot.state)
        self.sent = [*snapshot.sent]

    def swap(self, world: World) -> World:
        """Put another world in the place of this one, which is returned."""
        before = World(self._state, self.sent)
        self._state, self.sent = world
        return before

    # An id is never given twice, not even when the transaction that drew it comes to nothing.
    @property
    def last_id(self) -> int:
        return self._state.last_id

    @last_id.setter
    def last_id(self, id: int) -> None:
        self._state.last_id = id
