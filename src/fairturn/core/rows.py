"""The rows that Fairturn and a backend exchange, each with its columns' names.

A driver returns plain tuples. The backend turns them into these classes, and all other code reads
them by name. The order of the fields is the order of the columns in SQL.
Times are microseconds since the epoch, durations (``…_us``) microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from fairturn.core.errors import UsageError
from fairturn.core.settings import PolicyRow, optional_policy
from fairturn.core.values import EventKind


class SendRow(NamedTuple):
    """One message to send, checked and encoded.

    It is due at ``due_us`` if that is given, else ``delay_us`` from now, but not later than
    ``max_wait_us`` after it was created (semantics §14).
    """

    channel: str
    body: bytes
    json: int  # 1: the body is JSON text
    rank: int = 0  # -priority
    due_us: int | None = None
    delay_us: int = 0
    key: str | None = None
    on_conflict: str = "e"  # 'e' error, 'i' ignore, 'r' replace
    version: int = 0
    type: str | None = None
    headers: bytes | None = None  # JSON
    lease_us: int | None = None
    max_attempts: int | None = None
    expires_us: int | None = None  # from now
    max_wait_us: int | None = None
    group: str | None = None  # its name
    once: str | None = None
    once_us: int | None = None

    def of_group(self, name: str) -> SendRow:
        """Return the same message as a member of this group."""
        *others, _, once, once_us = self
        return send_row((*others, name, once, once_us))


class MessageRow(NamedTuple):
    """A leased message, as a receive returns it."""

    id: int
    channel: str
    body: bytes
    headers: bytes | None
    key: str | None
    version: int
    type: str | None
    priority: int
    due_at: int
    created_at: int
    attempts: int
    deliveries: int
    token: int  # of its lease; 0: it is not leased
    memo: bytes | None
    lease_until: int | None
    json: int  # bits: BODY_JSON, MEMO_JSON, RESULT_JSON, ORDERED (values.py)
    recovered: int
    group: str | None  # its name
    origin: str | None  # the queue where it died before it was moved here
    first_at: int | None  # when it was first leased

    # A receive does not read these: in a leased message they have one value, or are not needed.
    state = "l"
    result = error = finished_at = expires_at = max_attempts = progress = note = None


class PeekRow(NamedTuple):
    """A message in any state, as get and peek return it: MessageRow's columns and eight more."""

    id: int
    channel: str
    body: bytes
    headers: bytes | None
    key: str | None
    version: int
    type: str | None
    priority: int
    due_at: int
    created_at: int
    attempts: int
    deliveries: int
    token: int  # of its lease; 0: it is not leased
    memo: bytes | None
    lease_until: int | None
    json: int
    recovered: int
    group: str | None
    origin: str | None
    first_at: int | None
    state: str  # one of values.STATES
    result: bytes | None
    error: str | None
    finished_at: int | None
    expires_at: int | None
    max_attempts: int | None
    progress: int | None  # millionths
    note: str | None


class LeaseRow(NamedTuple):
    """A delivery that is known only by id and token (a lease handle); after an extension also by
    the end of its lease. The verbs need no more. Other attributes raise UsageError.
    """

    id: int
    token: int
    until: int | None = None

    state = "l"
    result = error = finished_at = expires_at = max_attempts = progress = note = None

    @property
    def lease_until(self) -> int:
        if self.until is None:
            raise self._unread()
        return self.until

    def __getattr__(self, name: str) -> Any:
        raise self._unread() if name in MessageRow._fields else AttributeError(name)

    def _unread(self) -> UsageError:
        return UsageError(
            f"message {self.id} was not read: queue.lease() knows its lease only. Its verbs work; "
            f"queue.get(id={self.id}) reads the message"
        )


AnyMessageRow = MessageRow | PeekRow | LeaseRow  # what a Message reads


class OutcomeRow(NamedTuple):
    """The columns of a message that ``wait`` reads."""

    id: int
    key: str | None
    state: str
    json: int
    result: bytes | None
    error: str | None
    progress: int | None
    note: str | None


class GroupRow(NamedTuple):
    """A group and how many of its members are in which state."""

    name: str
    queue: str
    state: str  # one of values.GROUP_STATES
    created_at: int
    started_at: int | None
    closed_at: int | None
    sent: int
    done: int
    dead: int
    held: int
    waiting: int
    leased: int


class EventRow(NamedTuple):
    cursor: str  # the position after this event
    at: int
    kind: EventKind
    queue: str
    id: int | None
    key: str | None
    channel: str | None
    delay_us: int | None
    data: bytes | None  # JSON


class FailureRow(NamedTuple):
    """One line of the failure log."""

    queue: str
    message_id: int
    key: str | None
    attempt: int
    at: int
    error: str
    details: bytes | None  # JSON
    reference: str | None


class StepRow(NamedTuple):
    """One step in the history of a key, for ``trace``."""

    at: int
    queue: str
    kind: Literal["message", "error"]
    message_id: int
    state: str
    text: str


class StatsRow(NamedTuple):
    """A queue's counts, and its totals in the order of values.COUNTERS."""

    name: str
    ready: int
    scheduled: int
    leased: int
    held: int
    done: int
    dead: int
    sent: int
    delivered: int
    acked: int
    completed: int
    deferred: int
    failed: int
    killed: int
    recovered: int
    released: int
    cancelled: int
    expired: int
    errors: int
    oldest_ready: int | None  # the earliest due time of the ready messages
    versions: str | None  # JSON: {"0": 12}


class HistoryRow(NamedTuple):
    """The counters of one minute, in the order of values.COUNTERS."""

    minute: int
    sent: int
    delivered: int
    acked: int
    completed: int
    deferred: int
    failed: int
    killed: int
    recovered: int
    released: int
    cancelled: int
    expired: int
    errors: int


class ChannelRow(NamedTuple):
    channel: str
    ready: int
    scheduled: int
    leased: int
    policy: PolicyRow | None  # its own

    @classmethod
    def of(cls, columns: Sequence[Any]) -> ChannelRow:
        """Make it from the columns of a statement; a channel without a policy has NULLs there."""
        channel, ready, scheduled, leased, *policy = columns
        return cls(channel, ready, scheduled, leased, optional_policy(policy))


class PermitRow(NamedTuple):
    id: int
    name: str
    created_at: int
    expires_at: int
    leases: int


class ScheduleRow(NamedTuple):
    """A schedule as it is stored."""

    name: str
    revision: int  # raised by every change, so that each due time is handled once
    queue: str
    spec: str  # JSON (schedule_times.py)
    missed: str  # 's' skip, 'o' once, 'b' backfill
    overlap: str  # 's' skip, 'a' allow
    owner: str | None
    paused: int
    next_at: int | None  # the next due time; None: never again
    look_at: int | None  # when it has to be run or tried again; None: paused, or never again
    last_at: int | None  # the due time of the last message
    error: str | None  # why the message of next_at could not be sent
    created_at: int
    updated_at: int
    json: int  # is the body JSON?
    body: bytes
    options: str  # the other options of its messages, as JSON (operations/schedules/definition.py)

    def changeable(self) -> tuple[Any, ...]:
        """Return the columns that a change writes: not name, revision and created_at."""
        # fmt: off
        return (
            self.queue, self.spec, self.missed, self.overlap, self.owner, self.paused, self.next_at,
            self.look_at, self.last_at, self.error, self.updated_at, self.json, self.body,
            self.options,
        )
        # fmt: on


# For rows of which there are thousands: without _make's check of the length, twice as fast.
_new: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
send_row: Callable[[Iterable[Any]], SendRow] = partial(_new, SendRow)
message_row: Callable[[Iterable[Any]], MessageRow] = partial(_new, MessageRow)
peek_row: Callable[[Iterable[Any]], PeekRow] = partial(_new, PeekRow)
