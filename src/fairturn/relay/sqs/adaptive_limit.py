"""How many calls to a server may be open at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable


class AdaptiveLimit:
    """The limit starts at 1 and grows by 1 with each call that the server answers in time. A slow
    or failed call halves it; after that it grows slowly, by about 1 for as many calls as the limit
    (as in TCP).

    Without it, a slow server would get the calls that timed out again, in addition to the others,
    and never catch up. ``slow``: a call that takes more seconds is slow."""

    def __init__(self, most: int, slow: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._slow = slow
        self._clock = clock
        self._limit = 1.0
        self._busy = 0
        self._changed = asyncio.Event()
        self._fewer_at: float | None = None

    @property
    def limit(self) -> int:
        return int(self._limit)

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncGenerator[None]:
        """Around one call: waits until it may begin."""
        while self._busy >= self.limit:
            self._changed.clear()
            await self._changed.wait()
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._changed.set()

    def ended(self, began: float, well: bool) -> None:
        """Adapt the limit to a call that has ended. ``well``: the server
        accepted it."""
        now = self._clock()
        if well and now - began <= self._slow:
            more = 1 if self._fewer_at is None else 1 / self._limit
            self._limit = min(self._limit + more, self._most)
        elif self._fewer_at is None or began >= self._fewer_at:
            # Calls that began before the last reduction do not reduce the limit again.
            self._limit = max(float(self.limit // 2), 1.0)
            self._fewer_at = now
        self._changed.set()
