"""How a worker is: its counters and gauges as plain values, and whether it is ready to work."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.worker.runtime import Worker

Snapshot = Mapping[str, Any]


def snapshot(worker: Worker) -> dict[str, Any]:
    """All numbers of one worker, as JSON can carry them. Call it in the worker's event loop."""
    plan = worker.plan
    reason = _obstacle(worker)
    alive = worker.ready  # only then are there a heart and a settler
    return {
        **worker.metrics.snapshot(),
        "name": worker.name,
        "running": plan.running,
        "buffered": plan.buffered,
        "concurrency": plan.concurrency,
        "pending": worker.settler.pending if alive else 0,
        "heartbeat_age": time.monotonic() - worker.heart.last if alive else None,
        "ready": not reason,
        "reason": reason,
    }


def _obstacle(worker: Worker) -> str:
    """Why the worker is not ready; empty when it is."""
    if worker.plan.stopping:
        return "it is stopping"
    if not worker.ready:
        return "it has no permit yet: it is starting, or the database is away"
    now = time.monotonic()
    if not any(pulse.until > now for pulse in worker.heart.pulses):
        return (
            f"its permit is lost: the last heartbeat was {now - worker.heart.last:.1f} s ago; "
            "can it reach the database?"
        )
    return ""


def ready(snapshots: Sequence[Snapshot]) -> tuple[bool, str]:
    """Are these workers, one for each process, all ready? If not, why."""
    if not snapshots:
        return False, "no worker has reported yet"
    reasons = [f"{one['name']}: {one['reason']}" for one in snapshots if not one["ready"]]
    return not reasons, "; ".join(reasons)
