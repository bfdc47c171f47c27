"""A clock that stands still until you move it."""

from __future__ import annotations

from datetime import UTC, datetime

from fairlead.operations import check
from fairlead.values import Duration, moment

# A Monday at noon, far from the ends of days, months and summer times. In the past, so that what
# your code schedules by the real time is still to come.
START = datetime(2025, 1, 6, 12, tzinfo=UTC)


class Clock:
    """The time of an in-memory database. Nothing happens by itself: ``move`` it, then drain."""

    def __init__(self, start: datetime = START) -> None:
        self._us = check.instant(start, "start")

    def __call__(self) -> int:
        """Microseconds since the epoch, as databases count them."""
        return self._us

    def __repr__(self) -> str:
        return f"<Clock {self.now.isoformat(sep=' ')}>"

    @property
    def now(self) -> datetime:
        return moment(self._us)

    def move(self, by: Duration) -> None:
        """Let so much time go by: seconds, or a timedelta."""
        self._us += check.microseconds(by, "by")

    def set(self, to: datetime) -> None:
        """Make it that time, with a time zone; earlier than now, too."""
        self._us = check.instant(to, "to")
