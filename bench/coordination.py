"""The cost of events, and how soon a waiting receive gets a message."""

from __future__ import annotations

import multiprocessing
import random
import time
from typing import TYPE_CHECKING, Any

from bench.measure import clients

if TYPE_CHECKING:
    from bench.cases import Bench

BODY = b"x" * 200


def run(bench: Bench) -> None:
    events(bench)
    for name, other in (("another process", True), ("another thread", False)):
        waking(bench, name, other)


def events(bench: Bench) -> None:
    """8 clients send to a queue with events and to one without, in turns. The best of three."""
    quiet, telling = bench.queue(), bench.queue()
    telling.set(events=True)
    rates: dict[str, float] = {}
    for _ in range(3):
        for queue in (quiet, telling):
            rate = clients(lambda: lambda: queue.send(BODY), 8, bench.seconds / 2)  # noqa: B023
            rates[queue.name] = max(rate, rates.get(queue.name, 0.0))
    bench.table.add(
        "send one with events on, 8 clients",
        rates[telling.name],
        rates[quiet.name],
        "floor: events off",
    )
    bench.done(quiet)
    telling.drop()


def waking(bench: Bench, name: str, other: bool) -> None:
    """One consumer waits in receive(wait=…), and messages are sent one by one, at random gaps."""
    queue, n = bench.queue(), max(20, int(200 * bench.scale))
    fork = multiprocessing.get_context("fork")
    times = fork.Array("d", n)
    chance = random.Random(1)

    def consume(queue: Any) -> None:
        for i in range(n):
            [message] = queue.receive(1, wait=60)
            times[i] = time.time() - message.body
            message.ack()

    def send(queue: Any) -> None:
        for _ in range(n):
            time.sleep(chance.uniform(0.05, 0.25))
            queue.send(time.time())

    if other:
        process = fork.Process(target=send, args=(queue,))
        process.start()
        consume(queue)
        process.join()
    else:
        import threading

        thread = threading.Thread(target=send, args=(queue,))
        thread.start()
        consume(queue)
        thread.join()
    waits = sorted(times)
    p50, p95, p99 = (waits[int(n * share)] * 1000 for share in (0.5, 0.95, 0.99))
    bench.table.note(
        f"a waiting receive is woken by {name}, ms: p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f}"
    )
    bench.done(queue)
