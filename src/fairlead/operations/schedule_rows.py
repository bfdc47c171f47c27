"""A schedule as a user says it, as it is stored, as it is told, and as the message of a tick."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fairlead import limits, ticks
from fairlead.backends.base import SendRow
from fairlead.backends.scheduling import ScheduleRow
from fairlead.errors import InvalidArgument, InvalidName
from fairlead.operations import check, sending
from fairlead.schedules import Missed, Overlap, ScheduleStatus
from fairlead.values import Duration, Moment, decode, moment

_MISSED: dict[str, Missed] = {"s": "skip", "o": "once", "b": "backfill"}
_OVERLAP: dict[str, Overlap] = {"s": "skip", "a": "allow"}
HEADER = "fairlead.schedule"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What ``set`` asks for, checked and encoded."""

    queue: str
    spec: ticks.Spec  # an interval has no anchor yet
    missed: str
    overlap: str
    owner: str | None
    json: int
    body: bytes
    options: str


def name(value: Any) -> str:
    check.name(value, "schedule")
    size = len(value.encode())
    if size > limits.SCHEDULE_BYTES:
        raise InvalidName(
            f"schedule has {size} bytes in UTF-8 and may have at most {limits.SCHEDULE_BYTES}: its "
            "name is part of its messages' keys"
        )
    return value


def wanted(
    queue: str,
    body: Any,
    *,
    cron: str | None,
    every: Duration | None,
    at: Moment | None,
    timezone: str,
    missed: str,
    overlap: str,
    owner: str | None,
    channel: str,
    priority: int,
    version: int,
    type: str | None,
    headers: Mapping[str, Any] | None,
    lease: Duration | None,
    max_attempts: int | None,
    expires: Duration | None,
) -> Wanted:
    """Check the arguments of ``set``."""
    row = sending.encode(
        *(body, channel, priority, None, None, None, "error", version, type, headers),
        *(lease, max_attempts, expires, None, None, None),
    )
    if missed not in _MISSED.values():
        raise InvalidArgument(f'missed must be "skip", "once" or "backfill", not {missed!r}')
    if overlap not in _OVERLAP.values():
        raise InvalidArgument(f'overlap must be "skip" or "allow", not {overlap!r}')
    if missed == "backfill" and overlap == "skip":
        raise InvalidArgument(
            'missed="backfill" sends a message for each tick, and overlap="skip" lets only the '
            'last of them wait: add overlap="allow", or use missed="once"'
        )
    return Wanted(
        check.name(queue, "queue"),
        _spec(cron, every, at, timezone),
        missed[0],
        overlap[0],
        check.optional_name(owner, "owner"),
        row[2],
        row[1],
        _options(row),
    )


def _spec(cron: str | None, every: Duration | None, at: Moment | None, timezone: str) -> ticks.Spec:
    if sum(value is not None for value in (cron, every, at)) != 1:
        raise InvalidArgument("say when it ticks: cron=, every= or at=, exactly one of them")
    if cron is not None:
        return ticks.cron(cron, timezone)
    if timezone != "UTC":
        raise InvalidArgument("timezone= goes with cron=: an interval has none, and at= its own")
    if every is not None:
        every_us = check.microseconds(every, "every")
        if every_us < limits.EVERY_MIN:
            raise InvalidArgument(f"every must be at least 1 second, not {every!r}")
        return ticks.Every(every_us, 0)
    assert at is not None
    return ticks.Once(check.instant(at, "at"))


# Where each option stands in a SendRow, and what it is when nobody asked for it.
_OPTIONS: dict[str, tuple[int, Any]] = {
    "channel": (0, ""),
    "rank": (3, 0),
    "version": (8, 0),
    "type": (9, None),
    "headers": (10, None),
    "lease_us": (11, None),
    "max_attempts": (12, None),
    "expires_us": (13, None),
}


def _options(row: SendRow) -> str:
    given = {key: row[i] for key, (i, usual) in _OPTIONS.items() if row[i] != usual}
    if "headers" in given:
        given["headers"] = json.loads(given["headers"])
    return json.dumps(given, separators=(",", ":"), sort_keys=True)


def message(row: ScheduleRow, tick: int | None) -> SendRow:
    """The message of a tick; of none, when it is triggered by hand.

    ``overlap`` is in its key (§18.6): one key for all ticks, whose waiting message a later tick
    replaces and whose leased message keeps it out; or a key for each tick.
    """
    given: dict[str, Any] = json.loads(row.options)
    at = None if tick is None else ticks.local(ticks.decode(row.spec), tick).isoformat()
    headers = {**given.get("headers", {}), HEADER: {"name": row.name, "tick": at}}
    key, on_conflict = f"schedule:{row.name}", "r"
    if row.overlap == "a":
        key, on_conflict = None if tick is None else f"tick:{tick}:{row.name}", "i"
    values = {key: given.get(key, usual) for key, (_, usual) in _OPTIONS.items()}
    return (
        *(values["channel"], row.body, row.json, values["rank"], None, 0, key, on_conflict),
        *(values["version"], values["type"], check.payload(headers, "headers")[0]),
        *(values["lease_us"], values["max_attempts"], values["expires_us"], None, None),
        *(None, None),
    )


def status(row: ScheduleRow) -> ScheduleStatus:
    spec = ticks.decode(row.spec)
    given: dict[str, Any] = json.loads(row.options)
    return ScheduleStatus(
        name=row.name,
        queue=row.queue,
        cron=spec.expression if isinstance(spec, ticks.Cron) else None,
        every=_seconds(spec.every_us) if isinstance(spec, ticks.Every) else None,
        at=moment(spec.at_us) if isinstance(spec, ticks.Once) else None,
        timezone=spec.timezone if isinstance(spec, ticks.Cron) else "UTC",
        missed=_MISSED[row.missed],
        overlap=_OVERLAP[row.overlap],
        owner=row.owner,
        paused=bool(row.paused),
        next_at=None if row.paused else _moment(row.next_at),
        last_at=_moment(row.last_at),
        error=row.error,
        created_at=moment(row.created_at),
        updated_at=moment(row.updated_at),
        body=decode(row.body, row.json),
        channel=given.get("channel", ""),
        priority=-given.get("rank", 0),
        version=given.get("version", 0),
        type=given.get("type"),
        headers=given.get("headers", {}),
        lease=_seconds(given.get("lease_us")),
        max_attempts=given.get("max_attempts"),
        expires=_seconds(given.get("expires_us")),
    )


def _moment(us: int | None) -> datetime | None:
    return None if us is None else moment(us)


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / limits.SECOND
