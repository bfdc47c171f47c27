"""A received message and its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead.operations import receiving
from fairlead.operations.handles import extended
from fairlead.operations.receiving import KEEP
from fairlead.values import Duration, Message, Moment

if TYPE_CHECKING:
    from fairlead.sync.queue import Queue


class LeasedMessage(Message):
    """A message and the lease on this delivery of it. A lost lease raises ``LeaseLost``."""

    __slots__ = ("_door",)

    def __init__(self, door: Queue, row: tuple[Any, ...]) -> None:
        self.queue = door.name
        self._row = row
        self._door = door

    def ack(self) -> None:
        """Done: remove the message (or keep it as done, where the queue has a retention)."""
        door = self._door
        door.call(receiving.one(door.core, "ack", receiving.ack(door.core, self.queue), self))

    def complete(self, result: Any = None) -> None:
        """Done, and keep the message with its result until the queue's retention ends."""
        door = self._door
        verb = receiving.complete(door.core, self.queue, result)
        door.call(receiving.one(door.core, "complete", verb, self))

    def defer(
        self, delay: Duration | None = None, *, at: Moment | None = None, memo: Any = KEEP
    ) -> None:
        """Not now: run it again later. Not a failure; attempts start at 0 again.

        ``memo`` is saved work, kept when omitted, cleared by None."""
        door = self._door
        verb = receiving.defer(door.core, self.queue, delay, at, memo)
        door.call(receiving.one(door.core, "defer", verb, self))

    def fail(
        self,
        error: Any = "failed",
        *,
        delay: Duration | None = None,
        details: Any = None,
        reference: str | None = None,
    ) -> None:
        """It went wrong: log the error and retry after ``delay`` (default: the queue's back-off),
        or bury the message as dead when it has no attempts left."""
        door = self._door
        verb = receiving.fail(door.core, self.queue, error, delay, details, reference)
        door.call(receiving.one(door.core, "fail", verb, self))

    def kill(
        self, error: Any = "killed", *, details: Any = None, reference: str | None = None
    ) -> None:
        """It will never work: log the error and bury the message as dead at once."""
        door = self._door
        verb = receiving.kill(door.core, self.queue, error, details, reference)
        door.call(receiving.one(door.core, "kill", verb, self))

    def extend(self, lease: Duration | None = None, *, exact: bool = False) -> None:
        """Heartbeat: the lease ends ``lease`` seconds from now, never earlier than before.

        ``exact``: then and not later, whatever its permit says; with 0 it has expired now."""
        door = self._door
        call = receiving.extend_one(door.core, self.queue, self, lease, exact)
        self._row = extended(self._row, door.call(call))

    def progress(self, value: float | None = None, *, note: str | None = None) -> None:
        """Say how far it is (0.0 to 1.0) and what it is doing; shown by peek and top, told to those
        who wait with ``partial``."""
        door = self._door
        verb = receiving.progress(door.core, self.queue, value, note)
        door.call(receiving.one(door.core, "progress", verb, self))

    def release(self) -> None:
        """Give it back unworked: ready at once, and the attempt does not count."""
        door = self._door
        door.call(
            receiving.one(door.core, "release", receiving.release(door.core, self.queue), self)
        )

    def using(self, connection: Any) -> LeasedMessage:
        """The same lease, whose verbs run on your connection, in your transaction."""
        return LeasedMessage(self._door.using(connection), self._row)
