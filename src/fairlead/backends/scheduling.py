"""What a database must be able to do for schedules (docs/semantics.md §18); a part of the seam.

When a schedule ticks is no business of a backend (ticks.py): it stores what it is given, says what
is due, and moves a schedule from one tick to the next while it sends the messages of that tick.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fairlead.errors import ChannelFull

if TYPE_CHECKING:
    from fairlead.backends.base import Op, SendRow


class ScheduleRow(NamedTuple):
    """A schedule as it is stored."""

    name: str
    revision: int  # grows with every change: whoever fires it names the one that it saw
    queue: str
    spec: str  # JSON (ticks.py)
    missed: str  # 's' skip, 'o' once, 'b' backfill
    overlap: str  # 's' skip, 'a' allow
    owner: str | None
    paused: int
    next_at: int | None  # the tick it waits for; None: never again
    look_at: int | None  # when somebody has to look at it; None: paused, or never again
    last_at: int | None  # the last tick that was sent
    error: str | None  # why the tick it waits for could not be sent
    created_at: int
    updated_at: int
    json: int  # is the body JSON?
    body: bytes
    options: str  # the rest of its messages, as JSON (operations/schedule_rows.py)


class Schedules(Protocol):
    """§18. The time comes from the database, so what reads a schedule also tells the time."""

    def schedule(
        self, name: str, lock: bool, now: int | None
    ) -> Op[tuple[ScheduleRow | None, int]]:
        """The schedule, if there is one, and the clock. ``lock``: nobody changes or fires it until
        the end of the transaction."""
        ...

    def schedules(self) -> Op[list[ScheduleRow]]:
        """All, by name."""
        ...

    def schedules_due(
        self, after: tuple[int, str], limit: int, now: int | None
    ) -> Op[tuple[list[ScheduleRow], int | None, int]]:
        """Those with ``look_at <= now`` by (look_at, name), from the one after ``after``; the
        earliest ``look_at`` of those that are not due; and the clock."""
        ...

    def schedule_add(self, row: ScheduleRow) -> Op[bool]:
        """False if there is one of that name; it is then locked, and left as it is."""
        ...

    def schedule_change(self, row: ScheduleRow) -> Op[None]:
        """Write all but its name, revision and creation. The caller has locked it."""
        ...

    def schedule_remove(self, name: str) -> Op[bool]: ...

    def schedule_fire(
        self,
        row: ScheduleRow,
        next_at: int | None,
        tick: int,
        items: Sequence[SendRow],
        now: int | None,
    ) -> Op[int | None]:
        """If it still has this revision and is not paused: go on to ``next_at`` and send ``items``
        (there may be none) to its queue, in one transaction. How many were created or replaced;
        None: somebody else was faster. ``tick`` is the last of those in ``items``."""
        ...

    def schedule_fail(self, row: ScheduleRow, error: str, look_at: int) -> Op[None]:
        """If it still has this revision: note why it could not be fired, and when to try again."""
        ...


def count_sent(
    queue: str, items: Sequence[SendRow], outcomes: Sequence[tuple[int, str]]
) -> tuple[int, bool]:
    """How many messages were created or replaced, and whether the tick has its message at all (one
    that met a leased one has not). Raises if there was no room: the transaction must not commit."""
    kinds = [outcome for _, outcome in outcomes]
    if "m" in kinds:
        full = kinds.index("m")
        raise ChannelFull(queue, items[full][0], outcomes[full][0] or None)
    return sum(kind in "sr" for kind in kinds), any(kind in "srd" for kind in kinds)


def as_row(columns: Sequence[Any]) -> ScheduleRow:
    return ScheduleRow._make(columns)
