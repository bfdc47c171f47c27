"""The state of the memory backend, as plain objects."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairturn.backends.base import OPEN, RUNNING
from fairturn.core.rows import (
    EventRow,
    FailureRow,
    MessageRow,
    OutcomeRow,
    PeekRow,
    ScheduleRow,
    SendRow,
)
from fairturn.core.settings import DEFAULT_POLICY, PolicyRow
from fairturn.core.values import BODY_JSON, COUNTERS

MINUTE = 60_000_000
NO_LIMIT = 2**63
WAITING, UNFINISHED, FINISHED = "hsr", "hsrl", "dx"


class Rate(NamedTuple):
    """A rate by GCRA (§4.11). ``tat`` is when the next message would be evenly spaced."""

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
    token: int = 0  # of its latest lease
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

    @classmethod
    def of(cls, item: SendRow, now: int) -> Message:
        """A message from a send. It has no id, state or expiry yet."""
        return cls(
            id=0,
            channel=item.channel,
            body=item.body,
            headers=item.headers,
            key=item.key,
            version=item.version,
            type=item.type,
            priority=-item.rank,
            due_at=now + item.delay_us if item.due_us is None else item.due_us,
            created_at=now,
            json=BODY_JSON if item.json else 0,
            state="",
            lease_us=item.lease_us,
            max_attempts=item.max_attempts,
            expires_at=None,
        )

    def schedule(self, due_at: int, now: int) -> None:
        """Set the due time: ready or scheduled (§2.1)."""
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
        """The order of delivery in a channel (§4.6)."""
        return (-self.priority, self.due_at, self.id)

    @property
    def row(self) -> MessageRow:
        m = self
        # fmt: off
        return MessageRow(
            m.id, m.channel, m.body, m.headers, m.key, m.version, m.type, m.priority, m.due_at,
            m.created_at, m.attempts, m.deliveries, m.token if m.state == "l" else 0, m.memo,
            m.lease_until, m.json | m.begun << 3, m.recovered, m.group and m.group.name,
            m.died_in and m.died_in.name, m.first_at,
        )
        # fmt: on

    @property
    def peek_row(self) -> PeekRow:
        return PeekRow(
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
    def outcome_row(self) -> OutcomeRow:
        m = self
        return OutcomeRow(m.id, m.key, m.state, m.json, m.result, m.error, m.progress, m.note)


@dataclass(slots=True, eq=False)
class Group:
    """§12. Groups are equal only if they are the same object: two may have one name."""

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
    abort_for: bool = False  # a member died, and on_dead is abort

    @property
    def is_open(self) -> bool:
        return self.state in (OPEN, RUNNING)

    def died(self) -> None:
        self.dead += 1
        self.abort_for = self.abort_for or self.on_dead == "a"


class Work(NamedTuple):
    """An end or abort message: held until the group closes, and when it is due then."""

    message: Message
    due_us: int | None
    delay_us: int  # from the closing


class Failure(NamedTuple):
    row: FailureRow
    killed: bool


@dataclass(slots=True)
class Permit:
    id: int
    name: str
    created_at: int
    expires_at: int


class Remembered(NamedTuple):
    """The message that was sent under a once name, or a value (§19)."""

    expires_at: int
    id: int = 0
    value: bytes = b""


@dataclass(slots=True)
class Queue:
    name: str
    created_at: int
    columns: dict[str, Any]
    messages: dict[int, Message] = field(default_factory=dict[int, Message])
    policies: dict[str, PolicyRow] = field(default_factory=dict[str, PolicyRow])
    tats: dict[str, int] = field(default_factory=dict[str, int])  # per channel
    tat: int = 0  # of the limit over all channels
    totals: Counter[str] = field(default_factory=Counter[str])
    minutes: dict[int, Counter[str]] = field(default_factory=dict[int, Counter[str]])
    failures: list[Failure] = field(default_factory=list[Failure])
    # By kind (backends/remembered.py) and name.
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

    def policy(self, channel: str) -> PolicyRow:
        """The channel's own policy, else the queue's default; never a mixture (§4.5)."""
        default = (self.columns[column] for column in DEFAULT_POLICY)
        return self.policies.get(channel) or PolicyRow._make(default)

    @property
    def limit_rate(self) -> Rate | None:
        c = self.columns
        return Rate.of(c["limit_rate_count"], c["limit_rate_period_us"], c["limit_burst"])

    def attempts_left(self, message: Message) -> bool:
        """May the message be tried again (§2.3)?"""
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
    # What maintenance has to delete: one list for each purge or drop.
    purged: list[list[Message]] = field(default_factory=list[list[Message]])
    forgotten: list[int] = field(default_factory=list[int])  # how many names, likewise
    groups: list[Group] = field(default_factory=list[Group])  # closed ones too, by id
    # Groups of which a member has ended since they were checked, and when.
    marks: dict[Group, int] = field(default_factory=dict[Group, int])
    events: list[EventRow] = field(default_factory=list[EventRow])
    schedules: dict[str, ScheduleRow] = field(default_factory=dict[str, ScheduleRow])
    last_id: int = 0  # never decreases
    last_group: int = 0
    last_event: int = 0


def counters(counted: Counter[str]) -> dict[str, int]:
    return {name: counted[name] for name in COUNTERS}
