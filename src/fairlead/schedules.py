"""What is told about schedules. No I/O, no backend, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Missed = Literal["skip", "once", "backfill"]
Overlap = Literal["skip", "allow"]


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A schedule at one instant. Of ``cron``, ``every`` (seconds) and ``at`` one is set.

    ``next_at`` is the tick it waits for: None while it is paused, and once a single time has come.
    ``last_at`` is the last tick that was sent; ``error`` says why the one it waits for could not
    be.
    """

    name: str
    queue: str
    cron: str | None
    every: float | None
    at: datetime | None
    timezone: str
    missed: Missed
    overlap: Overlap
    owner: str | None
    paused: bool
    next_at: datetime | None
    last_at: datetime | None
    error: str | None
    created_at: datetime
    updated_at: datetime
    # what its messages are like
    body: Any
    channel: str
    priority: int
    version: int
    type: str | None
    headers: Mapping[str, Any]
    lease: float | None
    max_attempts: int | None
    expires: float | None

    @property
    def finished(self) -> bool:
        """Its only time has come: it is kept until it is removed or set anew."""
        return self.next_at is None and not self.paused

    @property
    def spec(self) -> str:
        """When it ticks, in words."""
        if self.cron is not None:
            return f"{self.cron} ({self.timezone})"
        if self.every is not None:
            return f"every {_span(self.every)}"
        assert self.at is not None
        return f"once at {self.at.isoformat(sep=' ')}"


@dataclass(frozen=True, slots=True)
class Ticked:
    """What one ``run_schedules`` did: messages sent, seconds until the next tick (0: there is more
    to do now, None: nothing is on its way), and (name, error) of schedules that could not be run;
    they are tried again."""

    sent: int = 0
    next_in: float | None = None
    errors: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def _span(seconds: float) -> str:
    """An interval exactly: 90 s, 5 min, 6 h, 2 days."""
    for unit, size in (("day", 86_400), ("h", 3600), ("min", 60)):
        if seconds % size == 0:
            number = round(seconds / size)
            return f"{number} {unit}{'s' if unit == 'day' and number > 1 else ''}"
    return f"{seconds:g} s"
