"""Schedules on PostgreSQL: one statement each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.backends.base import Op, SendRow
from fairlead.backends.postgres.literals import send_params
from fairlead.backends.scheduling import ScheduleRow, as_row

_NO_MESSAGES = (None,) * 16  # the parameters of send_rows between the queue and the time


class Schedules:
    statements: dict[str, str]

    def schedule(
        self, name: str, lock: bool, now: int | None
    ) -> Op[tuple[ScheduleRow | None, int]]:
        sql = self.statements
        rows = yield sql["schedule_lock"] if lock else sql["schedule"], (name, now)
        if rows:
            return as_row(rows[0][1:]), rows[0][0]
        clock: int = (yield sql["clock"], ())[0][0] if now is None else now
        return None, clock

    def schedules(self) -> Op[list[ScheduleRow]]:
        rows = yield self.statements["schedules"], ()
        return [as_row(row) for row in rows]

    def schedules_due(
        self, after: tuple[int, str], limit: int, now: int | None
    ) -> Op[tuple[list[ScheduleRow], int | None, int]]:
        rows = yield self.statements["schedules_due"], (*after, limit, now)
        clock, later = rows[0][:2]
        return [as_row(row[2:]) for row in rows if row[2] is not None], later, clock

    def schedule_add(self, row: ScheduleRow) -> Op[bool]:
        return bool((yield self.statements["schedule_add"], tuple(row)))

    def schedule_change(self, row: ScheduleRow) -> Op[None]:
        yield self.statements["schedule_change"], (row.name, *row[2:12], *row[13:])

    def schedule_remove(self, name: str) -> Op[bool]:
        return bool((yield self.statements["schedule_remove"], (name,)))

    def schedule_fire(
        self,
        row: ScheduleRow,
        next_at: int | None,
        tick: int,
        items: Sequence[SendRow],
        now: int | None,
    ) -> Op[int | None]:
        messages: tuple[Any, ...] = (row.queue, *_NO_MESSAGES, now)
        if items:
            *given, _, _, _ = send_params(row.queue, items, now)  # a tick has a key, and no `once`
            messages = (*given, now)
        claim = (row.name, row.revision, next_at, tick)
        rows = yield self.statements["schedule_fire"], (*claim, *messages)
        return rows[0][0]

    def schedule_fail(self, row: ScheduleRow, error: str, look_at: int) -> Op[None]:
        yield self.statements["schedule_fail"], (row.name, row.revision, error, look_at)
