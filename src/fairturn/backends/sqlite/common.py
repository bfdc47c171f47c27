"""What all operations on SQLite share: the catalogue, the queue's row, the counters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from fairturn.backends.catalogue import listed, load
from fairturn.backends.steps import Op
from fairturn.core.errors import QueueNotFound
from fairturn.core.limits import SECOND
from fairturn.core.settings import DEFAULT_POLICY, QUEUE_DEFAULTS, PolicyRow
from fairturn.core.values import COUNTERS

HERE = Path(__file__).parent
# Read as one, in this order: a fragment serves the files after its own.
CATALOGUE = (
    "fragments",
    "queues",
    "policies",
    "sends",
    "receive",
    "verbs",
    "messages",
    "groups",
    "events",
    "schedules",
    "remembered",
    "insight",
    "maintenance",
)
MINUTE = 60 * SECOND

# Where each counter stands in a tally.
(
    SENT,
    DELIVERED,
    ACKED,
    COMPLETED,
    DEFERRED,
    FAILED,
    KILLED,
    RECOVERED,
    RELEASED,
    CANCELLED,
    EXPIRED,
    ERRORS,
) = range(len(COUNTERS))
Tally = list[int]


class Queue(NamedTuple):
    """A queue in one operation: the first columns of find_queue and open_queue. After the name come
    the settings that operations read."""

    now: int
    id: int
    lane: int
    tat: int
    name: str
    lease_us: int
    max_attempts: int
    backoff_initial_us: int
    backoff_factor: int
    backoff_max_us: int
    retention_us: int
    result_retention_us: int
    dead_retention_us: int | None
    failure_retention_us: int | None
    dead_letter: str | None
    max_body: int
    expires_us: int | None
    paused: int
    events: int
    limit_concurrency: int | None
    limit_rate_count: int | None
    limit_rate_period_us: int | None
    limit_burst: int
    max_concurrency: int | None
    rate_count: int | None
    rate_period_us: int | None
    burst: int
    weight: int
    channel_paused: int
    ordered: int
    max_size: int | None


QUEUE_WIDTH = len(Queue._fields)
# The settings of a queue's row; its meta is in a table of its own.
SETTINGS = tuple(column for column in QUEUE_DEFAULTS if column != "meta")
COLUMNS = ("name", "created_at", *SETTINGS, "meta")  # of the statements queue and queues
SQL = load(
    [HERE / "statements" / f"{name}.sql" for name in CATALOGUE],
    own={
        "queue": listed(Queue._fields[Queue._fields.index("name") :]),
        "settings": listed(SETTINGS),
        "settings_values": listed(SETTINGS, ":{}"),
        "policy": listed(PolicyRow._fields),
        "policy_values": listed(PolicyRow._fields, ":{}"),
        "own_policy": listed(PolicyRow._fields, "p.{}"),
        "counters": listed(COUNTERS),
        "counter_values": listed(COUNTERS, ":{}"),
        "sum_counters": listed(COUNTERS, "coalesce(sum({}), 0)"),
        "add_counters": listed(COUNTERS, "{0} = {0} + excluded.{0}"),
    },
)


def find(name: str, now: int | None) -> Op[Queue]:
    queue, _ = yield from find_sized(name, now)
    return queue


def find_sized(name: str, now: int | None) -> Op[tuple[Queue, int]]:
    """The queue, and whether any of its channels has a max_size in a policy of its own."""
    rows = yield SQL.find_queue, (name, now)
    if not rows:
        raise QueueNotFound(name)
    [(*columns, sized)] = rows
    return Queue._make(columns), sized


def find_if_any(name: str, now: int) -> Op[Queue | None]:
    """The queue of this name, if there is one."""
    rows = yield SQL.find_queue, (name, now)
    return next((Queue._make(columns) for *columns, _ in rows), None)


_default_policy = attrgetter(*DEFAULT_POLICY)


def default_policy(queue: Queue) -> PolicyRow:
    """The policy of channels that have none of their own."""
    return PolicyRow._make(_default_policy(queue))


def clock(now: int | None) -> Op[int]:
    """The time, for an operation that reads no queue."""
    if now is not None:
        return now
    [(time,)] = yield SQL.clock, ()
    return time


def tally() -> Tally:
    return [0] * len(COUNTERS)


def count(queue_id: int, now: int, counted: Sequence[int]) -> Op[None]:
    """Add to the counters of this minute. If all are 0, nothing is written."""
    if any(counted):
        yield SQL.count, (queue_id, now - now % MINUTE, *counted)


def ids_of(ids: Iterable[int]) -> str:
    """Ids as a JSON array, for json_each. Python's text of a list of ints is JSON, too."""
    return str(list(ids))


def json_of(values: Sequence[Any]) -> str:
    """Any other list as a JSON array."""
    return json.dumps(values, ensure_ascii=False)


def state_at(due_at: int, now: int) -> str:
    """Ready or scheduled (§2.1)."""
    return "r" if due_at <= now else "s"


def count_one(queue: Queue, counter: int, much: int) -> Op[None]:
    counted = tally()
    counted[counter] = much
    yield from count(queue.id, queue.now, counted)


def changed() -> Op[int]:
    """How many rows the last statement changed."""
    [(rows,)] = yield SQL.changes, ()
    return rows
