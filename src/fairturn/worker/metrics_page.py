"""The metrics page of workers, in the format of Prometheus. A pure function.

There is one snapshot per process. Their values are added up; of the heartbeat ages the page shows
the highest. A snapshot without gauges is that of a process that has ended: only its counters count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from fairturn.observe.prometheus import Family, page, sample
from fairturn.observe.worker_metrics import BUCKETS, OUTCOMES, Metrics, Snapshot

MESSAGES = Family(
    "fairturn_worker_messages_total",
    "counter",
    ("queue", "task", "outcome"),
    "Handlers that ended, by outcome.",
)
DURATION = Family(
    "fairturn_worker_duration_seconds",
    "histogram",
    ("queue", "task"),
    "How long handlers took.",
)
RECEIVED = Family(
    "fairturn_worker_received_total", "counter", ("queue",), "Messages that were received."
)
RECEIVES = Family("fairturn_worker_receives_total", "counter", (), "Receives, empty ones included.")
LOST_ACKS = Family(
    "fairturn_worker_lost_acks_total",
    "counter",
    ("queue",),
    "Messages whose lease was lost before their verdict was stored; they may run again.",
)
DATABASE_ERRORS = Family(
    "fairturn_worker_database_errors_total",
    "counter",
    (),
    "Times that the database could not be reached.",
)
RUNNING = Family("fairturn_worker_running", "gauge", (), "Handlers that hold a slot.")
CONCURRENCY = Family("fairturn_worker_concurrency", "gauge", (), "Slots, used or free.")
BUFFERED = Family(
    "fairturn_worker_buffered", "gauge", (), "Messages that were received and wait for a slot."
)
PENDING = Family(
    "fairturn_worker_pending", "gauge", (), "Verdicts that are not stored in the database yet."
)
HEARTBEAT = Family(
    "fairturn_worker_heartbeat_age_seconds",
    "gauge",
    (),
    "Time since the last heartbeat; of several processes the longest.",
)
PROCESSES = Family("fairturn_worker_processes", "gauge", (), "Worker processes that run.")
READY = Family(
    "fairturn_worker_ready",
    "gauge",
    (),
    "Worker processes that hold a permit with a recent heartbeat.",
)


def render(snapshots: Sequence[Snapshot]) -> str:
    """Render all metrics of these workers."""
    return page(_samples(snapshots))


def _samples(snapshots: Sequence[Snapshot]) -> dict[Family, Iterable[str]]:
    total = Metrics()
    for one in snapshots:
        total.add(one)
    # Before the first heartbeat there is no age: 0 would look healthy.
    ages = [age for one in snapshots if (age := one.get("heartbeat_age")) is not None]
    return {
        MESSAGES: _outcomes(total),
        DURATION: _durations(total),
        RECEIVED: _by_queue(RECEIVED, total.received),
        RECEIVES: [sample(RECEIVES.name, {}, total.receives)],
        LOST_ACKS: _by_queue(LOST_ACKS, total.lost_acks),
        DATABASE_ERRORS: [sample(DATABASE_ERRORS.name, {}, total.database_errors)],
        RUNNING: _sum(RUNNING, snapshots, "running"),
        CONCURRENCY: _sum(CONCURRENCY, snapshots, "concurrency"),
        BUFFERED: _sum(BUFFERED, snapshots, "buffered"),
        PENDING: _sum(PENDING, snapshots, "pending"),
        HEARTBEAT: [sample(HEARTBEAT.name, {}, max(ages))] if ages else [],
        PROCESSES: [sample(PROCESSES.name, {}, sum("ready" in one for one in snapshots))],
        READY: _sum(READY, snapshots, "ready"),
    }


def _outcomes(total: Metrics) -> Iterator[str]:
    for (queue, task), numbers in total.tasks.items():
        for outcome, count in zip(OUTCOMES, numbers.outcomes, strict=True):
            labels = {"queue": queue, "task": task, "outcome": outcome}
            yield sample(MESSAGES.name, labels, count)


def _durations(total: Metrics) -> Iterator[str]:
    for (queue, task), numbers in total.tasks.items():
        labels = {"queue": queue, "task": task}
        upto = list(accumulate(numbers.buckets))
        for bound, count in zip((*BUCKETS, "+Inf"), upto, strict=True):
            yield sample(f"{DURATION.name}_bucket", {**labels, "le": str(bound)}, count)
        yield sample(f"{DURATION.name}_sum", labels, numbers.seconds)
        yield sample(f"{DURATION.name}_count", labels, upto[-1])


def _by_queue(family: Family, counts: Mapping[str, int]) -> list[str]:
    return [sample(family.name, {"queue": queue}, count) for queue, count in counts.items()]


def _sum(family: Family, snapshots: Sequence[Snapshot], key: str) -> list[str]:
    return [sample(family.name, {}, sum(one.get(key, 0) for one in snapshots))]


FAMILIES = tuple(_samples([]))
