"""The definition of a schedule: checked and encoded, shown, and turned into messages."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from fairturn.core import check, limits, schedule_times
from fairturn.core.errors import InvalidArgument, InvalidName
from fairturn.core.rows import ScheduleRow, SendRow
from fairturn.core.schedules import Missed, Overlap, ScheduleStatus
from fairturn.core.sends import SCHEDULED, SEND_OPTIONS, Send
from fairturn.core.values import Duration, Moment, decode, moment, optional_moment
from fairturn.operations import sends

_MISSED: dict[str, Missed] = {"s": "skip", "o": "once", "b": "backfill"}
_OVERLAP: dict[str, Overlap] = {"s": "skip", "a": "allow"}
_MISSED_CODES = {word: code for code, word in _MISSED.items()}
_OVERLAP_CODES = {word: code for code, word in _OVERLAP.items()}
HEADER = "fairturn.schedule"


class Wanted(NamedTuple):
    """The arguments of ``set``, checked and encoded."""

    spec: schedule_times.Spec  # an interval has no anchor yet
    columns: dict[str, Any]  # of a ScheduleRow: those that the arguments decide


def name(value: Any) -> str:
    check.name(value, "schedule")
    size = len(value.encode())
    if size > limits.SCHEDULE_BYTES:
        raise InvalidName(
            f"schedule has {size} bytes in UTF-8 and may have at most {limits.SCHEDULE_BYTES}: the "
            "name is part of the keys of its messages"
        )
    return value


def wanted(
    queue: str,
    send: Send,
    *,
    cron: str | None,
    every: Duration | None,
    at: Moment | None,
    timezone: str,
    missed: str,
    overlap: str,
    owner: str | None,
) -> Wanted:
    """Check and encode the arguments of ``set``. ``send`` is the message, without its due time."""
    row = sends.encode(send)
    if missed not in _MISSED_CODES:
        raise InvalidArgument(f'missed must be "skip", "once" or "backfill", not {missed!r}')
    if overlap not in _OVERLAP_CODES:
        raise InvalidArgument(f'overlap must be "skip" or "allow", not {overlap!r}')
    if missed == "backfill" and overlap == "skip":
        raise InvalidArgument(
            'missed="backfill" sends a message for each missed due time, but overlap="skip" keeps '
            'only the last of them: add overlap="allow", or use missed="once"'
        )
    columns = {
        "queue": check.name(queue, "queue"),
        "missed": _MISSED_CODES[missed],
        "overlap": _OVERLAP_CODES[overlap],
        "owner": check.optional_name(owner, "owner"),
        "json": row.json,
        "body": row.body,
        "options": _options(row),
    }
    return Wanted(_spec(cron, every, at, timezone), columns)


def _spec(
    cron: str | None, every: Duration | None, at: Moment | None, timezone: str
) -> schedule_times.Spec:
    if sum(value is not None for value in (cron, every, at)) != 1:
        raise InvalidArgument("a schedule needs cron=, every= or at=, exactly one of them")
    if cron is not None:
        return schedule_times.cron(cron, timezone)
    if timezone != "UTC":
        raise InvalidArgument(
            "timezone= is for cron= only: an interval has no time zone, and at= has its own"
        )
    if every is not None:
        every_us = check.microseconds(every, "every")
        if every_us < limits.EVERY_MIN:
            raise InvalidArgument(f"every must be at least 1 second, not {every!r}")
        return schedule_times.Every(every_us, 0)
    assert at is not None
    return schedule_times.Once(check.instant(at, "at"))


# The columns of a message that a schedule stores.
_COLUMNS = [column for name in SCHEDULED for column in SEND_OPTIONS[name].columns]
_USUAL = SendRow("", b"", 0)


def _options(row: SendRow) -> str:
    """Return the options that are not the defaults, as JSON."""
    changed = (name for name in _COLUMNS if getattr(row, name) != getattr(_USUAL, name))
    given = {name: getattr(row, name) for name in changed}
    if "headers" in given:
        given["headers"] = json.loads(given["headers"])
    return json.dumps(given, separators=(",", ":"), sort_keys=True)


def message(row: ScheduleRow, tick: int | None) -> SendRow:
    """Return the message for the due time ``tick``; None: it is triggered by hand.

    ``overlap`` decides on its key (§18.6). With skip all messages have the same key: a later one
    replaces one that waits, and is refused while one is leased. With allow each has its own key.
    """
    given: dict[str, Any] = json.loads(row.options)
    at = (
        None
        if tick is None
        else schedule_times.local(schedule_times.decode(row.spec), tick).isoformat()
    )
    headers = {**given.get("headers", {}), HEADER: {"name": row.name, "tick": at}}
    key, on_conflict = f"schedule:{row.name}", "r"
    if row.overlap == "a":
        key, on_conflict = None if tick is None else f"tick:{tick}:{row.name}", "i"
    given["headers"], _ = check.payload(headers, "headers")
    sent = SendRow(given.pop("channel", ""), row.body, row.json, **given)
    return sent._replace(key=key, on_conflict=on_conflict)


def status(row: ScheduleRow) -> ScheduleStatus:
    spec = schedule_times.decode(row.spec)
    given: dict[str, Any] = json.loads(row.options)
    new: dict[str, Any] = {**_USUAL._asdict(), "headers": {}, **given}
    return ScheduleStatus(
        name=row.name,
        queue=row.queue,
        cron=spec.expression if isinstance(spec, schedule_times.Cron) else None,
        every=_seconds(spec.every_us) if isinstance(spec, schedule_times.Every) else None,
        at=moment(spec.at_us) if isinstance(spec, schedule_times.Once) else None,
        timezone=spec.timezone if isinstance(spec, schedule_times.Cron) else "UTC",
        missed=_MISSED[row.missed],
        overlap=_OVERLAP[row.overlap],
        owner=row.owner,
        paused=bool(row.paused),
        next_at=None if row.paused else optional_moment(row.next_at),
        last_at=optional_moment(row.last_at),
        error=row.error,
        created_at=moment(row.created_at),
        updated_at=moment(row.updated_at),
        body=decode(row.body, row.json),
        **{name: SEND_OPTIONS[name].decode(new) for name in SCHEDULED},
    )


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / limits.SECOND
