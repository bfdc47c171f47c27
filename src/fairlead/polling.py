"""The long poll of a receive, without the sleeping: pure decisions for both doors."""

from __future__ import annotations

import time
from dataclasses import replace

from fairlead import limits
from fairlead.backends.base import Receive, Received

FIRST, MOST = 0.002, 0.1  # seconds between two looks while waiting: doubling from FIRST to MOST


class Poll:
    """One receive with its deadline. ``after`` says how long to sleep, or None: answer now."""

    def __init__(self, args: Receive, wait_us: int) -> None:
        self.args = args
        self.lost: list[int] = []
        self.retry_after: float | None = 0.0
        self._deadline = time.monotonic() + wait_us / limits.SECOND
        self._waits = wait_us > 0
        self._pause = FIRST

    def after(self, received: Received) -> float | None:
        self.lost += received.lost
        if self.args.acks:
            # They are committed now; a second look must not carry them again.
            self.args = replace(self.args, acks=())
        if received.rows:
            return None
        after = received.retry_after_us
        self.retry_after = None if after is None else after / limits.SECOND
        left = self._deadline - time.monotonic() if self._waits else 0.0
        if left <= 0:
            return None
        pause = self._pause if after is None else min(self._pause, after / limits.SECOND)
        self._pause = min(self._pause * 2, MOST)
        return min(pause, left)
