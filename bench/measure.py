"""Timing: one client, many clients, and the lines of a table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Table:
    """One backend's figures, printed as they come."""

    title: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        print(
            f"\n## {self.title}\n\n| case | messages/s | floor | of the floor |\n|---|--:|--:|--:|"
        )

    def add(self, case: str, rate: float, floor: float | None = None, note: str = "") -> None:
        share = "" if floor is None else f"{rate / floor:.0%}"
        shown = "" if floor is None else f"{floor:,.0f}"
        print(
            f"| {case}{' (' + note + ')' if note else ''} | {rate:,.0f} | {shown} | {share} |",
            flush=True,
        )
        self.rows.append(
            {"case": case, "rate": round(rate), "floor": floor and round(floor), "note": note}
        )


def clients(make: Callable[[], Callable[[], Any]], n: int, seconds: float) -> float:
    """Calls per second of n clients at once, each with its own call."""
    counts = [0] * n
    barrier = threading.Barrier(n + 1)
    stop = threading.Event()
    errors: list[BaseException] = []

    def work(i: int) -> None:
        call = make()
        barrier.wait()
        try:
            while not stop.is_set():
                call()
                counts[i] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    barrier.wait()
    started = time.perf_counter()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(counts) / (time.perf_counter() - started)


def drain(queue: Any, batch: int, total: int, ride: bool) -> float:
    """Messages per second received and acked by one consumer; `ride`: acks go with the next
    receive."""
    got, before = 0, ()
    started = time.perf_counter()
    while got < total:
        messages = queue.receive(batch, ack=before)
        if not messages:
            break
        got += len(messages)
        if ride:
            before = messages
        else:
            queue.ack(messages)
    if before:
        queue.ack(before)
    return got / (time.perf_counter() - started)
