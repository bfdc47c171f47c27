"""The numbers of workers as Prometheus reads them: text format 0.0.4, a pure function.

Several snapshots, one for each process, are added up; only the age of the heartbeat is the oldest.
A snapshot without gauges, of a process that has ended, counts for the counters alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from fairlead.worker.health import Snapshot
from fairlead.worker.metrics import BUCKETS, OUTCOMES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Family(NamedTuple):
    """One metric: what stands in its HELP and TYPE lines, and its labels."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


MESSAGES = Family(
    "fairlead_worker_messages_total",
    "counter",
    ("queue", "task", "outcome"),
    "Handlers that ended, by what became of their message.",
)
DURATION = Family(
    "fairlead_worker_duration_seconds",
    "histogram",
    ("queue", "task"),
    "How long handlers took.",
)
RECEIVED = Family(
    "fairlead_worker_received_total", "counter", ("queue",), "Messages that the database gave."
)
RECEIVES = Family(
    "fairlead_worker_receives_total", "counter", (), "Times that the database was asked."
)
LOST_ACKS = Family(
    "fairlead_worker_lost_acks_total",
    "counter",
    ("queue",),
    "Messages whose lease was lost before their verdict was stored; they may run again.",
)
DATABASE_ERRORS = Family(
    "fairlead_worker_database_errors_total",
    "counter",
    (),
    "Times that the database could not be asked.",
)
RUNNING = Family("fairlead_worker_running", "gauge", (), "Handlers that hold a slot.")
CONCURRENCY = Family("fairlead_worker_concurrency", "gauge", (), "Slots, used or free.")
BUFFERED = Family(
    "fairlead_worker_buffered", "gauge", (), "Messages that were received and wait for a slot."
)
PENDING = Family(
    "fairlead_worker_pending", "gauge", (), "Verdicts that the database does not know yet."
)
HEARTBEAT = Family(
    "fairlead_worker_heartbeat_age_seconds",
    "gauge",
    (),
    "Time since the last heartbeat; of several processes the longest.",
)
PROCESSES = Family("fairlead_worker_processes", "gauge", (), "Processes that work.")
READY = Family(
    "fairlead_worker_ready",
    "gauge",
    (),
    "Processes that hold a permit with a fresh heartbeat.",
)
FAMILIES = (
    MESSAGES,
    DURATION,
    RECEIVED,
    RECEIVES,
    LOST_ACKS,
    DATABASE_ERRORS,
    RUNNING,
    CONCURRENCY,
    BUFFERED,
    PENDING,
    HEARTBEAT,
    PROCESSES,
    READY,
)


def render(snapshots: Sequence[Snapshot]) -> str:
    """All metrics of these workers."""
    samples = {
        MESSAGES: _outcomes(snapshots),
        DURATION: _durations(snapshots),
        RECEIVED: _by_queue(RECEIVED, snapshots, "received"),
        RECEIVES: _sum(RECEIVES, snapshots, "receives"),
        LOST_ACKS: _by_queue(LOST_ACKS, snapshots, "lost_acks"),
        DATABASE_ERRORS: _sum(DATABASE_ERRORS, snapshots, "database_errors"),
        RUNNING: _sum(RUNNING, snapshots, "running"),
        CONCURRENCY: _sum(CONCURRENCY, snapshots, "concurrency"),
        BUFFERED: _sum(BUFFERED, snapshots, "buffered"),
        PENDING: _sum(PENDING, snapshots, "pending"),
        HEARTBEAT: _oldest(snapshots),
        PROCESSES: [sample(PROCESSES.name, {}, sum("ready" in one for one in snapshots))],
        READY: [sample(READY.name, {}, sum(bool(one.get("ready")) for one in snapshots))],
    }
    return page(samples)


def page(samples: Mapping[Family, Iterable[str]]) -> str:
    """The text of these metrics, in this order."""
    lines: list[str] = []
    for family, found in samples.items():
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        lines += found
    return "\n".join(lines) + "\n"


def _outcomes(snapshots: Sequence[Snapshot]) -> Iterator[str]:
    totals: dict[tuple[str, str], list[int]] = {}
    for queue, task, outcomes, _, _ in _tasks(snapshots):
        _add(totals, (queue, task), outcomes)
    for (queue, task), counts in totals.items():
        for outcome, count in zip(OUTCOMES, counts, strict=True):
            labels = {"queue": queue, "task": task, "outcome": outcome}
            yield sample(MESSAGES.name, labels, count)


def _durations(snapshots: Sequence[Snapshot]) -> Iterator[str]:
    buckets: dict[tuple[str, str], list[int]] = {}
    seconds: dict[tuple[str, str], float] = {}
    for queue, task, _, counts, took in _tasks(snapshots):
        _add(buckets, (queue, task), counts)
        seconds[queue, task] = seconds.get((queue, task), 0.0) + took
    for (queue, task), counts in buckets.items():
        labels = {"queue": queue, "task": task}
        upto = list(accumulate(counts))
        for bound, count in zip((*BUCKETS, "+Inf"), upto, strict=True):
            yield sample(f"{DURATION.name}_bucket", {**labels, "le": str(bound)}, count)
        yield sample(f"{DURATION.name}_sum", labels, seconds[queue, task])
        yield sample(f"{DURATION.name}_count", labels, upto[-1])


def _tasks(
    snapshots: Sequence[Snapshot],
) -> Iterator[tuple[str, str, list[int], list[int], float]]:
    for one in snapshots:
        yield from one["tasks"]


def _add(totals: dict[tuple[str, str], list[int]], key: tuple[str, str], counts: list[int]) -> None:
    known = totals.get(key)
    totals[key] = counts if known is None else [a + b for a, b in zip(known, counts, strict=True)]


def _by_queue(family: Family, snapshots: Sequence[Snapshot], key: str) -> Iterator[str]:
    totals: dict[str, int] = {}
    for one in snapshots:
        counts: Mapping[str, int] = one[key]
        for queue, count in counts.items():
            totals[queue] = totals.get(queue, 0) + count
    for queue, count in totals.items():
        yield sample(family.name, {"queue": queue}, count)


def _sum(family: Family, snapshots: Iterable[Snapshot], key: str) -> list[str]:
    return [sample(family.name, {}, sum(one.get(key, 0) for one in snapshots))]


def _oldest(snapshots: Iterable[Snapshot]) -> list[str]:
    """Nothing before the first heartbeat: 0 would look like health."""
    ages = [age for one in snapshots if (age := one.get("heartbeat_age")) is not None]
    return [sample(HEARTBEAT.name, {}, max(ages))] if ages else []


def sample(name: str, labels: Mapping[str, str], value: float) -> str:
    """One line."""
    if not labels:
        return f"{name} {value!r}"
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
