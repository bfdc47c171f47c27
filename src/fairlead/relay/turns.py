"""How many calls to a server may be on their way at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable


class Turns:
    """One at first, and more and more while the server answers in time; half as many when it is
    slow or turns calls away, and then more again, one by one (so does TCP).

    Without it a server that is too slow for all calls at once gets those that timed out again, on
    top of the others, and never catches up. ``slow``: seconds of a call."""

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
        """Tell of a call that began at that time."""
        now = self._clock()
        if well and now - began <= self._slow:
            more = 1 if self._fewer_at is None else 1 / self._limit
            self._limit = min(self._limit + more, self._most)
        elif self._fewer_at is None or began >= self._fewer_at:
            # (What was on its way with a call that told it already says nothing new.)
            self._limit = max(float(self.limit // 2), 1.0)
            self._fewer_at = now
        self._changed.set()
