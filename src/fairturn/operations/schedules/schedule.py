"""The calls of a schedule's handle (semantics §18). runs.py sends the messages."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import cast

from fairturn.backends.steps import BEGIN, Op
from fairturn.core import check, limits, schedule_times
from fairturn.core.errors import BodyTooLarge, QueueNotFound, ScheduleNotFound
from fairturn.core.rows import ScheduleRow
from fairturn.core.schedules import ScheduleStatus
from fairturn.core.sends import Sent
from fairturn.operations import sends
from fairturn.operations.call import Call, Core
from fairturn.operations.schedules.definition import Wanted, message, status


def set_(core: Core, name: str, wanted: Wanted) -> Call[bool]:
    def start() -> Op[bool]:
        yield BEGIN
        while True:
            row, now = yield from core.backend.schedule(name, True, core.now())
            if row is not None:
                changed = _changed(row, wanted, now)
                if changed is not None:
                    yield from _check_queue(core, wanted)
                    yield from core.backend.schedule_change(changed)
                return False
            yield from _check_queue(core, wanted)
            if (yield from core.backend.schedule_add(_new(name, wanted, now))):
                return True
            # Another client has just added it: change it.

    return Call("set", start, repeatable=True)


def _check_queue(core: Core, wanted: Wanted) -> Op[None]:
    """Raise now what would else be an error at the first due time."""
    queue, size = wanted.columns["queue"], len(wanted.columns["body"])
    found = yield from core.backend.queues(queue)
    if not found:
        raise QueueNotFound(queue)
    [settings] = found
    most = cast(int, settings["max_body"])
    if size > most:
        raise BodyTooLarge(size, most)


def _anchored(spec: schedule_times.Spec, now: int) -> schedule_times.Spec:
    return replace(spec, anchor_us=now) if isinstance(spec, schedule_times.Every) else spec


def _new(name: str, wanted: Wanted, now: int) -> ScheduleRow:
    spec = _anchored(wanted.spec, now)
    next_at = schedule_times.first(spec, now)
    return ScheduleRow(
        name=name,
        revision=1,
        spec=schedule_times.encode(spec),
        paused=0,
        next_at=next_at,
        look_at=next_at,
        last_at=None,
        error=None,
        created_at=now,
        updated_at=now,
        **wanted.columns,
    )


def _changed(row: ScheduleRow, wanted: Wanted, now: int) -> ScheduleRow | None:
    """Return the changed row; None if nothing changes. A paused schedule stays paused, and if the
    times are the same, the next due time stays."""
    new = row._replace(**wanted.columns)
    if not schedule_times.same(schedule_times.decode(row.spec), wanted.spec):
        spec = _anchored(wanted.spec, now)
        new = new._replace(
            spec=schedule_times.encode(spec), next_at=schedule_times.first(spec, now)
        )
    if new == row:
        return None
    # A message that could not be sent before is tried again immediately.
    return new._replace(look_at=None if row.paused else new.next_at, error=None, updated_at=now)


def _found(core: Core, name: str, lock: bool = False) -> Op[tuple[ScheduleRow, int]]:
    row, now = yield from core.backend.schedule(name, lock, core.now())
    if row is None:
        raise ScheduleNotFound(name)
    return row, now


def pause(core: Core, name: str) -> Call[None]:
    def start() -> Op[None]:
        yield BEGIN
        row, now = yield from _found(core, name, lock=True)
        if not row.paused:
            new = row._replace(paused=1, look_at=None, updated_at=now)
            yield from core.backend.schedule_change(new)

    return Call("pause", start, repeatable=True)


def resume(core: Core, name: str) -> Call[None]:
    """Due times of the pause do not count as missed; the time of ``at=`` still counts (§18.8)."""

    def start() -> Op[None]:
        yield BEGIN
        row, now = yield from _found(core, name, lock=True)
        if row.paused:
            spec = schedule_times.decode(row.spec)
            next_at = row.next_at if isinstance(spec, schedule_times.Once) else spec.after(now)
            new = row._replace(paused=0, next_at=next_at, look_at=next_at)
            yield from core.backend.schedule_change(new._replace(error=None, updated_at=now))

    return Call("resume", start, repeatable=True)


def remove(core: Core, name: str) -> Call[bool]:
    return Call("remove", lambda: core.backend.schedule_remove(name))


def get(core: Core, name: str) -> Call[ScheduleStatus | None]:
    def start() -> Op[ScheduleStatus | None]:
        row, _ = yield from core.backend.schedule(name, False, core.now())
        return None if row is None else status(row)

    return Call("get", start, repeatable=True)


def schedules(core: Core) -> Call[list[ScheduleStatus]]:
    def start() -> Op[list[ScheduleStatus]]:
        rows = yield from core.backend.schedules()
        return [status(row) for row in rows]

    return Call("schedules", start, repeatable=True)


def upcoming(core: Core, name: str, n: int) -> Call[list[datetime]]:
    check.integer(n, "n", 1, limits.RECEIVE_MAX)

    def start() -> Op[list[datetime]]:
        row, _ = yield from _found(core, name)
        spec = schedule_times.decode(row.spec)
        tick = None if row.paused else row.next_at
        found: list[datetime] = []
        while tick is not None and len(found) < n:
            found.append(schedule_times.local(spec, tick))
            tick = spec.after(tick)
        return found

    return Call("upcoming", start, repeatable=True)


def trigger(core: Core, name: str) -> Call[Sent]:
    def start() -> Op[Sent]:
        yield BEGIN
        row, _ = yield from _found(core, name)
        [sent] = yield from sends.send_all(core, row.queue, [message(row, None)])
        return sent

    return Call("trigger", start, after=core.settle(False))
