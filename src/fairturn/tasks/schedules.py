"""Schedules that code declares: which task, with which arguments, when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairturn.aio.database import AsyncDatabase
from fairturn.core.errors import InvalidArgument
from fairturn.core.schedules import Missed, Overlap
from fairturn.core.sends import SCHEDULED, Send
from fairturn.operations.schedules import definition
from fairturn.tasks.task import Sending


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
        sending: Sending[...],
        args: Mapping[str, Any] | None,
        name: str | None,
        when: Mapping[str, Any],
        missed: Missed,
        overlap: Overlap,
    ) -> Declared:
        if not isinstance(sending, Sending):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"a schedule sends a task: decorate {sending!r} with @app.task")
        message = sending.message(**(args or {}))
        declared = cls(name or sending.task.name, sending.queue, message, when, missed, overlap)
        try:
            send = Send(message.body, **declared._options())
            definition.wanted(declared.queue, send, **declared._times("app"))
        except InvalidArgument as error:
            raise InvalidArgument(f"schedule {declared.name}: {error}") from None
        return declared

    def _options(self) -> dict[str, Any]:
        # The schedule itself says when, and its overlap guard needs the key.
        return {name: getattr(self.message, name) for name in SCHEDULED}

    def _times(self, owner: str) -> dict[str, Any]:
        when = {"cron": None, "every": None, "at": None, "timezone": "UTC", **self.when}
        return {**when, "missed": self.missed, "overlap": self.overlap, "owner": owner}

    async def store(self, db: AsyncDatabase, owner: str) -> None:
        """Store the schedule, unless it is stored already and unchanged."""
        await db.queue(self.queue).create()  # this worker may have no task in that queue
        arguments = {**self._options(), **self._times(owner)}
        await db.schedule(self.name).set(self.queue, self.message.body, **arguments)
