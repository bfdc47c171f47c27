# Generated from aio/schedule.py by `make generate`: edit that file.
"""The handle of a schedule; running the schedules that are due."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fairturn.core.schedules import Missed, Overlap, ScheduleStatus, Ticked
from fairturn.core.sends import Send, Sent
from fairturn.core.values import Duration, Moment
from fairturn.execution.sync.runner import Runner
from fairturn.operations.call import Core
from fairturn.operations.schedules import definition, schedule
from fairturn.operations.schedules.runs import Steps


class Schedule:
    """A rule that sends a message by cron, at an interval or once. Making a handle does no I/O:
    ``set()`` creates the schedule."""

    def __init__(self, core: Core, runner: Runner, name: str) -> None:
        self._core = core
        self._runner = runner
        self.name = definition.name(name)

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
        """Create or change the schedule: send ``body`` to ``queue`` by ``cron`` (in ``timezone``),
        ``every`` so many seconds, or once ``at`` a time. True if it was created. If its times do
        not change, its next due time stays; a paused schedule stays paused."""
        send = Send(
            body,
            channel=channel,
            priority=priority,
            version=version,
            type=type,
            headers=headers,
            lease=lease,
            max_attempts=max_attempts,
            expires=expires,
        )
        wanted = definition.wanted(
            queue,
            send,
            cron=cron,
            every=every,
            at=at,
            timezone=timezone,
            missed=missed,
            overlap=overlap,
            owner=owner,
        )
        return self._runner.run(schedule.set_(self._core, self.name, wanted))

    def get(self) -> ScheduleStatus | None:
        """Return its definition and due times; None if there is no such schedule."""
        return self._runner.run(schedule.get(self._core, self.name))

    def upcoming(self, n: int = 5) -> list[datetime]:
        """Return its next ``n`` due times, in its time zone; none while it is paused."""
        return self._runner.run(schedule.upcoming(self._core, self.name, n))

    def pause(self) -> None:
        """Send nothing until resume()."""
        self._runner.run(schedule.pause(self._core, self.name))

    def resume(self) -> None:
        """End pause(). The due times in between are skipped."""
        self._runner.run(schedule.resume(self._core, self.name))

    def trigger(self) -> Sent:
        """Send its message now; its due times stay. With ``overlap="skip"``, and while an earlier
        message is leased, nothing is sent: the outcome is ``"refused"``."""
        return self._runner.run(schedule.trigger(self._core, self.name))

    def remove(self) -> bool:
        """Remove the schedule; False if there was none. Messages that were sent stay."""
        return self._runner.run(schedule.remove(self._core, self.name))

    def using(self, connection: Any) -> Schedule:
        """Return the same schedule on your connection, in your transaction."""
        return Schedule(self._core, self._runner.using(connection), self.name)


def follow(runner: Runner, steps: Steps) -> Ticked:
    """Run calls one by one: the result or the error of each decides on the next."""
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
