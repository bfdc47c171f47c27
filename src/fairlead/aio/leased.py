"""A received message and its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead.operations import receiving
from fairlead.operations.handles import extended
from fairlead.operations.receiving import KEEP
from fairlead.values import Duration, Message, Moment

if TYPE_CHECKING:
    from fairlead.aio.queue import AsyncQueue


class AsyncLeasedMessage(Message):
    """A message and the lease on this delivery of it. A lost lease raises ``LeaseLost``."""

    __slots__ = ("_door",)

    def __init__(self, door: AsyncQueue, row: tuple[Any, ...]) -> None:
        self.queue = door.name
        self._row = row
        self._door = door

    async def ack(self) -> None:
        """Done: remove the message (or keep it as done, where the queue has a retention)."""
        door = self._door
        await door.call(receiving.one(door.core, "ack", receiving.ack(door.core, self.queue), self))

    async def complete(self, result: Any = None) -> None:
        """Done, and keep the message with its result until the queue's retention ends."""
        door = self._door
        verb = receiving.complete(door.core, self.queue, result)
        await door.call(receiving.one(door.core, "complete", verb, self))

    async def defer(
        self, delay: Duration | None = None, *, at: Moment | None = None, memo: Any = KEEP
    ) -> None:
        """Not now: run it again later. Not a failure; attempts start at 0 again.

        ``memo`` is saved work, kept when omitted, cleared by None."""
        door = self._door
        verb = receiving.defer(door.core, self.queue, delay, at, memo)
        await door.call(receiving.one(door.core, "defer", verb, self))

    async def fail(
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
        await door.call(receiving.one(door.core, "fail", verb, self))

    async def kill(
        self, error: Any = "killed", *, details: Any = None, reference: str | None = None
    ) -> None:
        """It will never work: log the error and bury the message as dead at once."""
        door = self._door
        verb = receiving.kill(door.core, self.queue, error, details, reference)
        await door.call(receiving.one(door.core, "kill", verb, self))

    async def extend(self, lease: Duration | None = None, *, exact: bool = False) -> None:
        """Heartbeat: the lease ends ``lease`` seconds from now, never earlier than before.

        ``exact``: then and not later, whatever its permit says; with 0 it has expired now."""
        door = self._door
        call = receiving.extend_one(door.core, self.queue, self, lease, exact)
        self._row = extended(self._row, await door.call(call))

    async def progress(self, value: float | None = None, *, note: str | None = None) -> None:
        """Say how far it is (0.0 to 1.0) and what it is doing; shown by peek and top, told to those
        who wait with ``partial``."""
        door = self._door
        verb = receiving.progress(door.core, self.queue, value, note)
        await door.call(receiving.one(door.core, "progress", verb, self))

    async def release(self) -> None:
        """Give it back unworked: ready at once, and the attempt does not count."""
        door = self._door
        await door.call(
            receiving.one(door.core, "release", receiving.release(door.core, self.queue), self)
        )

    def using(self, connection: Any) -> AsyncLeasedMessage:
        """The same lease, whose verbs run on your connection, in your transaction."""
        return AsyncLeasedMessage(self._door.using(connection), self._row)


def runner_of(message: AsyncLeasedMessage) -> Any:
    """What runs its verbs."""
    return message._door.runner  # pyright: ignore[reportPrivateUsage]
