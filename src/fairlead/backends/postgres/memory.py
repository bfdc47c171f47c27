"""What a consumer of PostgreSQL remembers: where each channel was left off, and when to look again.

While anybody holds an old snapshot (a report, a backup, a replica) the index entries of acked
messages cannot be removed and pile up in front of the live ones. A consumer therefore remembers the
last (rank, due, id) it was given from each channel and passes it in; the scan starts there. Rows
that lie before the hint (released, recovered, committed late) are found by looking from the start:
whenever a receive comes up short, and at least every 100 ms, or every twenty times what such a look
takes, if that is longer.
"""

from __future__ import annotations

import time
from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import Any

from fairlead.backends.base import Row

LOOK = 0.1  # seconds between two looks from the start
SHARE = 20  # … or this many times its own duration
MOST = 20_000  # channels remembered


class Hints:
    """Positions by channel, and the versions and lease floors seen last."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[int, int, int]] = {}
        self._names: list[str] = []
        self.versions: list[int] | None = None
        self.floors: dict[str, int] = {}
        self.lease_floor = 0
        self.due_floor = 0
        self._next_look = 0.0

    def look_now(self) -> bool:
        """Is it time to look from the start?"""
        return time.monotonic() >= self._next_look

    def looked(self, started: float, now_us: int) -> None:
        """A receive looked from the start: everything due or expired before ``now_us`` was met."""
        done = time.monotonic()
        self._next_look = done + max(LOOK, SHARE * (done - started))
        self.lease_floor = self.due_floor = now_us
        self._at.clear()
        self._names.clear()

    def short(self) -> None:
        """A hinted receive came up short: look from the start next time."""
        self._next_look = 0.0

    def given(self, rows: Sequence[Row]) -> None:
        """Remember the last message of each channel (rows are in order within a channel)."""
        at = self._at
        if len(at) > MOST:
            at.clear()
            self._names.clear()
        for row in rows:
            channel = row[1]
            if channel not in at:
                insort(self._names, channel)
            at[channel] = (-row[7], row[8], row[0])

    def near(self, channel: str | None, n: int) -> list[tuple[str, int, int, int]]:
        """The hints of the channels that a receive of ``n`` after ``channel`` may meet, by name."""
        names = self._names
        if len(names) > 2 * n:
            start = 0 if channel is None else bisect_right(names, channel)
            names = sorted({*names[start : start + n], *names[: max(0, start + n - len(names))]})
        at = self._at
        return [(name, *at[name]) for name in names]

    def learn(self, extra: dict[str, Any]) -> None:
        """Take over what the trailer of a receive tells."""
        self.versions = extra.get("versions")
        floors = extra.get("floors")
        if floors:
            if len(self.floors) > MOST:
                self.floors.clear()
            self.floors.update(floors)
