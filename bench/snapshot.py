"""PostgreSQL beside a long open transaction: VACUUM cannot remove the acked rows, so they pile up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench import floors
from bench.measure import drain

if TYPE_CHECKING:
    from bench.cases import Bench


def run(bench: Bench) -> None:
    total, last = bench.n(200_000), bench.n(20_000)
    for name, channels, policy in (
        ("one channel", 1, {}),
        ("1,000 channels", 1_000, {}),
        ("one channel, limit 1,000", 1, {"max_concurrency": 1_000}),
    ):
        queue = bench.queue(last * 5, channels, **policy)
        drain(queue, 100, last, carry=True)
        free = _best(queue, last)
        bench.done(queue)
        queue = bench.queue(total + last * 4, channels, **policy)
        holder = _hold(bench.db)
        drain(queue, 100, total, carry=True)
        held = _best(queue, last)
        holder.rollback()
        holder.close()
        bench.table.add(
            f"old snapshot held for {total:,} messages, {name}", held, free, "floor: nothing held"
        )
        bench.done(queue)


def _best(queue: Any, n: int) -> float:
    return max(drain(queue, 100, n, carry=True) for _ in range(3))


def _hold(db: Any) -> Any:
    driver = floors.connection(db)
    driver.execute("BEGIN ISOLATION LEVEL REPEATABLE READ", ())
    driver.execute("SELECT count(*) FROM fairturn.queue", ())
    return driver
