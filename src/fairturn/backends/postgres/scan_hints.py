"""Scan hints: how far a consumer has read each channel on PostgreSQL, and when it looks again.

While a transaction keeps an old snapshot (a report, a backup, a replica), the index entries of
acked messages cannot be removed. They pile up in front of the live ones. So a consumer remembers
the last (rank, due, id) that it received from each channel, and the next scan starts there. A
message before its hint (released, recovered, committed late) is found by a *look*: a scan from the
channel's start. A hint is used for 100 ms. Only where looks are slow, because of dead entries, are
there fewer: they take a fiftieth of the time. Before a receive returns nothing, it looks. A receive
that recovers a message forgets all hints; receives that run meanwhile must not store their old ones
again.

A promoted message is delivered before it is due (semantics §7.3). A hint is never later than the
clock, or all messages that are sent until then would be before it.

Hints cost a little, and skip messages of slow senders. So they are only used while they help: after
a receive has read many more index entries than it returned messages.
"""

from __future__ import annotations

import time
from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

from fairturn.core.rows import MessageRow

FRESH = 0.1  # seconds a hint is trusted
SHARE = 50  # looks may take this part of the time: 1 / SHARE
DEAR = 0.05  # a look that takes more seconds is slow: not every receive looks
MOST = 20_000  # channels remembered
DEAD = 4  # from so many index entries per message on, hints are used …
USEFUL = 5.0  # … for so many seconds


class Hint(NamedTuple):
    """The position from which a channel is read: behind this message."""

    channel: str
    rank: int = -(2**31)  # with these defaults the hint is before every message
    due: int = -1
    id: int = -1

    @property
    def is_start(self) -> bool:
        return self == Hint(self.channel)


class Hints:
    """Positions by channel, and the versions, lease floors and sweep times seen last."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[int, int, int, float]] = {}  # rank, due, id, last look
        self._names: list[str] = []
        self.versions: list[int] | None = None
        self.floors: dict[str, int] = {}
        self.server: int | None = None  # whose numbers the floors are
        self.swept_us = 0  # what was due or expired before this time of the database is swept
        self._clock = (0, 0.0)  # a time of the database, and of time.monotonic at that moment
        self._usual = 0.0  # seconds a hinted receive takes
        self._extra = 0.0  # seconds the last look took longer than that
        self._dear = False
        self.forgotten = 0  # how often the hints were forgotten
        self._next_look = 0.0
        self._next_sweep = 0.0
        self._useful_until = 0.0
        self.was_full = False  # the last receive was full, so the short call may suffice
        self.was_plain = False  # … from channels without a limit

    def look_due(self) -> bool:
        """Is it time for a receive that looks?"""
        return time.monotonic() >= self._next_look

    def may_look(self) -> bool:
        """May a receive that found nothing look immediately? Yes, unless looks are slow."""
        return not self._dear or self.look_due()

    def sweep_due(self) -> bool:
        return time.monotonic() >= self._next_sweep

    def near(self, channel: str | None, n: int, look: bool) -> list[Hint]:
        """The hints of the channels that a receive of ``n`` after ``channel`` may read, by name; a
        look gets no hints of channels that are due for a look.

        While hints do not help, only the name of a lone channel is passed: read from its start."""
        if not self.useful():
            return [Hint(name) for name in self._names] if len(self._names) == 1 else []
        oldest = time.monotonic() - FRESH if look else float("-inf")
        hints: list[Hint] = []
        for name in self._around(channel, n):
            rank, due, id, looked = self._at[name]
            if looked > oldest:
                hints.append(Hint(name, rank, due, id))
        return hints

    def short(self) -> int | None:
        """The queue's only version, if the last receive was filled and no sweep is due."""
        versions = self.versions
        if not self.was_full or versions is None or len(versions) != 1 or self.sweep_due():
            return None
        [version] = versions
        return version

    def gave_up(self) -> None:
        """The short call found no message, or another version."""
        self.was_full = False
        self.versions = None

    def useful(self) -> bool:
        """Are dead index entries in the way?"""
        return time.monotonic() <= self._useful_until

    def lone(self) -> Hint | None:
        """The hint of the queue's only channel."""
        near = self.near(None, 1, False) if len(self._names) == 1 else []
        return next(iter(near), None)

    def _around(self, channel: str | None, n: int) -> list[str]:
        """The next n names after this one, from the start again after the end, sorted."""
        names = self._names
        if len(names) <= 2 * n:
            return names
        start = 0 if channel is None else bisect_right(names, channel)
        return names[: max(0, start + n - len(names))] + names[start : start + n]

    def took(self, started: float, look: bool, swept: bool, now_us: int, read: int, n: int) -> None:
        """Remember how long a receive took, and when to look next."""
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
            # One slow look may be chance, or a busy machine: it must not delay the next one.
            extra = min(last, self._extra)
            self._dear = extra > DEAR
            self._next_look = done + max(FRESH, SHARE * extra)
        else:
            self._usual = spent if self._usual == 0.0 else 0.9 * self._usual + 0.1 * spent

    def given(
        self,
        rows: Sequence[MessageRow],
        passed: Sequence[Hint],
        forgotten: int,
        *,
        ordered: Sequence[str] = (),
    ) -> None:
        """Remember the last message of each channel (rows are in order within a channel), unless
        something was forgotten since this receive began.

        A channel that was read from its hint keeps the time of its last look."""
        if forgotten == self.forgotten:
            self._read_on(rows, passed, ordered)

    def counted(self, floors: dict[str, int] | None, server: int | None) -> None:
        """Remember the oldest live lease of limited channels: later counts begin there. The numbers
        of another server (after a failover) mean other leases."""
        if floors:
            if len(self.floors) > MOST or server != self.server:
                self.floors.clear()
            self.floors.update(floors)
            self.server = server

    def _read_on(
        self, rows: Sequence[MessageRow], passed: Sequence[Hint], ordered: Sequence[str]
    ) -> None:
        """``ordered``: these channels never have a hint."""
        at, now = self._at, time.monotonic()
        if len(at) > MOST:
            at.clear()
            self._names.clear()
        hinted = {hint.channel for hint in passed}
        told_us, told_at = self._clock
        now_us = told_us + int((now - told_at) * 1_000_000)
        for channel, row in {row.channel: row for row in rows}.items():
            looked = now
            if channel in ordered:
                continue
            known = at.get(channel)
            if known is None:
                insort(self._names, channel)
            elif channel in hinted:
                _, _, _, looked = known
            at[channel] = (-row.priority, min(row.due_at, now_us), row.id, looked)

    def forget(self) -> None:
        """Drop all hints: nothing is ready, or a message came back before its hint."""
        self.forgotten += 1
        self._at.clear()
        self._names.clear()

    def near_floors(self, channel: str | None, n: int) -> dict[str, int] | None:
        """The lease floors a receive may need."""
        if len(self.floors) <= 2 * n:
            return self.floors or None
        return {
            name: self.floors[name]
            for name, *_ in self.near(channel, n, False)
            if name in self.floors
        }
