"""The seam of the relay: what is handed over, to what, and what can become of it.

A destination is an object with four names; `sqs.py`, `amqp.py` and `other.py` are such. The relay
leases messages, gives them to ``hand_over``, and only then does with each what its outcome says: a
crash in between hands over twice at worst. ``Parcel.identity`` is the same each time, so that
destinations that know how can tell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fairlead.errors import FairleadError
from fairlead.values import Message


@dataclass(frozen=True, slots=True)
class Parcel:
    """A message on its way, and when it is due: microseconds, by the clock of its database."""

    message: Message
    due_us: int

    @property
    def identity(self) -> str:
        """32 characters, the same at every try, and nobody else's: ids of two databases may be
        equal, and a message that was replaced through its key is another one, if only because of
        its time."""
        message = self.message
        what = (message.queue, message.id, message.created_at.isoformat(), self.due_us)
        digest = hashlib.blake2b(repr(what).encode(), digest_size=16)
        digest.update(message.raw)
        return digest.hexdigest()

    def remaining(self, now_us: int) -> float:
        """Seconds until it is due; 0 if it is overdue."""
        return max(0, self.due_us - now_us) / 1_000_000


@dataclass(frozen=True, slots=True)
class Later:
    """Not this time. ``down``: nor anything else for this destination, for a while."""

    reason: str
    down: bool = False


@dataclass(frozen=True, slots=True)
class Never:
    """The destination will never take this message: it is dead."""

    reason: str


Outcome = Later | Never | None  # None: handed over, and confirmed


class DestinationError(FairleadError):
    """A destination that cannot be used as it is written: the text says what to change."""


class Destination(Protocol):
    shown: str
    """What it is, for people and logs: without secrets."""
    ahead: float
    """Seconds before its due time at which a message may be handed over, because the destination
    keeps the rest of its delay; 0: not before."""

    @property
    def most(self) -> int:
        """How many messages it is given at once, at most: it may change with what it can take."""
        ...

    async def hand_over(self, parcels: Sequence[Parcel], now_us: int) -> Sequence[Outcome]:
        """Hand them over, in this order where the destination has one, and say what became of
        each. It raises nothing but for cancellation: what went wrong is an outcome. ``now_us`` is
        the time by the clock of the messages' database."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
