"""The long poll of a receive, without the sleeping: pure decisions for both doors."""

from __future__ import annotations

import time
from dataclasses import replace

from fairlead import limits
from fairlead.backends.base import Receive, Received

# Seconds between two looks while waiting, doubling from the first to the most: where the database
# cannot wake us, and where it can. (A wake-up can be lost to a sender that looked for sleepers just
# before we lay down: the first look comes soon.)
POLLING = (0.002, 0.1)
LISTENING = (0.05, 1.0)


class Pace:
    """How long to sleep before looking again, if nothing wakes us."""

    def __init__(self) -> None:
        self._pauses = {False: POLLING[0], True: LISTENING[0]}

    def next(self, listening: bool) -> float:
        pause = self._pauses[listening]
        self._pauses[listening] = min(pause * 2, (LISTENING if listening else POLLING)[1])
        return pause


SHARE = 10  # a look that takes long may take one part in this many


def rest(spent: float) -> float:
    """How long to leave the database alone after a look, whoever wakes us: nothing after a short
    one."""
    return spent * (SHARE - 1) if spent > 0.01 else 0.0


class Deadline:
    """A time-out in microseconds, or none."""

    def __init__(self, us: int | None) -> None:
        self._at = None if us is None else time.monotonic() + us / limits.SECOND

    def over(self) -> bool:
        return self._at is not None and time.monotonic() >= self._at

    def within(self, seconds: float) -> float:
        """So many seconds, or less if it is over before."""
        left = seconds if self._at is None else self._at - time.monotonic()
        return max(0.0, min(seconds, left))


class Poll:
    """One receive with its deadline. ``after`` says how long to sleep, or None: answer now."""

    def __init__(self, args: Receive, wait_us: int) -> None:
        self.args = args
        self.lost: list[int] = []
        self.retry_after: float | None = 0.0
        self._deadline = time.monotonic() + wait_us / limits.SECOND
        self._waits = wait_us > 0
        self._pace = Pace()

    def after(self, received: Received, listening: bool) -> float | None:
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
        pause = self._pace.next(listening)
        if after is not None:
            pause = min(pause, after / limits.SECOND)
        return min(pause, left)
