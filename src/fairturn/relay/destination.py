"""What a destination must do, and the outcomes of a hand-over.

The relay leases messages, calls ``hand_over``, and then settles each message by its outcome. So a
crash in between causes a second hand-over at worst. ``Parcel.identity`` is the same both times, so
that a destination can detect the duplicate, if it is able to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fairturn.core.errors import FairturnError
from fairturn.core.message import Message


@dataclass(frozen=True, slots=True)
class Parcel:
    """A message that is handed over, and its due time in microseconds, by its database's clock."""

    message: Message
    due_us: int

    @property
    def identity(self) -> str:
        """32 characters, the same at every try, and of this message only. Ids are not enough: they
        may be equal in two databases, and a message that was replaced through its key keeps its
        id."""
        message = self.message
        what = (message.queue, message.id, message.created_at.isoformat(), self.due_us)
        digest = hashlib.blake2b(repr(what).encode(), digest_size=16)
        digest.update(message.raw)
        return digest.hexdigest()

    def remaining(self, now_us: int) -> float:
        """Seconds until it is due; 0: it is overdue."""
        return max(0, self.due_us - now_us) / 1_000_000


@dataclass(frozen=True, slots=True)
class Later:
    """Not now: try this message again. ``down``: the destination accepts no message at all now."""

    reason: str
    down: bool = False


@dataclass(frozen=True, slots=True)
class Never:
    """The destination will never accept this message: it becomes dead."""

    reason: str


Outcome = Later | Never | None  # None: handed over and confirmed


class DestinationError(FairturnError):
    """The address of a destination cannot be used; the text says what to change."""


class Destination(Protocol):
    shown: str
    """Its address for people and logs, without secrets."""
    ahead: float
    """How many seconds before its due time a message may be handed over, because the destination
    keeps the rest of the delay; 0: not before it is due."""

    @property
    def most(self) -> int:
        """The most messages of one hand-over. It may change over time."""
        ...

    async def hand_over(self, parcels: Sequence[Parcel], now_us: int) -> Sequence[Outcome]:
        """Hand the messages over, in this order if the destination has an order, and return the
        outcome of each. Errors are outcomes: it raises only when it is cancelled. ``now_us``: the
        time by the clock of the messages' database."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...
