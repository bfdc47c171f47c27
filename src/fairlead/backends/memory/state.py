"""What the model remembers: plain records, and the small questions one record can answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairlead.backends.base import OPEN, RUNNING, Row
from fairlead.backends.scheduling import ScheduleRow
from fairlead.values import COUNTERS

MINUTE = 60_000_000
NO_LIMIT = 2**63
WAITING, UNFINISHED, FINISHED = "hsr", "hsrl", "dx"


class Policy(NamedTuple):
    """One channel's policy, in the order of base.POLICY_COLUMNS."""

    max_concurrency: int | None
    rate_count: int | None
    rate_period_us: int | None
    burst: int
    weight: int
    paused: int
    ordered: int
    max_size: int | None


class Rate(NamedTuple):
    """A GCRA rate (§4.11); ``tat`` is the time at which the next message would be in step."""

    interval: int
    tolerance: int

    @classmethod
    def of(cls, count: int | None, period: int | None, burst: int) -> Rate | None:
        if count is None or period is None:
            return None
        interval = -(-period // count)
        return cls(interval, (burst - 1) * interval)

    def allowed(self, tat: int, now: int) -> int:
        ahead = max(tat, now) - now
        return 0 if ahead > self.tolerance else (self.tolerance - ahead) // self.interval + 1

    def wait(self, tat: int, now: int) -> int:
        return max(max(tat, now) - self.tolerance - now, 0)

    def charged(self, tat: int, now: int, k: int) -> int:
        return max(tat, now) + k * self.interval


@dataclass(slots=True)
class Message:
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
    json: int
    state: str
    lease_us: int | None  # its own, else None: the queue's
    max_attempts: int | None  # likewise
    expires_at: int | None
    attempts: int = 0
    deliveries: int = 0
    memo: bytes | None = None
    lease_until: int | None = None
    permit: int | None = None
    recovered: int = 0
    begun: int = 0  # delivered under an ordered policy and not finished since
    result: bytes | None = None
    error: str | None = None
    finished_at: int | None = None
    group: Group | None = None
    progress: int | None = None  # millionths
    note: str | None = None
    died_in: Queue | None = None  # the queue it was dead-lettered from
    first_at: int | None = None  # when it was first leased

    def schedule(self, due_at: int, now: int) -> None:
        """§2.1."""
        self.due_at = due_at
        self.state = "r" if due_at <= now else "s"

    def end_lease(self) -> None:
        self.lease_until = self.permit = None

    def finish(self, state: str, now: int) -> None:
        self.state, self.finished_at, self.begun = state, now, 0

    def set_json(self, bit: int, on: int) -> None:
        self.json = self.json & ~bit | (bit if on else 0)

    def past_expiry(self, now: int) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def past_lease(self, now: int) -> bool:
        return self.lease_until is not None and self.lease_until <= now

    @property
    def order(self) -> tuple[int, int, int]:
        """§4.6."""
        return (-self.priority, self.due_at, self.id)

    @property
    def row(self) -> Row:
        """base.ROW."""
        m = self
        # fmt: off
        return (
            m.id, m.channel, m.body, m.headers, m.key, m.version, m.type, m.priority, m.due_at,
            m.created_at, m.attempts, m.deliveries, m.memo, m.lease_until, m.json | m.begun << 3,
            m.recovered, m.group and m.group.name, m.died_in and m.died_in.name, m.first_at,
        )
        # fmt: on

    @property
    def peek_row(self) -> Row:
        """base.PEEK_ROW."""
        return (
            *self.row,
            self.state,
            self.result,
            self.error,
            self.finished_at,
            self.expires_at,
            self.max_attempts,
            self.progress,
            self.note,
        )

    @property
    def outcome_row(self) -> Row:
        """base.OUTCOME_ROW."""
        m = self
        return (m.id, m.key, m.state, m.json, m.result, m.error, m.progress, m.note)


@dataclass(slots=True, eq=False)
class Group:
    """§12; two of one name are two groups, so they are equal only to themselves."""

    id: int
    name: str
    queue: str
    on_dead: str
    created_at: int
    state: str = OPEN
    started_at: int | None = None
    closed_at: int | None = None
    sent: int = 0
    done: int = 0
    dead: int = 0
    end: Work | None = None
    abort: Work | None = None
    abort_for: bool = False  # a member died, and that is what on_dead waits for

    @property
    def is_open(self) -> bool:
        return self.state in (OPEN, RUNNING)

    def died(self) -> None:
        self.dead += 1
        self.abort_for = self.abort_for or self.on_dead == "a"


class Work(NamedTuple):
    """What a group sends when it closes: a held message, and when it will be due."""

    message: Message
    due_us: int | None
    delay_us: int  # from the closing


class Event(NamedTuple):
    """In the order of base.EVENT_ROW, the cursor being a number here."""

    cursor: int
    at: int
    kind: str
    queue: str
    id: int | None
    key: str | None
    channel: str | None
    delay_us: int | None
    data: bytes | None


class Failure(NamedTuple):
    queue: str
    message_id: int
    key: str | None
    attempt: int
    at: int
    error: str
    details: bytes | None
    reference: str | None
    killed: bool


@dataclass(slots=True)
class Permit:
    id: int
    name: str
    created_at: int
    expires_at: int


class Remembered(NamedTuple):
    """§19: the first message of a name, or a value."""

    expires_at: int
    id: int = 0
    value: bytes = b""


@dataclass(slots=True)
class Queue:
    name: str
    created_at: int
    columns: dict[str, Any]
    messages: dict[int, Message] = field(default_factory=dict[int, Message])
    policies: dict[str, Policy] = field(default_factory=dict[str, Policy])
    tats: dict[str, int] = field(default_factory=dict[str, int])  # per channel
    tat: int = 0  # of the limit over all channels
    totals: Counter[str] = field(default_factory=Counter[str])
    minutes: dict[int, Counter[str]] = field(default_factory=dict[int, Counter[str]])
    failures: list[Failure] = field(default_factory=list[Failure])
    # By kind (backends/remembering.py) and name.
    remembered: dict[tuple[str, str], Remembered] = field(
        default_factory=dict[tuple[str, str], Remembered]
    )

    def select(self, states: str, channel: str | None = None) -> list[Message]:
        """The messages in any of these states, by id."""
        return [
            message
            for _, message in sorted(self.messages.items())
            if message.state in states and channel in (None, message.channel)
        ]

    def find(self, id: int | None, key: str | None) -> Message | None:
        if id is not None:
            return self.messages.get(id)
        return next((m for m in self.messages.values() if m.key == key), None)

    def recall(self, kind: str, name: str, now: int) -> Remembered | None:
        found = self.remembered.get((kind, name))
        return found if found is not None and found.expires_at > now else None

    def count(self, now: int, counter: str, by: int = 1) -> None:
        if by:
            self.totals[counter] += by
            self.minutes.setdefault(now // MINUTE * MINUTE, Counter())[counter] += by

    def policy(self, channel: str) -> Policy:
        """§4.5: the channel's own, else the queue's default, whole."""
        columns = self.columns
        return self.policies.get(channel) or Policy(
            columns["max_concurrency"],
            columns["rate_count"],
            columns["rate_period_us"],
            columns["burst"],
            columns["weight"],
            columns["channel_paused"],
            columns["ordered"],
            columns["max_size"],
        )

    @property
    def limit_rate(self) -> Rate | None:
        c = self.columns
        return Rate.of(c["limit_rate_count"], c["limit_rate_period_us"], c["limit_burst"])

    def attempts_left(self, message: Message) -> bool:
        """§2.3."""
        own = message.max_attempts
        bound = self.columns["max_attempts"] if own is None else own
        return bound == 0 or message.attempts < bound

    def lease_us(self, message: Message, given: int | None) -> int:
        own = message.lease_us if given is None else given
        return self.columns["lease_us"] if own is None else own


@dataclass(slots=True)
class State:
    queues: dict[str, Queue] = field(default_factory=dict[str, Queue])
    permits: dict[int, Permit] = field(default_factory=dict[int, Permit])
    # What maintenance has yet to sweep, per purge or drop.
    purged: list[list[Message]] = field(default_factory=list[list[Message]])
    forgotten: list[int] = field(default_factory=list[int])  # of what was remembered, likewise
    groups: list[Group] = field(default_factory=list[Group])  # closed ones too, by id
    # Groups that lost a member since they were judged, and when.
    marks: dict[Group, int] = field(default_factory=dict[Group, int])
    events: list[Event] = field(default_factory=list[Event])
    schedules: dict[str, ScheduleRow] = field(default_factory=dict[str, ScheduleRow])
    last_id: int = 0  # never goes back: an id used twice would revive stale leases
    last_permit: int = 0
    last_group: int = 0
    last_event: int = 0


def counters(counted: Counter[str]) -> Iterable[int]:
    return (counted[name] for name in COUNTERS)
