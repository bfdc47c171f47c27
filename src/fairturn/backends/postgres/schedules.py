"""Schedules on PostgreSQL: one statement each."""

from __future__ import annotations

from typing import Any

from fairturn.backends.postgres.literals import send_params
from fairturn.backends.schedules import Fire
from fairturn.backends.steps import Op
from fairturn.core.rows import ScheduleRow

_NO_MESSAGES = (None,) * 16  # the parameters of send_rows between the queue and the time


class Schedules:
    statements: dict[str, str]

    def schedule(
        self, name: str, lock: bool, now: int | None
    ) -> Op[tuple[ScheduleRow | None, int]]:
        sql = self.statements
        rows = yield sql["schedule_lock"] if lock else sql["schedule"], (name, now)
        if rows:
            [(clock, *columns)] = rows
            return ScheduleRow._make(columns), clock
        if now is not None:
            return None, now
        [(clock,)] = yield sql["clock"], ()
        return None, clock

    def schedules(self) -> Op[list[ScheduleRow]]:
        rows = yield self.statements["schedules"], ()
        return [ScheduleRow._make(row) for row in rows]

    def schedules_due(
        self, after: tuple[int, str], limit: int, now: int | None
    ) -> Op[tuple[list[ScheduleRow], int | None, int]]:
        rows = yield self.statements["schedules_due"], (*after, limit, now)
        [(clock, later, *_), *_] = rows
        due = [ScheduleRow(name, *rest) for _, _, name, *rest in rows if name is not None]
        return due, later, clock

    def schedule_add(self, row: ScheduleRow) -> Op[bool]:
        return bool((yield self.statements["schedule_add"], tuple(row)))

    def schedule_change(self, row: ScheduleRow) -> Op[None]:
        yield self.statements["schedule_change"], (row.name, *row.changeable())

    def schedule_remove(self, name: str) -> Op[bool]:
        return bool((yield self.statements["schedule_remove"], (name,)))

    def schedule_fire(self, row: ScheduleRow, fire: Fire, now: int | None) -> Op[int | None]:
        messages: tuple[Any, ...] = (row.queue, *_NO_MESSAGES, now)
        if fire.items:
            # A tick has a key, and no `once`.
            *given, _, _, _ = send_params(row.queue, fire.items, now)
            messages = (*given, now)
        claim = (row.name, row.revision, fire.next_at, fire.tick)
        [(sent,)] = yield self.statements["schedule_fire"], (*claim, *messages)
        return sent

    def schedule_fail(self, row: ScheduleRow, error: str, look_at: int) -> Op[None]:
        yield self.statements["schedule_fail"], (row.name, row.revision, error, look_at)
