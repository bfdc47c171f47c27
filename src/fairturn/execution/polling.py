"""Decide how long a waiting call pauses between two checks. The callers in aio/ and sync/ sleep."""

from __future__ import annotations

import time
from dataclasses import replace

from fairturn.backends.base import Receive, Received
from fairturn.core import limits
from fairturn.core.errors import DatabaseUnavailable
from fairturn.execution.retries import absence

# Seconds between two checks: the first pause, and the longest; each pause is twice the one before.
# POLLING: the database cannot wake us. LISTENING: it can. (A sender that looked for listeners just
# before we subscribed does not wake us; therefore the first pause is short.)
POLLING = (0.002, 0.1)
LISTENING = (0.05, 1.0)


class Pace:
    """The pauses of one waiting call. They double; a wake-up ends a pause early."""

    def __init__(self) -> None:
        (polling, _), (listening, _) = POLLING, LISTENING
        self._pauses = {False: polling, True: listening}

    def next(self, listening: bool) -> float:
        pause = self._pauses[listening]
        _, most = LISTENING if listening else POLLING
        self._pauses[listening] = min(pause * 2, most)
        return pause


SHARE = 10  # a slow check may take one tenth of the time


def rest(spent: float) -> float:
    """Return the shortest pause after a check that took ``spent`` seconds; a wake-up does not
    shorten it. It is 0 after a quick check."""
    return spent * (SHARE - 1) if spent > 0.01 else 0.0


class Deadline:
    """The end of a time-out given in microseconds; None: there is none."""

    def __init__(self, us: int | None) -> None:
        self._at = None if us is None else time.monotonic() + us / limits.SECOND

    def over(self) -> bool:
        return self._at is not None and time.monotonic() >= self._at

    def within(self, seconds: float) -> float:
        """Return ``seconds``, or the time until the deadline if that is shorter."""
        left = seconds if self._at is None else self._at - time.monotonic()
        return max(0.0, min(seconds, left))


class Poll:
    """One receive that may wait."""

    def __init__(self, args: Receive, wait_us: int) -> None:
        self.args = args
        self.lost: list[int] = []
        self.retry_after: float | None = 0.0
        self._deadline = time.monotonic() + wait_us / limits.SECOND
        self._pace = Pace() if wait_us else None  # None: it does not wait
        self._waits = False  # there was a result, and it was empty
        self._failures = 0  # one after the other

    def after(self, received: Received, listening: bool) -> float | None:
        """Return how long to pause after this result, or None to return it to the caller."""
        self.lost += received.lost
        self._failures = 0
        if self.args.acks:
            # They are committed; the next query must not carry them again.
            self.args = replace(self.args, acks=())
        if received.rows:
            return None
        after = received.retry_after_us
        self.retry_after = None if after is None else after / limits.SECOND
        if self._pace is None or (left := self._deadline - time.monotonic()) <= 0:
            return None
        self._waits = True
        pause = self._pace.next(listening)
        if after is not None:
            pause = min(pause, after / limits.SECOND)
        return min(pause, left)

    def outage(self, error: DatabaseUnavailable) -> float:
        """Return how long to pause after this error. A receive that has begun to wait outlasts an
        absence of the database, such as a failover. Else, or when its time is over, raise it."""
        left = self._deadline - time.monotonic()
        # Under a permit the caller must know that messages may have been leased.
        if not self._waits or self.args.permit is not None or left <= 0:
            raise error
        self._failures += 1
        return min(absence(self._failures), left)
