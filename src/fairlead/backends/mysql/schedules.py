"""Schedules on MySQL (docs/semantics.md, 18)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from fairlead.backends.base import BEGIN, Op, Row, SendRow
from fairlead.backends.catalogue import Catalogue
from fairlead.backends.mysql.calling import Caller, in_bytes, text
from fairlead.backends.scheduling import ScheduleRow, as_row, count_sent


def _row(columns: Row) -> ScheduleRow:
    """Names and texts cross as bytes; of these columns only the body is meant to be bytes."""
    *rest, body, options = columns
    return as_row([*map(text, rest), body, text(options)])


def _params(row: ScheduleRow) -> tuple[Any, ...]:
    return tuple(value.encode() if isinstance(value, str) else value for value in row)


class Schedules(Caller, ABC):
    _sql: Catalogue

    @abstractmethod
    def send(
        self, queue: str, items: Sequence[SendRow], now: int | None
    ) -> Op[list[tuple[int, str]]]:
        """As in the seam; it joins a transaction that has begun."""

    def schedule(
        self, name: str, lock: bool, now: int | None
    ) -> Op[tuple[ScheduleRow | None, int]]:
        sql = self._sql
        rows = yield sql.lock_schedule if lock else sql.schedule, (name.encode(),)
        clock: int = (yield sql.clock, ())[0][0] if now is None else now
        return _row(rows[0]) if rows else None, clock

    def schedules(self) -> Op[list[ScheduleRow]]:
        rows = yield self._sql.schedules, ()
        return [_row(row) for row in rows]

    def schedules_due(
        self, after: tuple[int, str], limit: int, now: int | None
    ) -> Op[tuple[list[ScheduleRow], int | None, int]]:
        at, name = after
        rows = yield self.call("schedules_due", 4), (at, in_bytes(name), limit, now)
        clock, later = rows[0][:2]
        return [_row(row[2:]) for row in rows if row[2] is not None], later, clock

    def schedule_add(self, row: ScheduleRow) -> Op[bool]:
        yield BEGIN
        yield self._sql.add_schedule, _params(row)
        return (yield from self._changed()) == 1

    def schedule_change(self, row: ScheduleRow) -> Op[None]:
        params = _params(row)
        yield self._sql.change_schedule, (*params[2:12], *params[13:], params[0])

    def schedule_remove(self, name: str) -> Op[bool]:
        yield BEGIN
        yield self._sql.remove_schedule, (name.encode(),)
        return (yield from self._changed()) == 1

    def schedule_fire(
        self,
        row: ScheduleRow,
        next_at: int | None,
        tick: int,
        items: Sequence[SendRow],
        now: int | None,
    ) -> Op[int | None]:
        name = row.name.encode()
        yield BEGIN
        yield self._sql.claim_schedule, (next_at, next_at, name, row.revision)
        if not (yield from self._changed()):
            return None
        if not items:
            return 0
        outcomes = yield from self.send(row.queue, items, now)
        sent, there = count_sent(row.queue, items, outcomes)
        if there:
            yield self._sql.schedule_sent, (tick, name)
        return sent

    def schedule_fail(self, row: ScheduleRow, error: str, look_at: int) -> Op[None]:
        params = (error.encode(), look_at, row.name.encode(), row.revision)
        yield self._sql.schedule_failed, params

    def _changed(self) -> Op[int]:
        """How many rows the statement before changed."""
        [(rows,)] = yield self._sql.row_count, ()
        return rows
