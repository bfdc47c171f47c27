"""Run the schedules that are due: send the message of each due time exactly once (semantics §18).

Any number of workers may do this at the same time. They read the same schedule with the same
revision and compute the same due times. The first one sends the messages and changes the revision,
in one transaction; the others then find another revision and send nothing. If a worker dies in
between, its transaction is rolled back, and the schedule is still due.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from fairturn.backends.schedules import Fire
from fairturn.core import check, limits, schedule_times
from fairturn.core.errors import DatabaseBusy, DatabaseUnavailable, FairturnError, SchemaOutdated
from fairturn.core.rows import ScheduleRow, SendRow
from fairturn.core.schedules import Ticked
from fairturn.operations import sends
from fairturn.operations.call import Call, Core
from fairturn.operations.schedules.definition import message

PAGE = 100  # schedules that one query reads
BACKFILL_BYTES = 4 * 1024 * 1024  # the most bytes of bodies in one transaction

# Yields calls, gets the result or the error of each, and returns a summary.
Steps = Generator[Call[Any], Any, Ticked]


def run(core: Core, limit: int) -> Steps:
    """Run up to ``limit`` schedules, each in a transaction of its own."""
    check.integer(limit, "limit", 1, limits.COUNT_MAX)
    sent = tried = 0
    errors: list[tuple[str, str]] = []
    looks: list[int] = []  # the next due times of those that were tried
    place = (-1, "")
    while True:
        most = min(limit - tried, PAGE)
        rows, later, now = yield _due(core, place, most)
        for row in rows:
            place = (row.look_at or 0, row.name)
            try:
                due, items = _plan(row, now)
            except (FairturnError, ModuleNotFoundError) as error:
                # A time zone or cronsim is missing here: another machine may have it.
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
                # For example, its queue is gone. Store the error, and go on with the others.
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


def _plan(row: ScheduleRow, now: int) -> tuple[schedule_times.Due, list[SendRow]]:
    assert row.next_at is not None
    most = max(1, min(limits.BACKFILL, BACKFILL_BYTES // max(len(row.body), 1)))
    due = schedule_times.due(schedule_times.decode(row.spec), row.missed, row.next_at, now, most)
    return due, [message(row, tick) for tick in due.ticks]


def _due(core: Core, place: tuple[int, str], limit: int) -> Call[Any]:
    start = core.backend.schedules_due
    return Call("run_schedules", lambda: start(place, limit, core.now()), repeatable=True)


def _fire(
    core: Core, row: ScheduleRow, due: schedule_times.Due, items: list[SendRow]
) -> Call[int | None]:
    fire = Fire(due.next_at, due.ticks[-1] if due.ticks else 0, items)
    # Repeatable: if the first try was committed, the second finds another revision.
    return Call(
        "run_schedules",
        lambda: core.backend.schedule_fire(row, fire, core.now()),
        repeatable=True,
        after=sends.after(core, items),
    )


def _fail(core: Core, row: ScheduleRow, error: str, retry_at: int) -> Call[None]:
    return Call(
        "run_schedules",
        lambda: core.backend.schedule_fail(row, error, retry_at),
        repeatable=True,
    )
