"""How many messages of a queue may be in flight at once, almost without counting them.

The database knows how many are, but asking makes it count the queue. So each process gives a part
of the room it knows of unasked, and asks when that is used up: a quarter of the limit at first,
half of what was left when it last asked, and so more often the nearer the limit is. What is deleted
through this process is room again: a consumer that keeps up never asks. Several processes may pass
the limit by what they give unasked.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from fairlead.aio.database import AsyncDatabase

LEAST = 1_000  # messages given between two questions, while there is room for so many
AGAIN = 1.0  # seconds after which a full queue is asked again


@dataclass(frozen=True, slots=True)
class Caps:
    """The limits of AWS."""

    standard: int = 120_000
    fifo: int = 20_000

    def of(self, ordered: bool) -> int:
        return self.fifo if ordered else self.standard


@dataclass(slots=True)
class _Share:
    room: int  # below the limit, as far as we know
    unasked: int  # of which so many may be given before the database is asked
    full_until: float = 0.0


class InFlight:
    def __init__(self, db: AsyncDatabase, caps: Caps) -> None:
        self._db = db
        self.caps = caps
        self._shares: dict[str, _Share] = {}  # of queues that were asked, until all is deleted

    async def allowed(self, queue: str, ordered: bool, n: int) -> int:
        """How many of ``n`` messages may be given now; 0: the queue is at its limit."""
        share = self._shares.get(queue)
        if share is None:
            share = self._shares[queue] = _first(self.caps.of(ordered))
        if n > share.unasked or n > share.room:
            await self._ask(queue, share, self.caps.of(ordered))
        return max(0, min(n, share.room))

    async def _ask(self, queue: str, share: _Share, cap: int) -> None:
        if time.monotonic() < share.full_until and share.room <= 0:
            return
        share.unasked += cap // 100  # one asks, the others go on
        share.room = cap - (await self._db.queue(queue).stats()).leased
        share.unasked = min(share.room, max(share.room // 2, LEAST))
        share.full_until = time.monotonic() + AGAIN if share.room <= 0 else 0.0

    def given(self, queue: str, count: int) -> None:
        share = self._shares.get(queue)
        if share is not None:
            share.room -= count
            share.unasked -= count

    def ended(self, queue: str, ordered: bool, count: int) -> bool:
        """Deleted. True if there was no room before, as far as we know."""
        share = self._shares.get(queue)
        if share is None:
            return False
        was_full = share.room <= 0
        first = _first(self.caps.of(ordered))
        share.room = max(share.room, 0) + count
        share.unasked = min(max(share.unasked, 0) + count, first.unasked)
        if share.room >= first.room:
            del self._shares[queue]
        return was_full


def _first(cap: int) -> _Share:
    return _Share(cap, cap // 4)
