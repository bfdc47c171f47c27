"""What a consumer of PostgreSQL remembers: where each channel was left off, and when to look again.

While anybody holds an old snapshot (a report, a backup, a replica) the index entries of acked
messages cannot be removed and pile up in front of the live ones. A consumer therefore remembers the
last (rank, due, id) it was given from each channel and passes it in; the scan starts there. What
lies before a hint (released, recovered, committed late) is found by *looking*: reading a channel
from its start. A hint is good for 100 ms; only where looking is dear, because dead entries are in
the way, are looks spread so that they take a fiftieth of the time. Before it says "empty", a
receive looks. Who recovers something forgets all hints; receives that were under way with them then
must not bring them back.

What was promoted is given before it is due (semantics §7.3). A hint never lies ahead of the clock,
or all that is sent until then would lie before it.

Hints cost a little, and pass over messages of slow senders, so they are only used while they help:
when a receive has lately read many more index entries than it gave messages.
"""

from __future__ import annotations

import time
from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import Any

from fairlead.backends.base import Row

FRESH = 0.1  # seconds a hint is trusted
SHARE = 50  # looks may take one part in this many
DEAR = 0.05  # seconds above which an empty-handed receive does not look at every call
MOST = 20_000  # channels remembered
DEAD = 4  # index entries read per message, above which dead ones are in the way …
USEFUL = 5.0  # … and for how many seconds hints are passed after that

Hint = tuple[str, int, int, int]  # channel, rank, due, id
START = (-(2**31), -1, -1)  # before every message


class Hints:
    """Positions by channel, and the versions, lease floors and sweep times seen last."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[int, int, int, float]] = {}
        self._names: list[str] = []
        self.versions: list[int] | None = None
        self.floors: dict[str, int] = {}
        self.swept_us = 0  # everything due or expired before this database time has been met
        self._clock = (0, 0.0)  # a time of the database, and when that was
        self._usual = 0.0  # seconds a hinted receive takes
        self._extra = 0.0  # seconds the last look took longer than that
        self._dear = False
        self.forgotten = 0  # how often
        self._next_look = 0.0
        self._next_sweep = 0.0
        self._useful_until = 0.0
        self.was_full = False  # the last receive was filled, so a short way may do
        self.was_plain = False  # … from channels without a limit

    def look_due(self) -> bool:
        """Is it time for a receive that looks?"""
        return time.monotonic() >= self._next_look

    def may_look(self) -> bool:
        """May an empty-handed receive look at once? Yes, unless looks are dear."""
        return not self._dear or self.look_due()

    def sweep_due(self) -> bool:
        return time.monotonic() >= self._next_sweep

    def near(self, channel: str | None, n: int, look: bool) -> list[Hint]:
        """The hints of the channels that a receive of ``n`` after ``channel`` may meet, by name;
        for a look without those that are due for one.

        While hints do not help, a lone channel is passed by its name only: from its start."""
        if not self.useful():
            return [(name, *START) for name in self._names] if len(self._names) == 1 else []
        at = self._at
        oldest = time.monotonic() - FRESH if look else float("-inf")
        return [(name, *at[name][:3]) for name in self._around(channel, n) if at[name][3] > oldest]

    def short(self) -> int | None:
        """The queue's only version, if the last receive was filled and no sweep is due."""
        versions = self.versions
        if not self.was_full or versions is None or len(versions) != 1 or self.sweep_due():
            return None
        return versions[0]

    def gave_up(self) -> None:
        """A short way found nothing to give, or another version."""
        self.was_full = False
        self.versions = None

    def useful(self) -> bool:
        """Are dead index entries in the way?"""
        return time.monotonic() <= self._useful_until

    def lone(self) -> Hint | None:
        """Where the queue's only channel is read on."""
        near = self.near(None, 1, False) if len(self._names) == 1 else []
        return near[0] if near else None

    def _around(self, channel: str | None, n: int) -> list[str]:
        """The next n names after this one, round the end, by name."""
        names = self._names
        if len(names) <= 2 * n:
            return names
        start = 0 if channel is None else bisect_right(names, channel)
        return names[: max(0, start + n - len(names))] + names[start : start + n]

    def took(self, started: float, look: bool, swept: bool, now_us: int, read: int, n: int) -> None:
        """Remember how long a receive took, and when the next look is worth it."""
        done = time.monotonic()
        if now_us:
            self._clock = (now_us, done)
        if read > DEAD * n + 200:
            self._useful_until = done + USEFUL
        spent = done - started
        if swept:
            self._next_sweep = done + FRESH
            self.swept_us = now_us
        if look:
            last, self._extra = self._extra, max(0.0, spent - self._usual) if self._usual else 0.0
            # One slow look is chance, or a busy machine: what waits for the next one is not to pay.
            extra = min(last, self._extra)
            self._dear = extra > DEAR
            self._next_look = done + max(FRESH, SHARE * extra)
        else:
            self._usual = spent if self._usual == 0.0 else 0.9 * self._usual + 0.1 * spent

    def given(
        self, rows: Sequence[Row], passed: Sequence[Hint], extra: dict[str, Any], forgotten: int
    ) -> None:
        """Remember the last message of each channel (rows are in order within a channel), unless
        something was forgotten since this receive began.

        A channel that was read from its hint keeps the time of its last look."""
        if forgotten == self.forgotten:
            self._read_on(rows, passed, extra)
        self.versions = extra.get("versions")
        floors = extra.get("floors")
        if floors:
            if len(self.floors) > MOST:
                self.floors.clear()
            self.floors.update(floors)

    def _read_on(self, rows: Sequence[Row], passed: Sequence[Hint], extra: dict[str, Any]) -> None:
        at, now = self._at, time.monotonic()
        if len(at) > MOST:
            at.clear()
            self._names.clear()
        hinted = {hint[0] for hint in passed}
        ordered = extra.get("ordered", ())  # strict order: never a hint
        told_us, told_at = self._clock
        now_us = told_us + int((now - told_at) * 1_000_000)
        for row in rows:
            channel = row[1]
            if channel in ordered:
                continue
            known = at.get(channel)
            if known is None:
                insort(self._names, channel)
            looked = known[3] if known is not None and channel in hinted else now
            at[channel] = (-row[7], min(row[8], now_us), row[0], looked)

    def forget(self) -> None:
        """Start afresh: nothing more is ready, or something came back before the hints."""
        self.forgotten += 1
        self._at.clear()
        self._names.clear()

    def near_floors(self, channel: str | None, n: int) -> dict[str, int] | None:
        """The lease floors a receive may need."""
        if len(self.floors) <= 2 * n:
            return self.floors or None
        return {
            hint[0]: self.floors[hint[0]]
            for hint in self.near(channel, n, False)
            if hint[0] in self.floors
        }
