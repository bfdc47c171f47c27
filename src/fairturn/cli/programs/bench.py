"""``fairturn bench``: measure the speed of a database, in a queue that is dropped at the end."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn

from fairturn.cli.arguments import Context
from fairturn.cli.parsing import Duration
from fairturn.cli.session import Session
from fairturn.core.sends import Send
from fairturn.sync.queue import Queue

REFILL = 2000  # messages that are sent when the queue is empty; this time is not measured


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table: calls on one connection, one after the other."""

    what: str
    batch: int
    channels: int
    messages_per_second: float
    p50_ms: float
    p95_ms: float
    messages: int


def _timed(what: str, batch: int, channels: int, seconds: float, step: Callable[[], int]) -> Result:
    """Repeat a step for so long. A step returns how many messages it moved; 0 is not measured."""
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

    def _messages(self, count: int, channels: int) -> list[Send]:
        return [Send(self.body, f"channel-{i % channels}") for i in range(count)]

    def sends(self, batch: int, channels: int) -> Result:
        def one() -> int:
            self.queue.send(self.body, channel="channel-0")
            return 1

        def many() -> int:
            self.queue.send_many(self._messages(batch, channels))
            return batch

        if batch == 1:
            return _timed("send", 1, channels, self.seconds, one)
        return _timed("send_many", batch, channels, self.seconds, many)

    def receives(self, batch: int, channels: int) -> Result:
        self.queue.purge()

        def step() -> int:
            messages = self.queue.receive(batch)
            self.queue.ack(messages)
            if len(messages) == batch:
                return batch
            self.queue.send_many(self._messages(REFILL, channels))
            return 0

        return _timed("receive + ack", batch, channels, self.seconds, step)


def bench(*, seconds: Duration = 1, size: int = 200, session: Context) -> None:
    """Measure the speed of the database, in a queue that is dropped at the end.

    It uses one connection.

    Example: fairturn bench --db postgresql://localhost/app --seconds 3

    Args:
        seconds: The time for each measurement. Default 1s.
        size: The bytes of a body. Default 200.
    """
    session.creates = True
    queue = session.queue(f"fairturn-bench-{secrets.token_hex(4)}")
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
    """Delete the rows of the dropped queue now; otherwise maintenance does it later."""
    with contextlib.suppress(KeyboardInterrupt):
        for _ in range(1000):
            if not session.db.maintain(10_000).more:
                return
