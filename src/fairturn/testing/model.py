"""The memory backend of a test, which also records the messages that were sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from fairturn.backends import base
from fairturn.backends.memory import MemoryBackend
from fairturn.backends.memory.state import WAITING, Message, Queue, State, Work
from fairturn.core import message as messages
from fairturn.core.rows import SendRow


class World(NamedTuple):
    """The whole state of the model."""

    state: State
    sent: list[messages.Message]


class Model(MemoryBackend):
    """``sent`` holds each message as it was sent. A message that replaced a waiting one takes its
    place in the list; a duplicate, which changed nothing, is left out."""

    def __init__(self, clock: Callable[[], int] | None, records: bool) -> None:
        if clock is None:
            super().__init__()
        else:
            super().__init__(clock)
        self.sent: list[messages.Message] = []
        self._records = records

    # --- what was sent -------------------------------------------------------------------------
    def _send_one(
        self, q: Queue, item: SendRow, holder: Message | None, outcome: str, now: int
    ) -> int:
        id = super()._send_one(q, item, holder, outcome, now)
        if outcome in (base.SENT, base.REPLACED):
            waited = holder is not None and outcome == base.REPLACED and holder.state in WAITING
            self._record(q, id, replaces=waited)
        return id

    def _release(self, q: Queue, work: Work, told: dict[str, Any], now: int) -> None:
        super()._release(q, work, told, now)
        self._record(q, work.message.id, replaces=False)

    def _record(self, q: Queue, id: int, replaces: bool) -> None:
        if not self._records:
            return
        message = messages.Message(q.name, q.messages[id].peek_row)
        if replaces:
            for at in reversed(range(len(self.sent))):
                if self.sent[at].id == id:
                    self.sent[at] = message
                    return
        self.sent.append(message)

    # --- copies of the state ------------------------------------------------------------------
    def snapshot(self) -> World:
        return World(cast("State", super().snapshot()), [*self.sent])

    def restore(self, snapshot: object) -> None:
        assert isinstance(snapshot, World)
        super().restore(snapshot.state)
        self.sent = [*snapshot.sent]

    def swap(self, world: World) -> World:
        """Replace the state by another one, and return the previous one."""
        before = World(self._state, self.sent)
        self._state, self.sent = world
        return before

    # An id is never used twice, not even if the transaction that took it is rolled back.
    @property
    def last_id(self) -> int:
        return self._state.last_id

    @last_id.setter
    def last_id(self, id: int) -> None:
        self._state.last_id = id
