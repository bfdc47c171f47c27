"""A schedule's handle, and running the schedules that are due."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fairlead.operations import schedule_rows, schedules
from fairlead.operations.call import Core
from fairlead.operations.ticking import Steps
from fairlead.schedules import Missed, Overlap, ScheduleStatus, Ticked
from fairlead.sync.running import Runner
from fairlead.values import Duration, Moment, Sent


class Schedule:
    """A message that is sent again and again, or once at a time to come. A handle: making one does
    no I/O, ``set()`` makes the schedule."""

    def __init__(self, core: Core, runner: Runner, name: str) -> None:
        self.core = core
        self.runner = runner
        self.name = schedule_rows.name(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def set(
        self,
        queue: str,
        body: Any = None,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        at: Moment | None = None,
        timezone: str = "UTC",
        missed: Missed = "once",
        overlap: Overlap = "skip",
        owner: str | None = None,
        channel: str = "",
        priority: int = 0,
        version: int = 0,
        type: str | None = None,
        headers: Mapping[str, Any] | None = None,
        lease: Duration | None = None,
        max_attempts: int | None = None,
        expires: Duration | None = None,
    ) -> bool:
        """Create or change it: send ``body`` to ``queue`` by ``cron`` (in ``timezone``), ``every``
        so many seconds, or once ``at`` a time. True if it was created. One whose times stay the
        same goes on to the tick it waits for; a paused one stays paused."""
        wanted = schedule_rows.wanted(
            queue,
            body,
            cron=cron,
            every=every,
            at=at,
            timezone=timezone,
            missed=missed,
            overlap=overlap,
            owner=owner,
            channel=channel,
            priority=priority,
            version=version,
            type=type,
            headers=headers,
            lease=lease,
            max_attempts=max_attempts,
            expires=expires,
        )
        return self.runner.run(schedules.set_(self.core, self.name, wanted))

    def get(self) -> ScheduleStatus | None:
        """What it is and when it ticks; None if there is no such schedule."""
        return self.runner.run(schedules.get(self.core, self.name))

    def upcoming(self, n: int = 5) -> list[datetime]:
        """The next ticks, in its own time zone; none while it is paused."""
        return self.runner.run(schedules.upcoming(self.core, self.name, n))

    def pause(self) -> None:
        """Send nothing until resume()."""
        self.runner.run(schedules.pause(self.core, self.name))

    def resume(self) -> None:
        """End pause(); ticks that came meanwhile are not made up for."""
        self.runner.run(schedules.resume(self.core, self.name))

    def trigger(self) -> Sent:
        """Send its message now, beside its ticks. While an earlier one is being worked on,
        ``overlap="skip"`` holds for this one too: its outcome is ``"refused"``."""
        return self.runner.run(schedules.trigger(self.core, self.name))

    def remove(self) -> bool:
        """Remove it; False if there was none. Messages that were sent stay."""
        return self.runner.run(schedules.remove(self.core, self.name))

    def using(self, connection: Any) -> Schedule:
        """The same schedule on your connection, in your transaction."""
        return Schedule(self.core, self.runner.using(connection), self.name)


def follow(runner: Runner, steps: Steps) -> Ticked:
    """Run one call after the other; what it gives or raises decides on the next."""
    try:
        call = next(steps)
        while True:
            try:
                value = runner.run(call)
            except Exception as error:
                call = steps.throw(error)
            else:
                call = steps.send(value)
    except StopIteration as stop:
        return stop.value
