"""Timing: one client, many clients, and the lines of a table."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class Table:
    """The figures of one backend, printed as they are measured."""

    title: str

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

    def note(self, text: str) -> None:
        print(f"| {text} | | | |", flush=True)


def clients(make: Callable[[], Callable[[], Any]], n: int, seconds: float) -> float:
    """Messages per second of n parallel clients. Each is a process with its own call, which returns
    how many messages it has done (no number: one)."""
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
        os._exit(0)  # the inherited connections belong to the parent

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


def drain(queue: Any, batch: int, total: int, carry: bool) -> float:
    """Messages per second received and acked by one consumer. `carry`: each receive carries the
    acks of the messages before it."""
    got, before = 0, ()
    started = time.perf_counter()
    while got < total:
        messages = queue.receive(batch, ack=before)
        if not messages:
            break
        got += len(messages)
        if carry:
            before = messages
        else:
            queue.ack(messages)
    if before:
        queue.ack(before)
    return got / (time.perf_counter() - started)
