"""``fairlead bench``: how fast is *your* database? Quick, in a queue that is thrown away."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Annotated, Any

from cyclopts import Parameter
from rich.progress import BarColumn, Progress, TextColumn

from fairlead.cli.parsing import Duration
from fairlead.cli.session import Context, Session
from fairlead.sync.queue import Queue
from fairlead.values import Send

REFILL = 2000  # messages sent, off the clock, whenever the queue runs dry


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the table: what one connection did, one call after the other."""

    what: str
    batch: int
    channels: int
    messages_per_second: float
    p50_ms: float
    p95_ms: float
    messages: int


def _timed(what: str, batch: int, channels: int, seconds: float, step: Callable[[], int]) -> Result:
    """Repeat a step for so long; a step says how many messages it moved, 0 is off the clock."""
    times: list[float] = []
    moved, total = 0, 0.0
    while total < seconds:
        before = time.perf_counter()
        count = step()
        passed = time.perf_counter() - before
        if count:
            times.append(passed)
            moved += count
            total += passed
    times.sort()
    return Result(
        what,
        batch,
        channels,
        round(moved / total, 1),
        round(times[len(times) // 2] * 1000, 3),
        round(times[min(int(len(times) * 0.95), len(times) - 1)] * 1000, 3),
        moved,
    )


class _Bench:
    def __init__(self, queue: Queue, seconds: float, size: int) -> None:
        self.queue = queue
        self.seconds = seconds
        self.body = b"x" * size

    def sends(self, batch: int, channels: int) -> Result:
        names = cycle(f"channel-{i}" for i in range(channels))

        def one() -> int:
            self.queue.send(self.body, channel=next(names))
            return 1

        def many() -> int:
            self.queue.send_many([Send(self.body, next(names)) for _ in range(batch)])
            return batch

        what = "send" if batch == 1 else "send_many"
        return _timed(what, batch, channels, self.seconds, one if batch == 1 else many)

    def receives(self, batch: int, channels: int) -> Result:
        self.queue.purge()
        names = cycle(f"channel-{i}" for i in range(channels))

        def step() -> int:
            messages = self.queue.receive(batch)
            if len(messages) == batch:
                self.queue.ack(messages)
                return batch
            self.queue.ack(messages)
            self.queue.send_many([Send(self.body, next(names)) for _ in range(REFILL)])
            return 0

        return _timed("receive + ack", batch, channels, self.seconds, step)


def bench(
    *,
    seconds: Annotated[Duration, Parameter(help="For each measurement.")] = 1,
    size: Annotated[int, Parameter(help="Bytes in a body.")] = 200,
    session: Context,
) -> None:
    """Measure this database with one connection, in a queue that is dropped at the end.

    Example: fairlead bench --db postgresql://localhost/app --seconds 3
    """
    session.creates = True
    queue = session.queue(f"fairlead-bench-{secrets.token_hex(4)}")
    queue.create(max_attempts=0)
    try:
        results = _measure(session, _Bench(queue, max(float(seconds), 0.05), size))
    finally:
        queue.drop()
        _sweep(session)
    dialect = session.db.target.backend.dialect
    if session.json:
        facts: dict[str, Any] = {
            "database": session.shown,
            "dialect": dialect,
            "body_bytes": size,
            "results": [asdict(result) for result in results],
        }
        session.emit(facts)
        return
    session.table(
        ["operation", ">batch", ">channels", ">messages/s", ">p50 ms", ">p95 ms"],
        [
            [
                r.what,
                str(r.batch),
                str(r.channels),
                f"{r.messages_per_second:,.0f}",
                f"{r.p50_ms:.2f}",
                f"{r.p95_ms:.2f}",
            ]
            for r in results
        ],
    )
    session.note(
        f"{session.shown}: one connection, bodies of {size} bytes, p50 and p95 of one call. "
        "More connections and receive(ack=…) give more"
    )


def _measure(session: Session, bench: _Bench) -> list[Result]:
    plan: list[tuple[Callable[[int, int], Result], int, int]] = [
        (bench.sends, 1, 1),
        (bench.sends, 100, 1),
        (bench.sends, 1000, 100),
        *((bench.receives, batch, channels) for channels in (1, 100) for batch in (1, 10, 100)),
    ]
    results: list[Result] = []
    columns = (TextColumn("{task.description}"), BarColumn())
    shown = session.err.is_terminal
    with Progress(*columns, console=session.err, transient=True, disable=not shown) as progress:
        task = progress.add_task("measuring", total=len(plan))
        for measure, batch, channels in plan:
            progress.update(task, description=f"batch {batch}, channels {channels}")
            results.append(measure(batch, channels))
            progress.advance(task)
    return results


def _sweep(session: Session) -> None:
    """The dropped queue's rows are swept by maintenance: do it now rather than leave them."""
    with contextlib.suppress(KeyboardInterrupt):
        for _ in range(1000):
            if not session.db.maintain(10_000).more:
                return
