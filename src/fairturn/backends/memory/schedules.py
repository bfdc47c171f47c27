"""Schedules (§18)."""

from __future__ import annotations

from fairturn.backends.memory.core import op
from fairturn.backends.memory.sends import Sending
from fairturn.backends.schedules import Fire, count_sent
from fairturn.core.rows import ScheduleRow


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
        due = sorted((at, name) for at, name in looks if at <= now)
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
    def schedule_fire(self, row: ScheduleRow, fire: Fire, now: int | None) -> int | None:
        before = self._same(row)
        if before is None:
            return None
        sent, there = 0, False
        if fire.items:
            # If one of these raises, nothing has been changed.
            outcomes = self._send(row.queue, fire.items, self._now(now))
            sent, there = count_sent(row.queue, fire.items, outcomes)
        self._state.schedules[row.name] = before._replace(
            revision=before.revision + 1,
            next_at=fire.next_at,
            look_at=fire.next_at,
            last_at=fire.tick if there else before.last_at,
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
        """The schedule, if it still has this revision and is not paused."""
        found = self._state.schedules.get(row.name)
        if found is None or found.revision != row.revision or found.paused:
            return None
        return found
