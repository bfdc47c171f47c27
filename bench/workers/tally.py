"""The report of a Python worker on its drain; `tally.mjs` is the same for Node.

It prints two lines: {"event": "started"} when the first handler starts, so that the parent can read
PostgreSQL's CPU time, and a line of figures at the end.
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
LOOK = 0.001  # seconds between two checks for unfinished messages, after the last handler


class Tally:
    """Counts handlers. Make it in the event loop that awaits `finish`."""

    def __init__(self, messages: int, cap: float) -> None:
        self.messages = messages
        self.cap = cap
        self._count = itertools.count()  # next() is atomic, so threads may call handled()
        self._all = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._first = 0.0
        self._cpu = 0.0
        self._order: list[str] = []
        self._running: Counter[str] = Counter()
        self._overlaps = 0

    def handled(self) -> None:
        """Note that a handler ran that does nothing."""
        n = next(self._count)
        if n == 0:
            self._begin()
        if n == self.messages - 1:
            self._end()

    def enter(self, channel: str) -> None:
        """Note that a handler of a channel starts. Only for handlers in the event loop."""
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
        self._loop.call_soon_threadsafe(self._all.set)

    async def finish(self, remaining: Callable[[], Awaitable[int]]) -> None:
        """Wait for the last handler and its ack, or until the cap. Then print, and end the process
        without a shutdown: stopping is not measured, and the database is dropped."""
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
            "client_cpu": time.process_time() - self._cpu,
            "capped": capped,
        }
        if self._order:
            figures |= {"distinct": len(set(self._order)), "overlaps": self._overlaps}
        print(json.dumps(figures), flush=True)
        sys.stdin.readline()  # keep our connections until the parent has read PostgreSQL's CPU time
        os._exit(0)


def channel_of(i: int, messages: int) -> str:
    """The channel of message i: all of channel 0 come first, then all of channel 1, … With 20
    messages in each, a FIFO queue serves 50 channels in its first 1,000 deliveries."""
    return f"c{i * CHANNELS // messages}"
