"""Schedules (§18). With one writer at a time the revision is all the guard a tick needs."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.backends.base import BEGIN, BEGIN_READ, Op, SendRow
from fairlead.backends.scheduling import ScheduleRow, as_row, count_sent
from fairlead.backends.sqlite.common import SQL, clock
from fairlead.backends.sqlite.sending import send_items


class Schedules:
    def schedule(
        self, name: str, lock: bool, now: int | None
    ) -> Op[tuple[ScheduleRow | None, int]]:
        now = yield from clock(now)
        rows = yield SQL.schedule, (name,)
        return as_row(rows[0]) if rows else None, now

    def schedules(self) -> Op[list[ScheduleRow]]:
        rows = yield SQL.schedules, ()
        return [as_row(row) for row in rows]

    def schedules_due(
        self, after: tuple[int, str], limit: int, now: int | None
    ) -> Op[tuple[list[ScheduleRow], int | None, int]]:
        yield BEGIN_READ
        now = yield from clock(now)
        rows = yield SQL.schedules_due, (now, *after, limit)
        later = yield SQL.next_look, (now,)
        return [as_row(row) for row in rows], later[0][0], now

    def schedule_add(self, row: ScheduleRow) -> Op[bool]:
        yield BEGIN
        return bool((yield SQL.add_schedule, row))

    def schedule_change(self, row: ScheduleRow) -> Op[None]:
        yield BEGIN
        yield SQL.change_schedule, (row.name, *row[2:12], *row[13:])

    def schedule_remove(self, name: str) -> Op[bool]:
        yield BEGIN
        return bool((yield SQL.remove_schedule, (name,)))

    def schedule_fire(
        self,
        row: ScheduleRow,
        next_at: int | None,
        tick: int,
        items: Sequence[SendRow],
        now: int | None,
    ) -> Op[int | None]:
        yield BEGIN
        if not (yield SQL.claim_schedule, (row.name, row.revision, next_at)):
            return None
        if not items:
            return 0
        outcomes = yield from send_items(row.queue, items, now)
        sent, there = count_sent(row.queue, items, outcomes)
        if there:
            yield SQL.schedule_sent, (row.name, tick)
        return sent

    def schedule_fail(self, row: ScheduleRow, error: str, look_at: int) -> Op[None]:
        yield BEGIN
        yield SQL.schedule_failed, (row.name, row.revision, error, look_at)
