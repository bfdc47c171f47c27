"""What a Python worker reports of its drain; `tally.mjs` is the same for Node.

Two lines go to standard output: {"event": "started"} at the first handler's start, so that the
parent can look at PostgreSQL's CPU clock, and one line of figures at the end.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

FIRST = 1000  # deliveries among which the channels are counted
CHANNELS = 1000
LOOK = 0.001  # seconds between looks at what is left, after the last handler


class Tally:
    """Counts handlers; make it inside the event loop that waits for `finish`."""

    def __init__(self, messages: int, cap: float) -> None:
        self.messages = messages
        self.cap = cap
        self._count = itertools.count()  # next() is atomic, so threads may call handled()
        self._all = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._first = 0.0
        self._last = 0.0
        self._cpu = 0.0
        self._order: list[str] = []
        self._running: Counter[str] = Counter()
        self._overlaps = 0

    def handled(self) -> None:
        """A no-op handler ran: its start is its end."""
        n = next(self._count)
        if n == 0:
            self._begin()
        if n == self.messages - 1:
            self._end()

    def enter(self, channel: str) -> None:
        """A handler of a channel starts; on the event loop only."""
        if not self._first:
            self._begin()
        if len(self._order) < FIRST:
            self._order.append(channel)
        self._overlaps += self._running[channel] > 0
        self._running[channel] += 1

    def leave(self, channel: str) -> None:
        self._running[channel] -= 1
        if next(self._count) == self.messages - 1:
            self._end()

    def _begin(self) -> None:
        self._cpu = time.process_time()
        self._first = time.perf_counter()
        print(json.dumps({"event": "started"}), flush=True)

    def _end(self) -> None:
        self._last = time.perf_counter()
        self._loop.call_soon_threadsafe(self._all.set)

    async def finish(self, remaining: Callable[[], Awaitable[int]]) -> None:
        """Wait for the last handler and its acknowledgement, or the cap; print; end the process.

        The process ends without a shutdown: how long a worker takes to stop is not measured, and
        the database is dropped.
        """
        capped = False
        try:
            async with asyncio.timeout(self.cap):
                await self._all.wait()
                while await remaining():
                    await asyncio.sleep(LOOK)
        except TimeoutError:
            capped = True
        now = time.perf_counter()
        if not self._first:
            sys.exit(f"no handler ran within {self.cap:.0f} s")
        figures: dict[str, Any] = {
            "handled": next(self._count),
            "seconds": now - self._first,
            "handler_seconds": (self._last or now) - self._first,
            "client_cpu": time.process_time() - self._cpu,
            "capped": capped,
        }
        if self._order:
            figures |= {"distinct": len(set(self._order)), "overlaps": self._overlaps}
        print(json.dumps(figures), flush=True)
        sys.stdin.readline()  # our connections live until the parent has read PostgreSQL's clock
        os._exit(0)


def channel_of(i: int, messages: int) -> str:
    """Arrival order: all messages of channel 0, then of channel 1, … A FIFO queue serves 50
    channels in its first 1,000 deliveries when there are 20 of each."""
    return f"c{i * CHANNELS // messages}"
