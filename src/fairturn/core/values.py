"""The values that public calls take and return. No I/O, no backend, no clock.

Inside Fairturn times are microseconds since the epoch (UTC), as int. A user passes seconds or
datetimes and gets datetimes. Durations are seconds: int, float or timedelta.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from fairturn.core import limits

Duration = int | float | timedelta
Moment = datetime | int | float
State = Literal["held", "scheduled", "ready", "leased", "done", "dead"]

_decode = json.JSONDecoder().decode  # json.loads guesses the encoding first, which takes 2 µs

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STATES: dict[str, State] = {
    "h": "held",
    "s": "scheduled",
    "r": "ready",
    "l": "leased",
    "d": "done",
    "x": "dead",
}
STATE_CODES: dict[str, str] = {name: code for code, name in STATES.items()}

# Bits of the column `json`: which of the three payloads are JSON. The others are bytes.
BODY_JSON, MEMO_JSON, RESULT_JSON = 1, 2, 4
ORDERED = 8  # one more bit: the message came from an ordered channel


def moment(us: int) -> datetime:
    """Return microseconds since the epoch as an aware datetime."""
    return EPOCH + timedelta(microseconds=us)


def optional_moment(us: int | None) -> datetime | None:
    return None if us is None else moment(us)


@dataclass(frozen=True, slots=True)
class Stats:
    """Exact counts of a queue (or of all queues) at one instant, and totals since its creation.

    A scheduled message that is due, and one whose lease has expired, count as ready.
    """

    ready: int = 0
    scheduled: int = 0
    leased: int = 0
    held: int = 0
    done: int = 0
    dead: int = 0
    sent: int = 0
    delivered: int = 0
    acked: int = 0
    completed: int = 0
    deferred: int = 0
    failed: int = 0
    killed: int = 0
    recovered: int = 0
    released: int = 0
    cancelled: int = 0
    expired: int = 0
    errors: int = 0
    oldest_ready: datetime | None = None
    versions: Mapping[int, int] = field(default_factory=dict[int, int])
    # only of db.stats(): those of each queue
    queues: Mapping[str, Stats] = field(default_factory=dict[str, Any])

    @property
    def total(self) -> int:
        """Messages that exist, in any state."""
        return self.ready + self.scheduled + self.leased + self.held + self.done + self.dead


# The totals, in the order in which every backend stores and returns them.
COUNTERS = (
    *("sent", "delivered", "acked", "completed", "deferred", "failed"),
    *("killed", "recovered", "released", "cancelled", "expired", "errors"),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One line of the failure log."""

    queue: str
    message_id: int
    key: str | None
    attempt: int
    at: datetime
    error: str
    details: Any
    reference: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """One step in the history of a key, in any queue, as ``trace`` returns it."""

    at: datetime
    queue: str
    kind: Literal["message", "error"]
    message_id: int
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class Maintained:
    """How many messages one ``maintain`` changed. ``more``: it stopped at its limit."""

    activated: int = 0
    recovered: int = 0
    killed: int = 0
    purged: int = 0
    more: bool = False

    def __iter__(self) -> Any:
        return iter((self.activated, self.recovered, self.killed, self.purged))


@dataclass(frozen=True, slots=True)
class Acked:
    """The result of a verb on a batch: how many succeeded, and the messages with a lost lease."""

    acked: int
    lost: list[Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of ``wait``: the message is ``"done"`` with its result, ``"dead"`` with its error,
    or ``"gone"`` (acked, cancelled, expired, or never sent). With ``partial`` it may have another
    state, with its progress."""

    state: State | Literal["gone"]
    id: int | None = None
    result: Any = None
    error: str | None = None
    progress: float | None = None
    note: str | None = None

    @property
    def finished(self) -> bool:
        return self.state in ("done", "dead", "gone")


GroupState = Literal["open", "running", "ended", "cancelled", "aborted"]
GROUP_STATES: dict[str, GroupState] = {
    "o": "open",
    "r": "running",
    "e": "ended",
    "c": "cancelled",
    "a": "aborted",
}


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group at one instant. ``held``, ``waiting`` and ``leased`` count its unfinished members;
    ``sent``, ``done`` and ``dead`` are totals."""

    name: str
    queue: str
    state: GroupState
    created_at: datetime
    started_at: datetime | None
    closed_at: datetime | None
    sent: int
    done: int
    dead: int
    held: int
    waiting: int
    leased: int

    @property
    def closed(self) -> bool:
        return self.closed_at is not None


@dataclass(frozen=True, slots=True)
class PermitStatus:
    """The registration of a live worker at one instant, and how many leases it extends."""

    id: int
    name: str
    created_at: datetime
    expires_at: datetime  # unless it is extended before
    leases: int


EventKind = Literal[
    "created", "deferred", "leased", "done", "dead", "deleted", "progress", "closed"
]
EVENT_KINDS: tuple[EventKind, ...] = get_args(EventKind)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a message (``"closed"``: to a group). ``cursor`` is the position
    after it: pass it as ``after`` to continue there."""

    cursor: str
    at: datetime
    kind: EventKind
    queue: str
    id: int | None
    key: str | None
    channel: str | None
    delay: float | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a message is not running, in words."""

    id: int
    state: State
    reason: str
    text: str
    position: int | None = None
    next_at: datetime | None = None

    def __str__(self) -> str:
        return self.text


def duration_text(us: int) -> str:
    """Return a duration for people: 0.4 s, 12 s, 3 min 20 s, 5 h 4 min, 12 days."""
    seconds = max(us, 0) / limits.SECOND
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{round(seconds / 86400)} days"


def fraction(millionths: int | None) -> float | None:
    return None if millionths is None else millionths / limits.PROGRESS


def decode(raw: bytes | None, is_json: int) -> Any:
    """Return a stored payload as a value: JSON decoded, bytes unchanged."""
    if raw is None:
        return None
    return _decode(str(raw, "utf-8")) if is_json else raw
