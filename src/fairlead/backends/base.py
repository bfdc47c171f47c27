"""The seam between Fairlead and a database: what a backend must be able to do.

An operation is a generator. It yields statements ``(text, params)``, gets back rows (a list of
tuples) and returns a plain value. It never imports a driver, sleeps, or reads a clock, so the same
operation runs on any connection, sync or async, ours or yours (run.py). Only ``int``, ``str``,
``bytes`` and ``None`` cross this seam in either direction; every time is in microseconds.

``now`` is ``None`` for the database's clock, or a number in tests. What each operation means is
written once, for all backends, in docs/semantics.md; the rule numbers below are that page's.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from fairlead.backends.remembering import Remembering
from fairlead.backends.scheduling import Schedules

T = TypeVar("T")
Value = int | str | bytes | None
Row = tuple[Any, ...]
Rows = list[Row]


class Begin:
    """Yielded first by an operation of several statements: they belong in one transaction.

    On our own connection the runner opens it and commits when the operation returns; inside your
    transaction it does nothing.
    """

    __slots__ = ("write",)

    def __init__(self, write: bool) -> None:
        self.write = write


BEGIN = Begin(write=True)
BEGIN_READ = Begin(write=False)


@dataclass(frozen=True, slots=True)
class Copy:
    """A bulk load: ``text`` is the COPY statement, ``data`` its binary stream in blocks, which are
    made while the server works on those before.

    Only yielded to a driver whose ``can_copy`` is true.
    """

    text: str
    data: Iterable[bytes]


class CanCopy:
    """Yielded to ask whether the driver can COPY; the answer is True or False."""


CAN_COPY = CanCopy()

Statement = tuple[str, Sequence[Value]] | Begin | Copy | CanCopy
Op = Generator[Any, Any, T]

# One message to send, already checked and encoded, as a tuple (50,000 of them are made per call):
#   0 channel  1 body  2 json (0|1)  3 rank (= -priority)  4 due_us | None  5 delay_us
#   6 key | None  7 on_conflict ('e' error, 'i' ignore, 'r' replace)  8 version  9 type | None
#   10 headers | None (JSON bytes)  11 lease_us | None  12 max_attempts | None  13 expires_us | None
#   14 max_wait_us | None  15 group | None (its name)  16 once | None  17 once_us | None
# due = due_us if given, else now + delay_us; at most created_at + max_wait_us (§14).
# expires_us is a duration from now.
SendRow = tuple[Any, ...]

# What became of one sent item: ids and one of these.
SENT, DUPLICATE, REPLACED, REFUSED, COLLAPSED, CONFLICT, FULL = "s", "d", "r", "f", "c", "e", "m"

# A leased message's columns, in this order (values.Message reads them by position). `json` holds
# the bits of values.BODY_JSON, MEMO_JSON, RESULT_JSON, ORDERED.
ROW = (
    *("id", "channel", "body", "headers", "key", "version", "type", "priority", "due_at"),
    *("created_at", "attempts", "deliveries", "memo", "lease_until", "json", "recovered"),
    "group",  # its name
    "origin",  # the name of the queue where it died before it was moved here
    "first_at",  # when it was first leased
)
# What peek and get return on top.
PEEK_ROW = (
    *ROW,
    *("state", "result", "error", "finished_at", "expires_at", "max_attempts", "progress", "note"),
)
# What `outcomes` returns, per message; `json` as above.
OUTCOME_ROW = ("id", "key", "state", "json", "result", "error", "progress", "note")
# What `group_status` and `groups` return. `state` is one of GROUP_STATES.
GROUP_ROW = (
    *("name", "queue", "state", "created_at", "started_at", "closed_at"),
    *("sent", "done", "dead", "held", "waiting", "leased"),
)
OPEN, RUNNING, ENDED, CANCELLED, ABORTED = "o", "r", "e", "c", "a"  # the states of a group
# What `events` returns: cursor after this event, time, kind, queue, message id | None, key | None,
# channel | None, delay_us | None, data | None (JSON bytes).
EVENT_ROW = ("cursor", "at", "kind", "queue", "id", "key", "channel", "delay_us", "data")

# A queue's columns, as `queues` returns them (a dict) and `queue_create`/`queue_set` take them.
QUEUE_DEFAULTS: dict[str, Value] = {
    "lease_us": 30_000_000,
    "max_attempts": 5,
    "backoff_initial_us": 0,  # 0: no back-off
    "backoff_factor": 2,
    "backoff_max_us": 0,
    "retention_us": 0,
    "dead_retention_us": None,  # None: for ever
    "failure_retention_us": 604_800_000_000,
    "dead_letter": None,  # a queue's name
    "max_body": 16_777_216,
    "expires_us": None,
    "paused": 0,
    "events": 0,
    # the limit over all channels
    "limit_concurrency": None,
    "limit_rate_count": None,
    "limit_rate_period_us": None,
    "limit_burst": 1,
    # the default policy of every channel without one of its own
    "max_concurrency": None,
    "rate_count": None,
    "rate_period_us": None,
    "burst": 1,
    "weight": 1,
    "channel_paused": 0,
    "ordered": 0,
    "max_size": None,
    "meta": None,  # the user's own, a JSON object as text
}
POLICY_COLUMNS = (
    "max_concurrency",
    "rate_count",
    "rate_period_us",
    "burst",
    "weight",
    "paused",
    "ordered",
    "max_size",
)
PolicyRow = tuple[Any, ...]  # in the order of POLICY_COLUMNS


@dataclass(slots=True)
class Memory:
    """What a consumer remembers between two receives of one queue; lost without harm.

    ``channel`` is the last channel served (None: before the first) and ``credit`` what is left of
    its turn. ``extra`` belongs to the backend. ``yours``: the receive is in your transaction, which
    may roll back, so what it reads must not be taken for drained.
    """

    channel: str | None = None
    credit: int = 0
    extra: Any = None
    yours: bool = False


@dataclass(frozen=True, slots=True)
class Receive:
    """The arguments of one receive."""

    n: int
    lease_us: int | None = None  # None: the message's own, else the queue's
    version: int | None = None
    types: Sequence[str] | None = None
    min_priority: int | None = None
    max_bytes: int | None = None
    permit: int | None = None
    acks: Sequence[tuple[int, int]] = ()  # (id, delivery) of the batch before, acked first


@dataclass(slots=True)
class Received:
    rows: Rows  # in the order given, columns ROW
    retry_after_us: int | None = None  # only when rows is empty; None: nothing is on its way
    lost: list[int] = field(default_factory=list[int])  # ids among the carried acks


@dataclass(frozen=True, slots=True)
class Facts:
    """What explain needs to know about one message (operations/insight.py turns it into words)."""

    row: Row  # PEEK_ROW
    now: int
    queue: Mapping[str, Value]  # the queue's columns, perhaps without its meta
    policy: PolicyRow  # in effect for the message's channel
    ahead: int  # ready messages of its channel that come before it
    leased: int  # leases of its channel
    leased_queue: int  # leases of the queue
    next_lease_end: int | None  # earliest lease_until in the channel
    tat: int  # GCRA time of the channel's gate, 0 if none
    queue_tat: int
    blocking_id: int | None  # ordered: the delivered, unfinished message it waits for


Lease = tuple[int, int]  # message id, delivery number


class Backend(Schedules, Remembering, Protocol):
    dialect: str  # "sqlite", "postgresql" or "mysql"

    def translate(self, code: str, message: str) -> Exception | str | None:
        """What a database error means: "busy" (try again: deadlock, serialization, lock timeout),
        "gone" (the connection is lost), "torn" (broken off, perhaps after its commit), an error of
        ours to raise instead, or None: unknown, and rolled back. `code` is what the driver made of
        it (drivers/base.py)."""
        ...

    # --- schema ------------------------------------------------------------------------------
    def migrations(self) -> list[tuple[str, str]]:
        """(name, SQL text) of every migration in order, with this installation's names in it."""
        ...

    def migrate(self) -> Op[list[str]]:
        """Apply what is missing; the names applied. Two at once: one waits for the other."""
        ...

    def check(self) -> Op[None]:
        """Raise SchemaOutdated unless the schema is there and serves this client."""
        ...

    # --- queues ------------------------------------------------------------------------------
    def queue_create(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[bool]:
        """True if it was created; an existing queue is left as it is. `columns` may be partial."""
        ...

    def queue_set(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[None]: ...

    def queues(self, name: str | None) -> Op[list[dict[str, Any]]]:
        """One queue ([] if unknown) or all by name: name, created_at and QUEUE_DEFAULTS' keys."""
        ...

    def queue_purge(self, name: str, reset: bool, now: int | None) -> Op[None]: ...

    def queue_drop(self, name: str, now: int | None) -> Op[bool]: ...

    # --- policies ----------------------------------------------------------------------------
    def policy_set(
        self, queue: str, channel: str, policy: PolicyRow, now: int | None
    ) -> Op[None]: ...

    def policy_clear(self, queue: str, channel: str, now: int | None) -> Op[bool]: ...

    def channels(self, queue: str, limit: int, now: int | None) -> Op[Rows]:
        """(channel, ready, scheduled, leased, *POLICY_COLUMNS or Nones), by name; §9.4."""
        ...

    # --- messages ----------------------------------------------------------------------------
    def send(
        self, queue: str, items: Sequence[SendRow], now: int | None
    ) -> Op[list[tuple[int, str]]]:
        """(id, outcome) per item. If any outcome is CONFLICT or FULL, nothing was sent."""
        ...

    def receive(
        self, queue: str, args: Receive, memory: Memory, now: int | None
    ) -> Op[Received]: ...

    # The verbs take leases and return the ids of those that were lost. With `strict` a lost lease
    # raises LeaseLost (on PostgreSQL inside the statement, so that your transaction cannot commit).
    def ack(
        self, queue: str, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[list[int]]: ...

    def complete(
        self,
        queue: str,
        leases: Sequence[Lease],
        result: bytes | None,
        result_json: int,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]: ...

    def defer(
        self,
        queue: str,
        leases: Sequence[Lease],
        due_us: int | None,
        delay_us: int,
        keep_memo: bool,
        memo: bytes | None,
        memo_json: int,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]: ...

    def fail(
        self,
        queue: str,
        leases: Sequence[Lease],
        error: str,
        delay_us: int | None,
        details: bytes | None,
        reference: str | None,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]: ...

    def kill(
        self,
        queue: str,
        leases: Sequence[Lease],
        error: str,
        details: bytes | None,
        reference: str | None,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]: ...

    def extend(
        self,
        queue: str,
        leases: Sequence[Lease],
        lease_us: int | None,
        exact: bool,
        strict: bool,
        now: int | None,
    ) -> Op[tuple[list[int], int | None]]:
        """The lost ids, and the new lease_until of the last lease that was extended."""
        ...

    def release(
        self, queue: str, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[list[int]]: ...

    def progress(
        self,
        queue: str,
        leases: Sequence[Lease],
        progress: int | None,
        note: str | None,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        """§13.1; `progress` in millionths."""
        ...

    def cancel(
        self, queue: str, id: int | None, key: str | None, force: bool, now: int | None
    ) -> Op[str]:
        """'c' cancelled, 'l' leased (nothing done), 'n' nothing to cancel; §7.1."""
        ...

    def reschedule(
        self,
        queue: str,
        id: int | None,
        key: str | None,
        due_us: int | None,
        delay_us: int | None,
        rank: int | None,
        now: int | None,
    ) -> Op[str]:
        """'c' changed, 'l' leased, 'n' not waiting; due is left alone if both times are None."""
        ...

    def promote(self, queue: str, within_us: int, limit: int, now: int | None) -> Op[int]:
        """Scheduled messages that are due within this time are ready now; how many; §7.3."""
        ...

    def redrive(
        self, queue: str, to: str | None, limit: int, delay_us: int, now: int | None
    ) -> Op[int]: ...

    def move(self, queue: str, to: str | None, limit: int, now: int | None) -> Op[int]: ...

    def discard(self, queue: str, state: str, limit: int, now: int | None) -> Op[int]:
        """Delete finished messages ('d' or 'x'), oldest first; how many."""
        ...

    # --- groups ------------------------------------------------------------------------------
    def group_open(
        self,
        name: str,
        queue: str,
        on_dead: str,
        end: SendRow | None,
        abort: SendRow | None,
        now: int | None,
    ) -> Op[bool]:
        """True if it was created; `on_dead` is 'i' or 'a'; §12.2."""
        ...

    def group_start(self, name: str, now: int | None) -> Op[bool]:
        """Of an open group; True if it was not started before. §12.4, and §12.5 if it is empty."""
        ...

    def group_cancel(self, name: str, now: int | None) -> Op[bool]: ...

    def group_status(self, name: str, now: int | None) -> Op[Row | None]:
        """GROUP_ROW; §12.12."""
        ...

    def groups(self, limit: int, now: int | None) -> Op[Rows]:
        """GROUP_ROWs of the open groups, by name."""
        ...

    def settle(self, limit: int, now: int | None) -> Op[int]:
        """How many groups were closed; §12.11. Nothing to do where groups close by themselves."""
        ...

    # --- batches -----------------------------------------------------------------------------
    def batch(
        self,
        sets: Sequence[tuple[str, str, PolicyRow]],
        clears: Sequence[tuple[str, str]],
        sends: Sequence[tuple[str, Sequence[SendRow]]],
        now: int | None,
    ) -> Op[list[list[tuple[int, str]]]]:
        """§16. Yields BEGIN first. All three come sorted, no queue twice among the sends; one
        statement per kind where that is a round trip. The outcomes of each queue's items; it goes
        on after a CONFLICT or FULL, and the caller raises, which undoes everything."""
        ...

    # --- permits -----------------------------------------------------------------------------
    def permit_create(self, name: str, ttl_us: int, now: int | None) -> Op[int]: ...

    def permit_extend(self, permit: int, ttl_us: int, now: int | None) -> Op[bool]: ...

    def permit_close(self, permit: int, now: int | None) -> Op[None]: ...

    def permits(self, now: int | None) -> Op[Rows]:
        """(id, name, created_at, expires_at, leases) of the live ones."""
        ...

    # --- insight -----------------------------------------------------------------------------
    def get(self, queue: str, id: int | None, key: str | None, now: int | None) -> Op[Row | None]:
        """PEEK_ROW of one message."""
        ...

    def peek(
        self,
        queue: str,
        n: int,
        state: str | None,
        channel: str | None,
        after: int,
        now: int | None,
    ) -> Op[Rows]:
        """PEEK_ROWs by id, `after` an id; `state` is a code or None."""
        ...

    def stats(self, queue: str | None, now: int | None) -> Op[Rows]:
        """Per queue: (name, ready, scheduled, leased, held, done, dead, *COUNTERS,
        oldest due time of what counts as ready | None, versions as JSON text {"0": 12}); §9.1."""
        ...

    def history(self, queue: str, since: int, now: int | None) -> Op[Rows]:
        """(minute_us, *COUNTERS) of each minute with traffic, oldest first."""
        ...

    def facts(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> Op[Facts | None]: ...

    def failures(self, queue: str, id: int | None, key: str | None, n: int) -> Op[Rows]:
        """(queue, message_id, key, attempt, at, error, details, reference), newest first."""
        ...

    def trace(self, key: str) -> Op[Rows]:
        """(at, queue, kind 'message'|'error', message_id, state code, text), all queues; §9.5."""
        ...

    def outcomes(
        self, queue: str, ids: Sequence[int], keys: Sequence[str], now: int | None
    ) -> Op[Rows]:
        """OUTCOME_ROWs, in any order; §13.2."""
        ...

    def events(
        self, after: str | None, queue: str | None, kinds: Sequence[str] | None, limit: int
    ) -> Op[tuple[Rows, str]]:
        """EVENT_ROWs, and the cursor to go on from; `queue` unknown: QueueNotFound. §15.3."""
        ...

    # --- care --------------------------------------------------------------------------------
    def maintain(self, limit: int, now: int | None) -> Op[tuple[int, int, int, int, bool]]:
        """(activated, recovered, killed, purged, more); §10."""
        ...

    def clock(self) -> Op[int]:
        """The database's clock, in microseconds."""
        ...
