"""Schedules (§18). There is one writer at a time: the revision suffices to send each tick once."""

from __future__ import annotations

from fairturn.backends.schedules import Fire, count_sent
from fairturn.backends.sqlite.common import SQL, clock
from fairturn.backends.sqlite.sends import send_items
from fairturn.backends.steps import BEGIN, BEGIN_READ, Op
from fairturn.core.rows import ScheduleRow


class Schedules:
    def schedule(
        self, name: str, lock: bool, now: int | None
    ) -> Op[tuple[ScheduleRow | None, int]]:
        now = yield from clock(now)
        rows = yield SQL.schedule, (name,)
        return next(map(ScheduleRow._make, rows), None), now

    def schedules(self) -> Op[list[ScheduleRow]]:
        rows = yield SQL.schedules, ()
        return [ScheduleRow._make(row) for row in rows]

    def schedules_due(
        self, after: tuple[int, str], limit: int, now: int | None
    ) -> Op[tuple[list[ScheduleRow], int | None, int]]:
        yield BEGIN_READ
        now = yield from clock(now)
        rows = yield SQL.schedules_due, (now, *after, limit)
        [(later,)] = yield SQL.next_look, (now,)
        return [ScheduleRow._make(row) for row in rows], later, now

    def schedule_add(self, row: ScheduleRow) -> Op[bool]:
        yield BEGIN
        return bool((yield SQL.add_schedule, row))

    def schedule_change(self, row: ScheduleRow) -> Op[None]:
        yield BEGIN
        yield SQL.change_schedule, (row.name, *row.changeable())

    def schedule_remove(self, name: str) -> Op[bool]:
        yield BEGIN
        return bool((yield SQL.remove_schedule, (name,)))

    def schedule_fire(self, row: ScheduleRow, fire: Fire, now: int | None) -> Op[int | None]:
        yield BEGIN
        if not (yield SQL.claim_schedule, (row.name, row.revision, fire.next_at)):
            return None
        if not fire.items:
            return 0
        outcomes = yield from send_items(row.queue, fire.items, now)
        sent, there = count_sent(row.queue, fire.items, outcomes)
        if there:
            yield SQL.schedule_sent, (row.name, fire.tick)
        return sent

    def schedule_fail(self, row: ScheduleRow, error: str, look_at: int) -> Op[None]:
        yield BEGIN
        yield SQL.schedule_failed, (row.name, row.revision, error, look_at)
