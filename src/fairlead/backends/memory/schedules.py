"""Schedules (§18)."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.backends.base import SendRow
from fairlead.backends.memory.core import op
from fairlead.backends.memory.sending import Sending
from fairlead.backends.scheduling import ScheduleRow, count_sent


class Schedules(Sending):
    @op
    def schedule(self, name: str, lock: bool, now: int | None) -> tuple[ScheduleRow | None, int]:
        return self._state.schedules.get(name), self._now(now)

    @op
    def schedules(self) -> list[ScheduleRow]:
        return [row for _, row in sorted(self._state.schedules.items())]

    @op
    def schedules_due(
        self, after: tuple[int, str], limit: int, now: int | None
    ) -> tuple[list[ScheduleRow], int | None, int]:
        now = self._now(now)
        looks = [
            (row.look_at, row.name)
            for row in self._state.schedules.values()
            if row.look_at is not None
        ]
        due = sorted(look for look in looks if look[0] <= now)
        found = [self._state.schedules[name] for at, name in due if (at, name) > after]
        return found[:limit], min((at for at, _ in looks if at > now), default=None), now

    @op
    def schedule_add(self, row: ScheduleRow) -> bool:
        if row.name in self._state.schedules:
            return False
        self._state.schedules[row.name] = row
        return True

    @op
    def schedule_change(self, row: ScheduleRow) -> None:
        before = self._state.schedules[row.name]
        self._state.schedules[row.name] = row._replace(
            revision=before.revision + 1, created_at=before.created_at
        )

    @op
    def schedule_remove(self, name: str) -> bool:
        return self._state.schedules.pop(name, None) is not None

    @op
    def schedule_fire(
        self,
        row: ScheduleRow,
        next_at: int | None,
        tick: int,
        items: Sequence[SendRow],
        now: int | None,
    ) -> int | None:
        before = self._same(row)
        if before is None:
            return None
        sent, there = 0, False
        if items:
            # What raises, here or for want of room, has changed nothing.
            sent, there = count_sent(row.queue, items, self._send(row.queue, items, self._now(now)))
        self._state.schedules[row.name] = before._replace(
            revision=before.revision + 1,
            next_at=next_at,
            look_at=next_at,
            last_at=tick if there else before.last_at,
            error=None,
        )
        return sent

    @op
    def schedule_fail(self, row: ScheduleRow, error: str, look_at: int) -> None:
        before = self._same(row)
        if before is not None:
            self._state.schedules[row.name] = before._replace(
                revision=before.revision + 1, error=error, look_at=look_at
            )

    def _same(self, row: ScheduleRow) -> ScheduleRow | None:
        """As it was seen, and not paused; else None."""
        found = self._state.schedules.get(row.name)
        if found is None or found.revision != row.revision or found.paused:
            return None
        return found
