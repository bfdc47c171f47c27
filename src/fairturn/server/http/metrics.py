"""The counters of a server, and their page for Prometheus: text format 0.0.4.

A snapshot is plain JSON, so that several processes can be added up. The labels are actions of the
table and our own statuses, so no client can fill the memory with names.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from fairturn.observe.prometheus import Family, page, sample

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 21.0)

REQUESTS = Family(
    "fairturn_sqs_requests_total",
    "counter",
    ("action", "status"),
    "Requests that were answered; status 499: the client disconnected first.",
)
DURATION = Family(
    "fairturn_sqs_duration_seconds",
    "histogram",
    ("action",),
    "From a request's headers to its answer, long polls included.",
)
POLLS = Family("fairturn_sqs_open_polls", "gauge", (), "ReceiveMessage requests that wait.")
CONNECTIONS = Family("fairturn_sqs_open_connections", "gauge", (), "Connections that are open.")
PROCESSES = Family("fairturn_sqs_processes", "gauge", (), "Server processes that run.")

Snapshot = Mapping[str, Any]


class _Times:
    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS) + 1)  # the last: longer than all bounds
        self.seconds = 0.0


class Metrics:
    """The counters of one process."""

    def __init__(self, connections: Callable[[], int] | None = None) -> None:
        self.polls = 0  # open ones
        self._connections = connections
        self._requests = defaultdict[tuple[str, int], int](int)
        self._times = defaultdict[str, _Times](_Times)

    def count(self, action: str, status: int, seconds: float) -> None:
        self._requests[action, status] += 1
        times = self._times[action]
        times.buckets[bisect_left(BUCKETS, seconds)] += 1
        times.seconds += seconds

    def add(self, snapshot: Snapshot) -> None:
        """Add the counters of a process that has ended."""
        for action, status, count in snapshot["requests"]:
            self._requests[action, status] += count
        for action, buckets, seconds in snapshot["times"]:
            times = self._times[action]
            times.buckets = [a + b for a, b in zip(times.buckets, buckets, strict=True)]
            times.seconds += seconds

    def snapshot(self) -> dict[str, Any]:
        """Return the counters, ready for JSON."""
        counts = {
            "requests": [[*key, count] for key, count in self._requests.items()],
            "times": [[action, [*t.buckets], t.seconds] for action, t in self._times.items()],
        }
        if self._connections is None:  # of processes that have ended
            return counts
        return {**counts, "polls": self.polls, "connections": self._connections()}


def render(snapshots: Sequence[Snapshot]) -> str:
    """Render the metrics of these processes, added up."""
    total = Metrics()
    for one in snapshots:
        total.add(one)
    whole = total.snapshot()
    gauges = {
        family: [sample(family.name, {}, sum(one.get(name, 0) for one in snapshots))]
        for family, name in ((POLLS, "polls"), (CONNECTIONS, "connections"))
    }
    return page(
        {
            REQUESTS: [
                sample(REQUESTS.name, {"action": action, "status": str(status)}, count)
                for action, status, count in sorted(whole["requests"])
            ],
            DURATION: _durations(whole),
            **gauges,
            PROCESSES: [sample(PROCESSES.name, {}, sum("polls" in one for one in snapshots))],
        }
    )


def _durations(whole: Snapshot) -> Iterator[str]:
    for action, buckets, seconds in sorted(whole["times"]):
        counts: list[int] = buckets
        upto = list(accumulate(counts))
        for bound, count in zip((*BUCKETS, "+Inf"), upto, strict=True):
            yield sample(f"{DURATION.name}_bucket", {"action": action, "le": str(bound)}, count)
        yield sample(f"{DURATION.name}_sum", {"action": action}, seconds)
        yield sample(f"{DURATION.name}_count", {"action": action}, upto[-1])
