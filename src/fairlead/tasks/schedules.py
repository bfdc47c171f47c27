"""Schedules that code declares: which task, with which arguments, when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fairlead.aio.database import AsyncDatabase
from fairlead.errors import InvalidArgument
from fairlead.operations import schedule_rows
from fairlead.schedules import Missed, Overlap
from fairlead.tasks.task import Sending, Task
from fairlead.values import Send


@dataclass(frozen=True, slots=True)
class Declared:
    name: str
    queue: str
    message: Send
    when: Mapping[str, Any]
    missed: Missed
    overlap: Overlap

    @classmethod
    def of(
        cls,
        task: Task[..., Any] | Sending[...],
        args: Mapping[str, Any],
        name: str | None,
        when: Mapping[str, Any],
        missed: Missed,
        overlap: Overlap,
    ) -> Declared:
        if not isinstance(task, Task | Sending):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"a schedule sends a task: decorate {task!r} with @app.task")
        sending = task.with_options() if isinstance(task, Task) else task
        message = sending.message(**args)
        declared = cls(name or sending.task.name, sending.queue, message, when, missed, overlap)
        try:
            schedule_rows.wanted(declared.queue, message.body, **declared._arguments("app"))
        except InvalidArgument as error:
            raise InvalidArgument(f"schedule {declared.name}: {error}") from None
        return declared

    def _arguments(self, owner: str) -> dict[str, Any]:
        given = {k: v for k, v in asdict(self.message).items() if k not in _NOT_OF_A_SCHEDULE}
        when = {"cron": None, "every": None, "at": None, "timezone": "UTC", **self.when}
        return {**given, **when, "missed": self.missed, "overlap": self.overlap, "owner": owner}

    async def store(self, db: AsyncDatabase, owner: str) -> None:
        """Write it down, unless it is there as it is."""
        await db.queue(self.queue).create()  # perhaps no task of this worker
        await db.schedule(self.name).set(self.queue, self.message.body, **self._arguments(owner))


# The schedule itself says when, and its overlap guard needs the key.
_NOT_OF_A_SCHEDULE = {
    *("body", "delay", "at", "key", "on_conflict", "debounce", "max_wait", "group"),
    *("once", "once_for"),
}
