"""What a backend must do for schedules (docs/semantics.md §18); a part of the seam.

A backend does not compute due times (core/schedule_times.py does). It stores schedules, reads those
that are due, and moves a schedule to its next tick while it sends the messages of this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fairturn.backends.steps import Op
from fairturn.core.errors import ChannelFull
from fairturn.core.rows import ScheduleRow, SendRow


class Fire(NamedTuple):
    """What a schedule sends now, and when it is due again."""

    next_at: int | None
    tick: int  # the due time of the last item
    items: Sequence[SendRow]  # there may be none


class Schedules(Protocol):
    """Times come from the database: an operation that reads schedules also returns its clock."""

    def schedule(
        self, name: str, lock: bool, now: int | None
    ) -> Op[tuple[ScheduleRow | None, int]]:
        """The schedule, if there is one, and the clock. ``lock``: nobody else changes or fires it
        until the end of the transaction."""
        ...

    def schedules(self) -> Op[list[ScheduleRow]]:
        """All, sorted by name."""
        ...

    def schedules_due(
        self, after: tuple[int, str], limit: int, now: int | None
    ) -> Op[tuple[list[ScheduleRow], int | None, int]]:
        """The due schedules (``look_at <= now``), sorted by (look_at, name), from the first one
        behind ``after``; the earliest ``look_at`` of those that are not due; the clock."""
        ...

    def schedule_add(self, row: ScheduleRow) -> Op[bool]:
        """False if a schedule has that name: it is locked, and stays as it is."""
        ...

    def schedule_change(self, row: ScheduleRow) -> Op[None]:
        """Write all columns but the name, the revision and created_at. The caller has locked it."""
        ...

    def schedule_remove(self, name: str) -> Op[bool]: ...

    def schedule_fire(self, row: ScheduleRow, fire: Fire, now: int | None) -> Op[int | None]:
        """If the schedule still has this revision and is not paused: set its ``next_at`` and send
        the items to its queue, in one transaction. How many messages were created or replaced;
        None: another worker was faster."""
        ...

    def schedule_fail(self, row: ScheduleRow, error: str, look_at: int) -> Op[None]:
        """If the schedule still has this revision: store the error, and when to try again."""
        ...


def count_sent(
    queue: str, items: Sequence[SendRow], outcomes: Sequence[tuple[int, str]]
) -> tuple[int, bool]:
    """How many messages were created or replaced, and whether the tick has a message (not if its
    key belongs to a leased one). Raises ChannelFull: the transaction must not commit."""
    kinds = [outcome for _, outcome in outcomes]
    for item, (id, kind) in zip(items, outcomes, strict=True):
        if kind == "m":
            raise ChannelFull(queue, item.channel, id or None)
    return sum(kind in "sr" for kind in kinds), any(kind in "srd" for kind in kinds)
