"""Schedules on MySQL (docs/semantics.md, 18)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from fairturn.backends.catalogue import Catalogue
from fairturn.backends.mysql.procedures import Caller, in_bytes, text
from fairturn.backends.schedules import Fire, count_sent
from fairturn.backends.steps import BEGIN, Op, Row
from fairturn.core.rows import ScheduleRow, SendRow


def _row(columns: Row) -> ScheduleRow:
    """Decode the names and texts: of these columns only the body is bytes."""
    *rest, body, options = columns
    return ScheduleRow._make((*map(text, rest), body, text(options)))


def _params(values: Iterable[Any]) -> list[Any]:
    return [value.encode() if isinstance(value, str) else value for value in values]


class Schedules(Caller, ABC):
    _sql: Catalogue

    @abstractmethod
    def send(
        self, queue: str, items: Sequence[SendRow], now: int | None
    ) -> Op[list[tuple[int, str]]]:
        """As in backends/base.py; in the transaction that has begun."""

    def schedule(
        self, name: str, lock: bool, now: int | None
    ) -> Op[tuple[ScheduleRow | None, int]]:
        sql = self._sql
        rows = yield sql.lock_schedule if lock else sql.schedule, (name.encode(),)
        [(clock,)] = [(now,)] if now is not None else (yield sql.clock, ())
        return next(map(_row, rows), None), clock

    def schedules(self) -> Op[list[ScheduleRow]]:
        rows = yield self._sql.schedules, ()
        return [_row(row) for row in rows]

    def schedules_due(
        self, after: tuple[int, str], limit: int, now: int | None
    ) -> Op[tuple[list[ScheduleRow], int | None, int]]:
        at, name = after
        rows = yield self.call("schedules_due", 4), (at, in_bytes(name), limit, now)
        [(clock, later, *_), *_] = rows
        due = [_row((name, *rest)) for _, _, name, *rest in rows if name is not None]
        return due, later, clock

    def schedule_add(self, row: ScheduleRow) -> Op[bool]:
        yield BEGIN
        yield self._sql.add_schedule, _params(row)
        return (yield from self._changed()) == 1

    def schedule_change(self, row: ScheduleRow) -> Op[None]:
        yield self._sql.change_schedule, _params((*row.changeable(), row.name))

    def schedule_remove(self, name: str) -> Op[bool]:
        yield BEGIN
        yield self._sql.remove_schedule, (name.encode(),)
        return (yield from self._changed()) == 1

    def schedule_fire(self, row: ScheduleRow, fire: Fire, now: int | None) -> Op[int | None]:
        name = row.name.encode()
        yield BEGIN
        yield self._sql.claim_schedule, (fire.next_at, fire.next_at, name, row.revision)
        if not (yield from self._changed()):
            return None
        if not fire.items:
            return 0
        outcomes = yield from self.send(row.queue, fire.items, now)
        sent, there = count_sent(row.queue, fire.items, outcomes)
        if there:
            yield self._sql.schedule_sent, (fire.tick, name)
        return sent

    def schedule_fail(self, row: ScheduleRow, error: str, look_at: int) -> Op[None]:
        params = (error.encode(), look_at, row.name.encode(), row.revision)
        yield self._sql.schedule_failed, params

    def _changed(self) -> Op[int]:
        """How many rows the last statement changed."""
        [(rows,)] = yield self._sql.row_count, ()
        return rows
