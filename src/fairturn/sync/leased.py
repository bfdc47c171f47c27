# Generated from aio/leased.py by `make generate`: edit that file.
"""A received message and its verbs."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairturn.backends.verbs import ACK, RELEASE
from fairturn.core.message import Message
from fairturn.core.rows import AnyMessageRow
from fairturn.core.values import Duration, Moment
from fairturn.operations import receives
from fairturn.operations.lease_handle import extended
from fairturn.operations.receives import KEEP

if TYPE_CHECKING:
    from fairturn.sync.queue import Queue


class LeasedMessage(Message):
    """A message and the lease on this delivery of it. A lost lease raises ``LeaseLost``."""

    __slots__ = ("_door",)

    def __init__(self, door: Queue, row: AnyMessageRow) -> None:
        self.queue = door.name
        self._row = row
        self._door = door

    @property
    def token(self) -> int:
        """With the id, the lease: ``queue.lease(message.id, message.token)``. No other lease has
        this token."""
        return self._row.token

    def ack(self) -> None:
        """Done: remove the message (or keep it as done, if the queue has a retention)."""
        self._door._runner.run(receives.one(self._door._core, ACK, self))

    def complete(self, result: Any = None) -> None:
        """Done, and keep the message with its result until the queue's retention ends."""
        self._door._runner.run(receives.one(self._door._core, receives.complete(result), self))

    def defer(
        self, delay: Duration | None = None, *, at: Moment | None = None, memo: Any = KEEP
    ) -> None:
        """Not now: run it again later. Not a failure; attempts start at 0 again.

        ``memo`` is saved work, kept when omitted, cleared by None."""
        verb = receives.defer(delay, at, memo)
        self._door._runner.run(receives.one(self._door._core, verb, self))

    def fail(
        self,
        error: Any = "failed",
        *,
        delay: Duration | None = None,
        details: Any = None,
        reference: str | None = None,
    ) -> None:
        """It failed: log the error and retry after ``delay`` (default: the queue's back-off); or
        the message is dead, if it has no attempts left."""
        verb = receives.fail(error, delay, details, reference)
        self._door._runner.run(receives.one(self._door._core, verb, self))

    def kill(
        self, error: Any = "killed", *, details: Any = None, reference: str | None = None
    ) -> None:
        """It can never succeed: log the error; the message is dead immediately."""
        verb = receives.kill(error, details, reference)
        self._door._runner.run(receives.one(self._door._core, verb, self))

    def extend(self, lease: Duration | None = None, *, exact: bool = False) -> None:
        """Heartbeat: the lease ends ``lease`` seconds from now, never earlier than before.

        ``exact``: it ends then and not later, whatever its permit says; with 0 it has expired."""
        verb = receives.extend(lease, exact)
        applied = self._door._runner.run(receives.one(self._door._core, verb, self))
        self._row = extended(self._row, applied.lease_until)

    def progress(self, value: float | None = None, *, note: str | None = None) -> None:
        """Say how far the work is (0.0 to 1.0), and what it is doing. ``peek`` and ``top`` show it;
        a wait with ``partial`` returns it."""
        verb = receives.progress(value, note)
        self._door._runner.run(receives.one(self._door._core, verb, self))

    def release(self) -> None:
        """Give the message back: it is ready again, and the attempt does not count."""
        self._door._runner.run(receives.one(self._door._core, RELEASE, self))

    def using(self, connection: Any) -> LeasedMessage:
        """The same lease, whose verbs run on your connection, in your transaction."""
        return LeasedMessage(self._door.using(connection), self._row)
