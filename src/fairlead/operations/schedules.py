"""Schedules: what is sent when, kept in the database (semantics §18). Ticking is in ticking.py."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import cast

from fairlead import limits, ticks
from fairlead.backends.base import BEGIN, Op
from fairlead.backends.scheduling import ScheduleRow
from fairlead.errors import BodyTooLarge, QueueNotFound, ScheduleNotFound
from fairlead.operations import check, sending
from fairlead.operations.call import Call, Core
from fairlead.operations.schedule_rows import Wanted, message, status
from fairlead.schedules import ScheduleStatus
from fairlead.values import Sent


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
            # Somebody has just made it, so it is changed as any other.

    return Call("set", start, repeatable=True)


def _check_queue(core: Core, wanted: Wanted) -> Op[None]:
    """A spelling mistake is told now, not at the first tick."""
    found = yield from core.backend.queues(wanted.queue)
    if not found:
        raise QueueNotFound(wanted.queue)
    most = cast(int, found[0]["max_body"])
    if len(wanted.body) > most:
        raise BodyTooLarge(len(wanted.body), most)


def _anchored(spec: ticks.Spec, now: int) -> ticks.Spec:
    return replace(spec, anchor_us=now) if isinstance(spec, ticks.Every) else spec


def _new(name: str, wanted: Wanted, now: int) -> ScheduleRow:
    spec = _anchored(wanted.spec, now)
    next_at = ticks.first(spec, now)
    return ScheduleRow(
        name=name,
        revision=1,
        queue=wanted.queue,
        spec=ticks.encode(spec),
        missed=wanted.missed,
        overlap=wanted.overlap,
        owner=wanted.owner,
        paused=0,
        next_at=next_at,
        look_at=next_at,
        last_at=None,
        error=None,
        created_at=now,
        updated_at=now,
        json=wanted.json,
        body=wanted.body,
        options=wanted.options,
    )


def _changed(row: ScheduleRow, wanted: Wanted, now: int) -> ScheduleRow | None:
    """The row as it is wanted; None if it is so already. It stays paused if it is paused, and goes
    on to the tick it waits for if its times are the same."""
    new = row._replace(
        queue=wanted.queue,
        missed=wanted.missed,
        overlap=wanted.overlap,
        owner=wanted.owner,
        json=wanted.json,
        body=wanted.body,
        options=wanted.options,
    )
    if not ticks.same(ticks.decode(row.spec), wanted.spec):
        spec = _anchored(wanted.spec, now)
        new = new._replace(spec=ticks.encode(spec), next_at=ticks.first(spec, now))
    if new == row:
        return None
    # What could not be sent before is tried again at once.
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
    """Ticks that came while it was paused are not missed; a single time still counts (§18.8)."""

    def start() -> Op[None]:
        yield BEGIN
        row, now = yield from _found(core, name, lock=True)
        if row.paused:
            spec = ticks.decode(row.spec)
            next_at = row.next_at if isinstance(spec, ticks.Once) else spec.after(now)
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
        spec = ticks.decode(row.spec)
        tick = None if row.paused else row.next_at
        found: list[datetime] = []
        while tick is not None and len(found) < n:
            found.append(ticks.local(spec, tick))
            tick = spec.after(tick)
        return found

    return Call("upcoming", start, repeatable=True)


def trigger(core: Core, name: str) -> Call[Sent]:
    def start() -> Op[Sent]:
        yield BEGIN
        row, _ = yield from _found(core, name)
        [sent] = yield from sending.send_all(core, row.queue, [message(row, None)])
        return sent

    return Call("trigger", start, after=core.settle(False))
