"""The tenants of the demo, its plan, and its messages."""

from __future__ import annotations

from dataclasses import dataclass

from fairturn.cli.demo.measure import Measured
from fairturn.core.sends import Send
from fairturn.core.settings import Backoff
from fairturn.sync.queue import Queue

QUEUE = "demo"
NOISY, LIMITED, METERED = "noisy", "limited", "metered"
ANN, BEN, CLEO = QUIET = ("quiet-ann", "quiet-ben", "quiet-cleo")
TENANTS = (NOISY, *QUIET, LIMITED, METERED)

CRASH, BROKEN, ONCE = "crash", "invoice-13", "invoice-42"  # keys
LATER = 3600  # seconds: a message to try `fairturn explain` with
ERROR = "InvoiceError: customer 13 has no address"


@dataclass(frozen=True)
class Plan:
    """The numbers of the demo. Many of them depend on its length."""

    seconds: float

    workers: int = 3
    batch: int = 16
    work: float = 0.0006  # seconds of work per message
    pause: float = 0.2  # seconds between two messages of one quiet tenant
    limited_work: float = 0.02
    limit: int = 2
    rate: int = 10  # a second
    max_attempts: int = 3

    @property
    def flood(self) -> int:
        return round(2000 * self.seconds)

    @property
    def sending(self) -> float:
        """How long quiet tenants send; the rest of the time is for the end of the flood."""
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


def prepare(queue: Queue, measured: Measured) -> None:
    """Create the queue and the policies, and send the messages that wait at the start."""
    plan = measured.plan
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
    broken = queue.send({"invoice": 13}, channel=BEN, key=BROKEN)
    first = queue.send({"invoice": 42}, channel=CLEO, key=ONCE, delay=LATER)
    again = queue.send({"invoice": 42}, channel=CLEO, key=ONCE, on_conflict="ignore")
    measured.broken = broken.id
    measured.duplicate = (first.id, again.id, again.outcome)
    measured.sent(BEN, 1)
    measured.sent(CLEO, 1)
