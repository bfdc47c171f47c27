"""Limits the number of messages in flight of a queue, almost without counting them.

A count is expensive: the database has to read the queue. So each process has a budget of messages
that it may receive before the next count: a quarter of the limit at first, later half of the room
that the last count found. So it counts more often near the limit. Messages deleted by this process
make room again: a consumer that keeps up never causes a count. Several processes together may
exceed the limit by their budgets.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from fairturn.aio.database import AsyncDatabase

LEAST = 1_000  # the smallest budget, while there is room for so many
AGAIN = 1.0  # seconds after which a full queue is counted again


@dataclass(frozen=True, slots=True)
class Caps:
    """The limits of AWS."""

    standard: int = 120_000
    fifo: int = 20_000

    def of(self, ordered: bool) -> int:
        return self.fifo if ordered else self.standard


@dataclass(slots=True)
class _Share:
    room: int  # messages below the limit, as far as we know
    budget: int  # messages that may be received before the next count
    full_until: float = 0.0


class InflightLimit:
    def __init__(self, db: AsyncDatabase, caps: Caps) -> None:
        self._db = db
        self.caps = caps
        self._shares: dict[str, _Share] = {}  # by queue, while messages of it are in flight

    async def allowed(self, queue: str, ordered: bool, n: int) -> int:
        """Return how many of ``n`` messages may be received now; 0: the queue is at its limit."""
        share = self._shares.get(queue)
        if share is None:
            share = self._shares[queue] = _first(self.caps.of(ordered))
        if n > share.budget or n > share.room:
            await self._count(queue, share, self.caps.of(ordered))
        return max(0, min(n, share.room))

    async def _count(self, queue: str, share: _Share, cap: int) -> None:
        if time.monotonic() < share.full_until and share.room <= 0:
            return
        share.budget += cap // 100  # concurrent receives go on during the count
        share.room = cap - (await self._db.queue(queue).stats()).leased
        share.budget = min(share.room, max(share.room // 2, LEAST))
        share.full_until = time.monotonic() + AGAIN if share.room <= 0 else 0.0

    def received(self, queue: str, count: int) -> None:
        share = self._shares.get(queue)
        if share is not None:
            share.room -= count
            share.budget -= count

    def deleted(self, queue: str, ordered: bool, count: int) -> bool:
        """``count`` messages were deleted. True if there was no room before, as far as we know."""
        share = self._shares.get(queue)
        if share is None:
            return False
        was_full = share.room <= 0
        first = _first(self.caps.of(ordered))
        share.room = max(share.room, 0) + count
        share.budget = min(max(share.budget, 0) + count, first.budget)
        if share.room >= first.room:
            del self._shares[queue]
        return was_full


def _first(cap: int) -> _Share:
    return _Share(cap, cap // 4)
