"""Timing: one client, many clients, and the lines of a table."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
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

    def note(self, text: str) -> None:
        print(f"| {text} | | | |", flush=True)
        self.rows.append({"case": text})


def clients(make: Callable[[], Callable[[], Any]], n: int, seconds: float) -> float:
    """Messages per second of n clients at once, each a process with a call of its own, which says
    how many messages it has done (otherwise: one)."""
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(n + 1)
    counts, errors = fork.Array("q", n), fork.SimpleQueue()

    def work(i: int) -> None:
        done = 0
        try:
            call = make()
            call()
            barrier.wait()
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                one = call()
                done += one if type(one) is int else 1
        except BaseException as error:
            errors.put(f"{type(error).__name__}: {error}")
            barrier.abort()
        counts[i] = done
        os._exit(0)  # the parent's connections are not ours to close

    processes = [fork.Process(target=work, args=(i,)) for i in range(n)]
    for process in processes:
        process.start()
    with contextlib.suppress(threading.BrokenBarrierError):
        barrier.wait()
    started = time.perf_counter()
    for process in processes:
        process.join()
    if not errors.empty():
        raise RuntimeError(f"a client failed: {errors.get()}")
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
