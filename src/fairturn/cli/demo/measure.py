"""What is measured while the demo runs. All threads share it."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairturn.cli.demo.story import Plan
    from fairturn.sync.leased import LeasedMessage


def percentile(values: Iterable[float], part: float) -> float | None:
    """Return the value that ``part`` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


class Measured:
    """Counts, waiting times and events of one run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lock = threading.Lock()
        self.started = self.ended = 0.0
        self.sent_of: Counter[str] = Counter()
        self.done_of: Counter[str] = Counter()
        self.in_flight: Counter[str] = Counter()
        self.most_in_flight: Counter[str] = Counter()
        self.waits: dict[str, list[float]] = defaultdict(list)
        self.given_at: dict[str, list[float]] = defaultdict(list)
        self.events: list[tuple[float, str]] = []
        self.broken = 0  # the id of the message that always fails
        self.duplicate: tuple[int, int, str] = (0, 0, "")  # both ids, the outcome
        self.crashed: dict[int, float] = {}  # id: when its worker crashed
        self.recovered: dict[int, float] = {}  # id: seconds until it was delivered again
        self.failure: BaseException | None = None

    def event(self, now: float, text: str) -> None:
        with self.lock:
            self.events.append((now - self.started, text))

    def sent(self, tenant: str, count: int = 1) -> None:
        with self.lock:
            self.sent_of[tenant] += count

    def given(self, message: LeasedMessage, now: float) -> None:
        """Record that a worker has received a message."""
        tenant, id = message.channel, message.id
        waited = max(time.time() - message.due_at.timestamp(), 0)
        with self.lock:
            self.in_flight[tenant] += 1
            self.most_in_flight[tenant] = max(self.most_in_flight[tenant], self.in_flight[tenant])
            if message.lease_until is not None:  # a time of the database's clock
                self.given_at[tenant].append(message.lease_until.timestamp() - self.plan.lease)
            if message.deliveries == 1:
                self.waits[tenant].append(waited)
            elif id in self.crashed and id not in self.recovered:
                self.recovered[id] = now - self.crashed[id]

    def returned(self, tenant: str, done: bool) -> None:
        """Record that a worker is about to finish, fail or lose a message.

        Call it before the database changes: otherwise another worker could have the message, and
        it would be counted twice."""
        with self.lock:
            self.in_flight[tenant] -= 1
            self.done_of[tenant] += done

    def seen_leased(self, tenant: str, leased: int) -> None:
        """Record the number of leases that the database counts at one moment."""
        with self.lock:
            self.most_in_flight[tenant] = max(self.most_in_flight[tenant], leased)

    def all_recovered(self) -> bool:
        """Return whether a worker has crashed and all its messages were delivered again."""
        with self.lock:
            return bool(self.crashed) and len(self.recovered) == len(self.crashed)

    def done(self) -> int:
        with self.lock:
            return self.done_of.total()

    def wait(self, tenants: Iterable[str], part: float) -> float | None:
        with self.lock:
            return percentile([w for tenant in tenants for w in self.waits[tenant]], part)

    def rate(self, tenant: str) -> float | None:
        """Return the deliveries per second of a tenant, from its first delivery to its last."""
        with self.lock:
            times = sorted(self.given_at[tenant])
            if len(times) < 2 or times[-1] == times[0]:
                return None
            return (len(times) - 1) / (times[-1] - times[0])
