"""The values that calls about schedules return. No I/O, no backend, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Missed = Literal["skip", "once", "backfill"]
Overlap = Literal["skip", "allow"]


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A schedule at one instant. One of ``cron``, ``every`` (seconds) and ``at`` is set.

    ``next_at`` is the next due time: None while it is paused, and after the time of ``at``.
    ``last_at`` is the due time of the last message; ``error`` says why the next one could not be
    sent.
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
    # the options of its messages
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
        """True after its last due time: it is kept until it is removed or set again."""
        return self.next_at is None and not self.paused

    @property
    def spec(self) -> str:
        """Its due times, in words."""
        if self.cron is not None:
            return f"{self.cron} ({self.timezone})"
        if self.every is not None:
            return f"every {_span(self.every)}"
        assert self.at is not None
        return f"once at {self.at.isoformat(sep=' ')}"


@dataclass(frozen=True, slots=True)
class Ticked:
    """The result of ``run_schedules``: messages sent, seconds until the next due time (0: more are
    due now, None: there is none), and (name, error) of schedules that failed; these are tried
    again."""

    sent: int = 0
    next_in: float | None = None
    errors: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def _span(seconds: float) -> str:
    """Return an interval, exactly: 90 s, 5 min, 6 h, 2 days."""
    for unit, size in (("day", 86_400), ("h", 3600), ("min", 60)):
        if seconds % size == 0:
            number = round(seconds / size)
            return f"{number} {unit}{'s' if unit == 'day' and number > 1 else ''}"
    return f"{seconds:g} s"
