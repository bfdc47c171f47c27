"""The plain values that go in and come out. No I/O, no backend, no clock.

Times inside Fairlead are integer microseconds since the epoch (UTC); a user gives seconds or
datetimes and reads datetimes. Durations are seconds: int, float or timedelta.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from fairlead import limits

Duration = int | float | timedelta
Moment = datetime | int | float
OnConflict = Literal["error", "ignore", "replace"]
State = Literal["held", "scheduled", "ready", "leased", "done", "dead"]

_decode = json.JSONDecoder().decode  # json.loads would guess the encoding first: 2 µs a message

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

# Which of a row's three payloads are JSON (the rest are bytes): bits of its `json` column.
BODY_JSON, MEMO_JSON, RESULT_JSON = 1, 2, 4
ORDERED = 8  # in the same bits: it was given by an ordered channel


def moment(us: int) -> datetime:
    """Microseconds since the epoch as an aware datetime."""
    return EPOCH + timedelta(microseconds=us)


@dataclass(slots=True)
class Send:
    """One message for ``send_many``; the arguments are those of ``send``."""

    body: Any
    channel: str = ""
    priority: int = 0
    delay: Duration | None = None
    at: Moment | None = None
    key: str | None = None
    on_conflict: OnConflict = "error"
    version: int = 0
    type: str | None = None
    headers: Mapping[str, Any] | None = None
    lease: Duration | None = None
    max_attempts: int | None = None
    expires: Duration | None = None
    group: str | None = None
    debounce: Duration | None = None
    max_wait: Duration | None = None
    once: str | None = None
    once_for: Duration = limits.ONCE_FOR // limits.SECOND


class Sent(int):
    """The id of a sent message, which also tells what became of the send.

    ``outcome`` is ``"sent"``, ``"duplicate"`` (the id is the existing message's; of a ``once`` that
    of the first, which may be gone), ``"replaced"``, ``"refused"`` (replace met a leased message)
    or ``"collapsed"`` (a later item of the call had the same key; the id is that item's).
    """

    outcome: str = "sent"

    @property
    def id(self) -> int:
        return int(self)

    @property
    def created(self) -> bool:
        """True if a new message exists because of this send."""
        return self.outcome == "sent"

    @classmethod
    def of(cls, id: int, outcome: str) -> Sent:
        sent = cls(id)
        if outcome != "sent":
            sent.outcome = outcome
        return sent


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failed message waits: ``initial * factor ** (attempts - 1)``, at most ``maximum``.

    Seconds; ``factor`` is a whole number so that every database computes the same delay. A task's
    ``retry`` also heeds ``max_attempts`` (None: the queue's) and ``jitter``: the part of each delay
    that is left to chance, so that what failed together does not come back together.
    """

    initial: Duration = 1
    factor: int = 2
    maximum: Duration = 3600
    max_attempts: int | None = None
    jitter: float = 0.2


@dataclass(frozen=True, slots=True)
class Policy:
    """What one channel may do. ``None`` means no limit."""

    max_concurrency: int | None = None
    rate: str | None = None
    burst: int = 1
    weight: int = 1
    paused: bool = False
    ordered: bool = False
    max_size: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """A queue's settings; durations in seconds."""

    name: str
    lease: float = limits.LEASE / limits.SECOND
    max_attempts: int = limits.MAX_ATTEMPTS
    backoff: Backoff | None = None
    retention: float = 0.0
    dead_retention: float | None = None
    failure_retention: float = limits.FAILURE_RETENTION / limits.SECOND
    dead_letter: str | None = None
    policy: Policy = field(default_factory=Policy)
    max_body: int = limits.BODY_BYTES
    expires: float | None = None
    events: bool = False
    paused: bool = False
    max_concurrency: int | None = None
    rate: str | None = None
    burst: int = 1
    created_at: datetime = EPOCH
    meta: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)  # your own


@dataclass(frozen=True, slots=True)
class Stats:
    """Exact counts of a queue (or of all queues) at one instant, and totals since its creation.

    A due scheduled message and an expired lease count as ready: the next receive would give them.
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
    # of db.stats(): one per queue
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
class ChannelStats:
    """One channel that has messages or a policy of its own."""

    channel: str
    ready: int
    scheduled: int
    leased: int
    policy: Policy | None


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
    """One step of a key's life across all queues, as ``trace`` tells it."""

    at: datetime
    queue: str
    kind: Literal["message", "error"]
    message_id: int
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class Maintained:
    """What one ``maintain`` did. ``more`` is true when it stopped at its limit."""

    activated: int = 0
    recovered: int = 0
    killed: int = 0
    purged: int = 0
    more: bool = False

    def __iter__(self) -> Any:
        return iter((self.activated, self.recovered, self.killed, self.purged))


@dataclass(frozen=True, slots=True)
class Acked:
    """The result of a batch verb: how many took effect and the messages whose lease was lost."""

    acked: int
    lost: list[Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a message, as ``wait`` tells it: ``"done"`` with its result, ``"dead"`` with
    its error, ``"gone"`` (acked, cancelled, expired, or never there); with ``partial`` also the
    state of one that has made progress."""

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
    """A group at one instant. ``held``, ``waiting`` and ``leased`` are its unfinished members;
    ``sent``, ``done`` and ``dead`` were counted on the way."""

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


EventKind = Literal[
    "created", "deferred", "leased", "done", "dead", "deleted", "progress", "closed"
]
EVENT_KINDS: tuple[EventKind, ...] = get_args(EventKind)


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to a message (or, ``"closed"``, to a group). ``cursor`` is where to go on
    after it: pass it as ``after``."""

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
    """Why a message is not running, in words a person can act on."""

    id: int
    state: State
    reason: str
    text: str
    position: int | None = None
    next_at: datetime | None = None

    def __str__(self) -> str:
        return self.text


def fraction(millionths: int | None) -> float | None:
    return None if millionths is None else millionths / limits.PROGRESS


def decode(raw: bytes | None, is_json: int) -> Any:
    """A stored payload as the user's value: JSON decoded, bytes as they are."""
    if raw is None:
        return None
    return _decode(str(raw, "utf-8")) if is_json else raw


class Message:
    """A message as it is stored. ``receive`` gives a ``LeasedMessage``, which adds the verbs."""

    __slots__ = ("_body", "_row", "queue")

    def __init__(self, queue: str, row: tuple[Any, ...]) -> None:
        self.queue = queue
        self._row = row

    # The columns every backend returns for a message, in this order (backends/base.py: ROW).
    @property
    def id(self) -> int:
        return self._row[0]

    @property
    def channel(self) -> str:
        return self._row[1]

    @property
    def raw(self) -> bytes:
        """The body's bytes as stored."""
        return self._row[2]

    @property
    def is_json(self) -> bool:
        """Is ``raw`` JSON text? Else the body was sent as bytes."""
        return bool(self._row[14] & BODY_JSON)

    @property
    def body(self) -> Any:
        """The body as it was sent: bytes, or the decoded JSON."""
        try:
            return self._body
        except AttributeError:
            self._body = decode(self._row[2], self._row[14] & BODY_JSON)
            return self._body

    @property
    def headers(self) -> dict[str, Any]:
        return json.loads(self._row[3]) if self._row[3] is not None else {}

    @property
    def key(self) -> str | None:
        return self._row[4]

    @property
    def version(self) -> int:
        return self._row[5]

    @property
    def type(self) -> str | None:
        return self._row[6]

    @property
    def priority(self) -> int:
        return self._row[7]

    @property
    def due_at(self) -> datetime:
        return moment(self._row[8])

    @property
    def created_at(self) -> datetime:
        return moment(self._row[9])

    @property
    def attempts(self) -> int:
        return self._row[10]

    @property
    def deliveries(self) -> int:
        return self._row[11]

    @property
    def memo(self) -> Any:
        return decode(self._row[12], self._row[14] & MEMO_JSON)

    @property
    def ordered(self) -> bool:
        """It was given by an ordered channel: nothing after it may run before it has ended."""
        return bool(self._row[14] & ORDERED)

    @property
    def lease_until(self) -> datetime | None:
        return self._moment(13)

    @property
    def recovered(self) -> bool:
        """True if an earlier delivery's lease expired."""
        return bool(self._row[15])

    @property
    def group(self) -> str | None:
        """The name of the group it belongs to."""
        return self._row[16]

    @property
    def origin(self) -> str | None:
        """The queue where it died, if it was dead-lettered from there and that still exists."""
        return self._row[17]

    @property
    def first_delivered_at(self) -> datetime | None:
        """When it was first received."""
        return self._moment(18)

    # Columns that only peek and get return.
    @property
    def state(self) -> State:
        return STATES[self._row[19]] if len(self._row) > 19 else "leased"

    @property
    def result(self) -> Any:
        return decode(self._row[20], self._row[14] & RESULT_JSON) if len(self._row) > 19 else None

    @property
    def error(self) -> str | None:
        return self._row[21] if len(self._row) > 19 else None

    @property
    def finished_at(self) -> datetime | None:
        return self._moment(22)

    @property
    def expires_at(self) -> datetime | None:
        return self._moment(23)

    @property
    def max_attempts(self) -> int | None:
        return self._row[24] if len(self._row) > 19 else None

    @property
    def progressed(self) -> float | None:
        """How far its worker says it is: 0.0 to 1.0."""
        return fraction(self._row[25]) if len(self._row) > 19 else None

    @property
    def note(self) -> str | None:
        """What its worker says it is doing."""
        return self._row[26] if len(self._row) > 19 else None

    def _moment(self, column: int) -> datetime | None:
        us = self._row[column] if len(self._row) > column else None
        return None if us is None else moment(us)

    def __repr__(self) -> str:
        # No body: reprs end up in logs.
        name, at = ("channel", 1) if len(self._row) > 16 else ("delivery", 11)  # of a handle
        return f"<{type(self).__name__} {self.id} queue={self.queue!r} {name}={self._row[at]!r}>"
