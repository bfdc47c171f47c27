"""Running schedules: look what is due, and send each tick exactly once (semantics §18).

Any number of workers may do this at the same time. All of them see the same schedule with the same
revision and come to the same ticks; the first to move it on sends, in the same transaction, and to
the others it has changed. A crash in between is a rollback: the tick is still due.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from fairlead import limits, ticks
from fairlead.backends.base import SendRow
from fairlead.backends.scheduling import ScheduleRow
from fairlead.errors import (
    DatabaseBusy,
    DatabaseUnavailable,
    FairleadError,
    SchemaOutdated,
)
from fairlead.operations import check, sending
from fairlead.operations.call import Call, Core
from fairlead.operations.schedule_rows import message
from fairlead.schedules import Ticked

PAGE = 100  # schedules that one look reads
BACKFILL_BYTES = 4 * 1024 * 1024  # of bodies in one transaction

# Gives calls, takes what became of each, and returns what it all came to.
Steps = Generator[Call[Any], Any, Ticked]


def run(core: Core, limit: int) -> Steps:
    """Fire up to ``limit`` schedules, each in a transaction of its own."""
    check.integer(limit, "limit", 1, limits.COUNT_MAX)
    sent = tried = 0
    errors: list[tuple[str, str]] = []
    looks: list[int] = []  # when those that were tried come again
    place = (-1, "")
    while True:
        most = min(limit - tried, PAGE)
        rows, later, now = yield _due(core, place, most)
        for row in rows:
            place = (row.look_at or 0, row.name)
            try:
                due, items = _plan(row, now)
            except (FairleadError, ModuleNotFoundError) as error:
                # This machine lacks something, another may not: the schedule is left to it.
                errors.append((row.name, check.error_text(error)))
                continue
            tried += 1
            try:
                sent += (yield _fire(core, row, due, items)) or 0
                if due.next_at is not None:
                    looks.append(due.next_at)
            except (DatabaseUnavailable, SchemaOutdated):
                raise
            except DatabaseBusy as error:
                errors.append((row.name, check.error_text(error)))
            except Exception as error:
                # Its queue is gone, say. It is told to whoever looks, and does not stop the others.
                text = check.error_text(error)
                errors.append((row.name, text))
                retry_at = now + limits.SCHEDULE_RETRY
                looks.append(retry_at)
                yield _fail(core, row, text, retry_at)
        if tried >= limit:
            return Ticked(sent, 0.0, errors)
        if len(rows) < most:
            break
    if later is not None:
        looks.append(later)
    wait = max(min(looks) - now, 0) / limits.SECOND if looks else None
    return Ticked(sent, wait, errors)


def _plan(row: ScheduleRow, now: int) -> tuple[ticks.Due, list[SendRow]]:
    assert row.next_at is not None
    most = max(1, min(limits.BACKFILL, BACKFILL_BYTES // max(len(row.body), 1)))
    due = ticks.due(ticks.decode(row.spec), row.missed, row.next_at, now, most)
    return due, [message(row, tick) for tick in due.ticks]


def _due(core: Core, place: tuple[int, str], limit: int) -> Call[Any]:
    start = core.backend.schedules_due
    return Call("run_schedules", lambda: start(place, limit, core.now()), repeatable=True)


def _fire(core: Core, row: ScheduleRow, due: ticks.Due, items: list[SendRow]) -> Call[int | None]:
    tick = due.ticks[-1] if due.ticks else 0
    # Repeated after a commit that nobody saw, it finds another revision and does nothing.
    return Call(
        "run_schedules",
        lambda: core.backend.schedule_fire(row, due.next_at, tick, items, core.now()),
        repeatable=True,
        after=sending.after(core, items),
    )


def _fail(core: Core, row: ScheduleRow, error: str, retry_at: int) -> Call[None]:
    return Call(
        "run_schedules",
        lambda: core.backend.schedule_fail(row, error, retry_at),
        repeatable=True,
    )
