"""The seam between Fairturn and a database: what a backend must be able to do.

docs/semantics.md says what each operation means, once for all backends; the § numbers below are
that page's. The rows that operations take and return are in core/rows.py, the verbs in verbs.py,
what an operation yields in steps.py. ``now`` is ``None`` for the database's clock, or a number in
tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from fairturn.backends.remembered import Remembering
from fairturn.backends.schedules import Schedules
from fairturn.backends.schema import Fit
from fairturn.backends.steps import Op
from fairturn.backends.verbs import Applied, Lease, Verb, new_token
from fairturn.core.kinds import Value
from fairturn.core.rows import (
    ChannelRow,
    EventRow,
    FailureRow,
    GroupRow,
    HistoryRow,
    MessageRow,
    OutcomeRow,
    PeekRow,
    PermitRow,
    SendRow,
    StatsRow,
    StepRow,
)
from fairturn.core.settings import PolicyRow

Outcome = tuple[int, str]  # of one sent item: the id, and one of these codes
SENT, DUPLICATE, REPLACED, REFUSED, COLLAPSED, CONFLICT, FULL = "s", "d", "r", "f", "c", "e", "m"
OPEN, RUNNING, ENDED, CANCELLED, ABORTED = "o", "r", "e", "c", "a"  # the states of a group


@dataclass(slots=True)
class ConsumerState:
    """What a consumer keeps between two receives of one queue. It may be lost without harm.

    ``channel`` is the last channel served (None: before the first) and ``credit`` the rest of its
    turn. ``extra`` belongs to the backend. ``yours``: the receive is in your transaction. It may be
    rolled back, so the backend must not assume that the messages it delivered stay leased.
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
    acks: Sequence[Lease] = ()  # of the previous batch, each message once; they are acked first
    token: int = field(default_factory=new_token)  # of the leases that it takes


@dataclass(slots=True)
class Received:
    rows: list[MessageRow]  # in the order of delivery
    retry_after_us: int | None = None  # only if rows is empty; None: no message is coming
    lost: list[int] = field(default_factory=list[int])  # ids among the carried acks


class Reschedule(NamedTuple):
    """What a reschedule changes. A field that is None stays as it is."""

    due_us: int | None = None
    delay_us: int | None = None  # from now, if due_us is None
    rank: int | None = None


class Peek(NamedTuple):
    """Which messages a peek returns."""

    n: int
    state: str | None = None  # a code; None: any
    channel: str | None = None
    after: int = 0  # an id


class Opening(NamedTuple):
    """A group to create, unless an open one has its name."""

    name: str
    queue: str  # of its end and abort messages; "": the caller did not name one
    on_dead: str = "i"  # 'i' ignore or 'a' abort
    end: SendRow | None = None
    abort: SendRow | None = None

    @property
    def works(self) -> list[SendRow]:
        """The end and the abort message, if there are any."""
        return [work for work in (self.end, self.abort) if work is not None]


class Batch(NamedTuple):
    """The changes of a batch: each list is sorted, and no queue occurs twice in the sends."""

    sets: Sequence[tuple[str, str, PolicyRow]]  # queue, channel, policy
    clears: Sequence[tuple[str, str]]  # queue, channel
    sends: Sequence[tuple[str, Sequence[SendRow]]]  # queue, items


@dataclass(frozen=True, slots=True)
class Facts:
    """What explain needs to know about one message; operations/insight makes a text of it."""

    row: PeekRow
    now: int
    queue: Mapping[str, Value]  # the queue's columns, perhaps without its meta
    policy: PolicyRow  # of the message's channel: its own, or the queue's default
    ahead: int  # ready messages of its channel that come before it
    leased: int  # leases of its channel
    leased_queue: int  # leases of the queue
    next_lease_end: int | None  # earliest lease_until in the channel
    tat: int  # GCRA time of the channel's gate, 0 if none
    queue_tat: int
    blocking_id: int | None  # ordered: the delivered, unfinished message it waits for

    @classmethod
    def of(
        cls, row: PeekRow, now: int, queue: Mapping[str, Value], columns: Sequence[Any]
    ) -> Facts:
        """From the columns of a statement: those of the policy, then the other fields."""
        width = len(PolicyRow._fields)
        policy = PolicyRow._make(columns[:width])
        return cls(row, now, queue, policy, *columns[width:])


class Backend(Schedules, Remembering, Protocol):
    dialect: str  # "sqlite", "postgresql" or "mysql"

    def translate(self, code: str, message: str) -> Exception | str | None:
        """The meaning of a database error: "busy" (try again: deadlock, serialization, lock
        timeout), "gone" (the connection is lost), "torn" (interrupted; nobody knows whether it was
        committed), an error of Fairturn to raise instead, or None (unknown; it was rolled back).
        `code` comes from the driver (drivers/base.py)."""
        ...

    # --- schema ------------------------------------------------------------------------------
    def migrations(self) -> list[tuple[str, str]]:
        """(name, SQL text) of every migration, in order, and of the routines. The texts have the
        names of this installation."""
        ...

    def migrate(self) -> Op[list[str]]:
        """Apply the missing migrations and return their names. If two clients migrate at the same
        time, one waits for the other."""
        ...

    def fit(self) -> Op[Fit]:
        """Does the schema of the database fit this client?"""
        ...

    def check(self) -> Op[None]:
        """Raise SchemaOutdated unless the database has a schema that serves this client."""
        ...

    # --- queues ------------------------------------------------------------------------------
    def queue_create(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[bool]:
        """True if it was created. An existing queue stays as it is. `columns` may be partial."""
        ...

    def queue_set(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[None]: ...

    def queues(self, name: str | None) -> Op[list[dict[str, Any]]]:
        """One queue ([] if unknown), or all, sorted by name: name, created_at and the settings
        (settings.QUEUE_DEFAULTS)."""
        ...

    def queue_purge(self, name: str, reset: bool, now: int | None) -> Op[None]: ...

    def queue_drop(self, name: str, now: int | None) -> Op[bool]: ...

    # --- policies ----------------------------------------------------------------------------
    def policy_set(
        self, queue: str, channel: str, policy: PolicyRow, now: int | None
    ) -> Op[None]: ...

    def policy_clear(self, queue: str, channel: str, now: int | None) -> Op[bool]: ...

    def channels(self, queue: str, limit: int, now: int | None) -> Op[list[ChannelRow]]:
        """Sorted by name; §9.4."""
        ...

    # --- messages ----------------------------------------------------------------------------
    def send(self, queue: str, items: Sequence[SendRow], now: int | None) -> Op[list[Outcome]]:
        """The outcome of each item. If any is a CONFLICT or FULL, nothing was sent."""
        ...

    def receive(
        self, queue: str, args: Receive, consumer: ConsumerState, now: int | None
    ) -> Op[Received]: ...

    def apply_verb(
        self, queue: str, verb: Verb, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[Applied]:
        """§5, §13.1. No message occurs twice. With `strict` a lost lease raises LeaseLost (on
        PostgreSQL inside the statement, so that your transaction cannot commit)."""
        ...

    def cancel(
        self, queue: str, id: int | None, key: str | None, force: bool, now: int | None
    ) -> Op[str]:
        """'c' cancelled, 'l' leased (nothing is changed), 'n' no such message; §7.1."""
        ...

    def reschedule(
        self, queue: str, id: int | None, key: str | None, change: Reschedule, now: int | None
    ) -> Op[str]:
        """'c' changed, 'l' leased, 'n' not waiting; §7.2."""
        ...

    def promote(self, queue: str, within_us: int, limit: int, now: int | None) -> Op[int]:
        """Make scheduled messages that are due within this time ready; how many; §7.3."""
        ...

    def redrive(
        self, queue: str, to: str | None, limit: int, delay_us: int, now: int | None
    ) -> Op[int]: ...

    def move(self, queue: str, to: str | None, limit: int, now: int | None) -> Op[int]: ...

    def discard(self, queue: str, state: str, limit: int, now: int | None) -> Op[int]:
        """Delete finished messages ('d' or 'x'), oldest first; how many."""
        ...

    # --- groups ------------------------------------------------------------------------------
    def group_open(self, opening: Opening, now: int | None) -> Op[bool]:
        """True if it was created, False if an open group has this name; §12.2."""
        ...

    def group_start(self, name: str, now: int | None) -> Op[bool]:
        """True if there is an open group that was not started before; §12.4. An empty one ends:
        §12.5."""
        ...

    def group_cancel(self, name: str, now: int | None) -> Op[bool]: ...

    def group_status(self, name: str, now: int | None) -> Op[GroupRow | None]:
        """§12.12."""
        ...

    def groups(self, limit: int, now: int | None) -> Op[list[GroupRow]]:
        """The open groups, by name."""
        ...

    def settle(self, limit: int, now: int | None) -> Op[int]:
        """Close groups; how many; §12.11. On SQLite there is nothing to do: each is closed in the
        transaction that completes it."""
        ...

    # --- batches -----------------------------------------------------------------------------
    def batch(self, batch: Batch, now: int | None) -> Op[list[list[Outcome]]]:
        """Set and clear policies, then send; §16. Returns the outcomes of each queue's items. It
        does not stop at a CONFLICT or FULL. The caller then raises an error, which rolls the
        transaction back."""
        ...

    # --- permits -----------------------------------------------------------------------------
    def permit_create(self, id: int, name: str, ttl_us: int, now: int | None) -> Op[None]: ...

    def permit_extend(self, permit: int, ttl_us: int, now: int | None) -> Op[bool]: ...

    def permit_close(self, permit: int, now: int | None) -> Op[None]: ...

    def permits(self, now: int | None) -> Op[list[PermitRow]]:
        """The permits that have not expired."""
        ...

    # --- insight -----------------------------------------------------------------------------
    def get(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> Op[PeekRow | None]: ...

    def peek(self, queue: str, peek: Peek, now: int | None) -> Op[list[PeekRow]]:
        """Sorted by id."""
        ...

    def stats(self, queue: str | None, now: int | None) -> Op[list[StatsRow]]:
        """Of one queue, or of all; §9.1."""
        ...

    def history(self, queue: str, since: int, now: int | None) -> Op[list[HistoryRow]]:
        """One row for each minute in which something was counted, oldest first."""
        ...

    def facts(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> Op[Facts | None]: ...

    def failures(self, queue: str, id: int | None, key: str | None, n: int) -> Op[list[FailureRow]]:
        """Newest first."""
        ...

    def trace(self, key: str) -> Op[list[StepRow]]:
        """The messages and failures of a key, in all queues; §9.5."""
        ...

    def outcomes(
        self, queue: str, ids: Sequence[int], keys: Sequence[str], now: int | None
    ) -> Op[list[OutcomeRow]]:
        """In any order; §13.2."""
        ...

    def events(
        self, after: str | None, queue: str | None, kinds: Sequence[str] | None, limit: int
    ) -> Op[tuple[list[EventRow], str]]:
        """The events, and the cursor to read on from; §15.3. An unknown queue raises
        QueueNotFound."""
        ...

    # --- maintenance -------------------------------------------------------------------------
    def maintain(self, limit: int, now: int | None) -> Op[tuple[int, int, int, int, bool]]:
        """(activated, recovered, killed, purged, more); §10."""
        ...

    def clock(self) -> Op[int]:
        """The database's clock, in microseconds."""
        ...
