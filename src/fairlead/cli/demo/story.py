"""Who is in the demo and what they do."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.cli.demo.measure import Measured
from fairlead.sync.queue import Queue
from fairlead.values import Backoff, Send

QUEUE = "demo"
NOISY, LIMITED, METERED = "noisy", "limited", "metered"
QUIET = ("quiet-ann", "quiet-ben", "quiet-cleo")
TENANTS = (NOISY, *QUIET, LIMITED, METERED)

CRASH, BROKEN, ONCE = "crash", "invoice-13", "invoice-42"  # keys
LATER = 3600  # seconds: so that there is something to explain afterwards
ERROR = "InvoiceError: customer 13 has no address"


@dataclass(frozen=True)
class Plan:
    """Everything that scales with the length of the demo."""

    seconds: float

    workers: int = 3
    batch: int = 16
    work: float = 0.0006  # seconds one message takes
    limited_work: float = 0.02
    limit: int = 2
    rate: int = 10  # a second
    max_attempts: int = 3

    @property
    def flood(self) -> int:
        return round(2000 * self.seconds)

    @property
    def sending(self) -> float:
        """Quiet tenants send for so long; the rest of the time is for the end of the flood."""
        return 0.7 * self.seconds

    @property
    def crash_at(self) -> float:
        return 0.25 * self.seconds

    @property
    def deadline(self) -> float:
        return 0.95 * self.seconds

    @property
    def lease(self) -> float:
        return min(max(0.1 * self.seconds, 1.0), 2.0)

    @property
    def pause(self) -> float:
        """Between two messages of one quiet tenant."""
        return 0.2


def prepare(queue: Queue, plan: Plan, measured: Measured) -> None:
    """The queue, the policies, the flood; and two small events at the start."""
    queue.create(
        lease=plan.lease, max_attempts=plan.max_attempts, backoff=Backoff(plan.seconds / 50, 2, 5)
    )
    queue.channel(LIMITED).set_policy(max_concurrency=plan.limit)
    queue.channel(METERED).set_policy(rate=f"{plan.rate}/s")
    for start in range(0, plan.flood, 1000):
        count = min(1000, plan.flood - start)
        queue.send_many(Send({"n": start + i}, channel=NOISY) for i in range(count))
    measured.sent(NOISY, plan.flood)
    for channel, count in ((LIMITED, plan.flood // 100), (METERED, round(6 * plan.seconds))):
        queue.send_many(Send({"n": i}, channel=channel) for i in range(count))
        measured.sent(channel, count)
    broken = queue.send({"invoice": 13}, channel=QUIET[1], key=BROKEN)
    first = queue.send({"invoice": 42}, channel=QUIET[2], key=ONCE, delay=LATER)
    again = queue.send({"invoice": 42}, channel=QUIET[2], key=ONCE, on_conflict="ignore")
    measured.broken = broken.id
    measured.duplicate = (first.id, again.id, again.outcome)
    measured.sent(QUIET[1], 1)
    measured.sent(QUIET[2], 1)
