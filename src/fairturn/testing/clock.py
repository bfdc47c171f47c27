"""A clock that stands still until you move it."""

from __future__ import annotations

from datetime import UTC, datetime

from fairturn.core import check
from fairturn.core.values import Duration, moment

# A Monday at noon, far from the end of a day, a month or daylight saving time. In the past, so that
# messages that your code schedules by the real time are not due yet.
START = datetime(2025, 1, 6, 12, tzinfo=UTC)


class Clock:
    """The time of a database in memory. Moving the clock runs nothing: ``drain()`` does."""

    def __init__(self, start: datetime = START) -> None:
        self._us = check.instant(start, "start")

    def __call__(self) -> int:
        """Return the microseconds since the epoch, as databases count them."""
        return self._us

    def __repr__(self) -> str:
        return f"<Clock {self.now.isoformat(sep=' ')}>"

    @property
    def now(self) -> datetime:
        return moment(self._us)

    def move(self, by: Duration) -> None:
        """Move the clock forward by so many seconds, or by a timedelta."""
        self._us += check.microseconds(by, "by")

    def set(self, to: datetime) -> None:
        """Set the clock to a time with a time zone. It may be earlier than the current one."""
        self._us = check.instant(to, "to")
