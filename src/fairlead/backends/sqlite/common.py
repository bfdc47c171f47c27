"""What all operations on SQLite share: the catalogue, the queue's row, the counters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.backends.base import Op, Row
from fairlead.backends.catalogue import load
from fairlead.errors import QueueNotFound
from fairlead.limits import SECOND
from fairlead.values import COUNTERS

HERE = Path(__file__).parent
# Read as one, in this order: a fragment serves the files after its own.
CATALOGUE = (
    "words",
    "queues",
    "policies",
    "sending",
    "receiving",
    "verbs",
    "messages",
    "groups",
    "events",
    "schedules",
    "remembering",
    "insight",
    "care",
)
SQL = load([HERE / "statements" / f"{name}.sql" for name in CATALOGUE])
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
    """A queue as one operation sees it: the first columns of find_queue and open_queue."""

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
SETTINGS = Queue._fields[5:]


def find(name: str, now: int | None) -> Op[Queue]:
    """The queue of this name."""
    queue, _ = yield from find_sized(name, now)
    return queue


def find_sized(name: str, now: int | None) -> Op[tuple[Queue, int]]:
    """The queue, and whether any of its channels has a max_size in a policy of its own."""
    rows = yield SQL.find_queue, (name, now)
    if not rows:
        raise QueueNotFound(name)
    row: Row = rows[0]
    return Queue._make(row[:QUEUE_WIDTH]), row[QUEUE_WIDTH]


def find_if_any(name: str, now: int) -> Op[Queue | None]:
    """The queue of this name, which may not be there."""
    rows = yield SQL.find_queue, (name, now)
    return Queue._make(rows[0][:QUEUE_WIDTH]) if rows else None


def clock(now: int | None) -> Op[int]:
    """The time of an operation that looks at no queue."""
    if now is not None:
        return now
    rows = yield SQL.clock, ()
    return rows[0][0]


def tally() -> Tally:
    return [0] * len(COUNTERS)


def count(queue_id: int, now: int, counted: Sequence[int]) -> Op[None]:
    """Add to the counters of this minute. Nothing is written where nothing happened."""
    if any(counted):
        yield SQL.count, (queue_id, now - now % MINUTE, *counted)


def ids_of(ids: Iterable[int]) -> str:
    """Ids as the JSON array that json_each reads; Python writes lists of ints the same way."""
    return str(list(ids))


def json_of(values: Sequence[Any]) -> str:
    """A list of anything else as JSON."""
    return json.dumps(values, ensure_ascii=False)


def state_at(due_at: int, now: int) -> str:
    """Ready or scheduled (§2.1)."""
    return "r" if due_at <= now else "s"


def count_one(queue: Queue, counter: int, much: int) -> Op[None]:
    counted = tally()
    counted[counter] = much
    yield from count(queue.id, queue.now, counted)


def changed() -> Op[int]:
    """How many rows the statement before changed."""
    rows = yield SQL.changes, ()
    return rows[0][0]
