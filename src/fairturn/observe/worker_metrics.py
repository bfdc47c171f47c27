"""The counters of a worker: plain numbers that can be added up over processes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["ready"]

Snapshot = Mapping[str, Any]  # all numbers of one worker, ready for JSON

BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)  # seconds, upper bounds
OUTCOMES = ("acked", "completed", "deferred", "failed", "dead", "released", "lost")
DEAD = OUTCOMES.index("dead")
_OUTCOME_OF = {
    "ack": 0,
    "settled": 0,
    "complete": 1,
    "defer": 2,
    "fail": 3,
    "kill": 4,
    "release": 5,
    "lost": 6,
}


def outcome(kind: str, final: bool) -> str:
    """Return the outcome of a verdict, as the metrics name it."""
    return OUTCOMES[DEAD if final else _OUTCOME_OF[kind]]


class TaskNumbers:
    """The counters of one task in one queue."""

    __slots__ = ("buckets", "outcomes", "seconds")

    def __init__(self) -> None:
        self.outcomes = [0] * len(OUTCOMES)
        self.buckets = [0] * (len(BUCKETS) + 1)  # runs by duration; the last: longer than all
        self.seconds = 0.0

    def add(self, kind: str, final: bool, seconds: float) -> None:
        self.outcomes[DEAD if final else _OUTCOME_OF[kind]] += 1
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


class Metrics:
    """All counters of one worker; gauges are read from the worker itself."""

    def __init__(self) -> None:
        # By (queue, task).
        self.tasks: defaultdict[tuple[str, str], TaskNumbers] = defaultdict(TaskNumbers)
        self.received: Counter[str] = Counter()  # messages, by queue
        self.receives = 0  # calls
        self.lost_acks: Counter[str] = Counter()  # by queue: finished after the lease was lost
        self.database_errors = 0

    def add(self, snapshot: Mapping[str, Any]) -> None:
        """Add the counters of a process that has ended."""
        for queue, task, outcomes, buckets, seconds in snapshot["tasks"]:
            numbers = self.tasks[queue, task]
            numbers.outcomes = [a + b for a, b in zip(numbers.outcomes, outcomes, strict=True)]
            numbers.buckets = [a + b for a, b in zip(numbers.buckets, buckets, strict=True)]
            numbers.seconds += seconds
        self.received.update(snapshot["received"])
        self.lost_acks.update(snapshot["lost_acks"])
        self.receives += snapshot["receives"]
        self.database_errors += snapshot["database_errors"]

    def snapshot(self) -> dict[str, Any]:
        """Return the counters, ready for JSON, to be sent to a supervisor."""
        return {
            "tasks": [
                [queue, task, [*numbers.outcomes], [*numbers.buckets], numbers.seconds]
                for (queue, task), numbers in self.tasks.items()
            ],
            "received": dict(self.received),
            "receives": self.receives,
            "lost_acks": dict(self.lost_acks),
            "database_errors": self.database_errors,
        }


def ready(snapshots: Sequence[Snapshot]) -> tuple[bool, str]:
    """Return whether all workers, one per process, are ready; if not, the reasons."""
    if not snapshots:
        return False, "no worker has reported yet"
    reasons = [f"{one['name']}: {one['reason']}" for one in snapshots if not one["ready"]]
    return not reasons, "; ".join(reasons)
