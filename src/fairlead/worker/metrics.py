"""What a worker counts: plain numbers that can be added up over processes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

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
    """The word for what became of a message."""
    return OUTCOMES[DEAD if final else _OUTCOME_OF[kind]]


class TaskNumbers:
    """Of one task in one queue."""

    __slots__ = ("buckets", "outcomes", "seconds")

    def __init__(self) -> None:
        self.outcomes = [0] * len(OUTCOMES)
        self.buckets = [0] * (len(BUCKETS) + 1)  # how many runs took so long; the last: longer
        self.seconds = 0.0

    def add(self, kind: str, final: bool, seconds: float) -> None:
        self.outcomes[DEAD if final else _OUTCOME_OF[kind]] += 1
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


class Metrics:
    """All counters of one worker; gauges are read from the worker itself."""

    def __init__(self) -> None:
        self.tasks: dict[tuple[str, str], TaskNumbers] = {}  # (queue, task)
        self.received: dict[str, int] = {}  # messages, by queue
        self.receives = 0  # calls
        self.lost_acks: dict[str, int] = {}  # by queue: done, but the lease was lost before the ack
        self.database_errors = 0

    def add_received(self, queue: str, count: int) -> None:
        self.receives += 1
        self.received[queue] = self.received.get(queue, 0) + count

    def add_lost(self, queue: str, count: int) -> None:
        self.lost_acks[queue] = self.lost_acks.get(queue, 0) + count

    def task(self, queue: str, task: str) -> TaskNumbers:
        numbers = self.tasks.get((queue, task))
        if numbers is None:
            numbers = self.tasks[queue, task] = TaskNumbers()
        return numbers

    def add(self, snapshot: Mapping[str, Any]) -> None:
        """Count on from what a process that has ended had counted."""
        for queue, task, outcomes, buckets, seconds in snapshot["tasks"]:
            numbers = self.task(queue, task)
            numbers.outcomes = [a + b for a, b in zip(numbers.outcomes, outcomes, strict=True)]
            numbers.buckets = [a + b for a, b in zip(numbers.buckets, buckets, strict=True)]
            numbers.seconds += seconds
        for queue, count in snapshot["received"].items():
            self.received[queue] = self.received.get(queue, 0) + count
        for queue, count in snapshot["lost_acks"].items():
            self.lost_acks[queue] = self.lost_acks.get(queue, 0) + count
        self.receives += snapshot["receives"]
        self.database_errors += snapshot["database_errors"]

    def snapshot(self) -> dict[str, Any]:
        """As JSON can carry it, from a process to its supervisor."""
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
