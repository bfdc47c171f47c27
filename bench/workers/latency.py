"""How soon a handler starts: on an idle worker, and beside a tenant with many messages.

python -m bench.workers.latency [--messages 200] [--backlog 100000] [--quiet 100]

Times are from before the send, which another process does, to the handler's first line.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import fairturn
from bench.workers.entries import ROOT
from tests import servers

SLOTS = 8
WORK = 0.001  # seconds that a handler of the busy queue takes
IDLE_GAPS = (0.02, 0.2)
QUIET_GAPS = (0.08, 0.12)
PERCENTILES = (0.5, 0.95, 0.99)
SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.workers.latency")
    parser.add_argument("--messages", type=int, default=200, help="sends while the worker is idle")
    parser.add_argument("--backlog", type=int, default=100_000, help="messages of the busy tenant")
    parser.add_argument("--quiet", type=int, default=100, help="sends of the quiet tenant")
    parser.add_argument("--send", nargs=3, metavar=("URL", "N", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.send:
        url, n, case = options.send
        send(url, int(n), case)
        return
    print(
        f"Fairturn {fairturn.__version__} on PostgreSQL, fsync on; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
        "ms from the send to the handler's start.\n\n| case | p50 | p95 | p99 | most |\n|---|--:|--:|--:|--:|"
    )
    server = servers.Postgres(settings=SETTINGS)
    with server:
        url = server.create_database("idle")
        app, waits = idle_app(url)
        asyncio.run(observe(app, waits, url, "idle", options.messages, slots=10))
        report("idle, async handler", waits)
        app.close()
        for kind in ("sync", "async"):
            url = server.create_database(f"busy_{kind}")
            app, waits = busy_app(url, kind)
            fill(app, options.backlog)
            started = time.perf_counter()
            asyncio.run(observe(app, waits, url, "busy", options.quiet, slots=SLOTS))
            done = app.db.queue("work").stats()
            if not done.ready:
                raise RuntimeError(
                    "the backlog ended before the quiet tenant's last message: use a longer --backlog"
                )
            rate = done.acked / (time.perf_counter() - started)
            report(
                f"beside {options.backlog:,} of another tenant, {SLOTS} slots, {kind} handlers of 1 ms",
                waits,
                f"{rate:,.0f} handled/s",
            )
            app.close()


def idle_app(url: str) -> tuple[fairturn.App, list[float]]:
    app, waits = fairturn.App(url, pool_size=4), list[float]()

    @app.task(queue="work", name="work")
    async def work(sent: float) -> None:
        waits.append(time.time() - sent)

    app.db.migrate()
    app.db.queue("work").create()
    return app, waits


def busy_app(url: str, kind: str) -> tuple[fairturn.App, list[float]]:
    """`sent` is the time of the send in the quiet tenant's messages, and 0 in the busy tenant's."""
    app, waits = fairturn.App(url, pool_size=4), list[float]()

    def channel(sent: float, **_: Any) -> str:
        return "quiet" if sent else "busy"

    def note(sent: float) -> None:
        if sent:
            waits.append(time.time() - sent)

    if kind == "sync":

        @app.task(queue="work", name="work", channel=channel)
        def threaded(sent: float) -> None:
            note(sent)
            time.sleep(WORK)
    else:

        @app.task(queue="work", name="work", channel=channel)
        async def work(sent: float) -> None:
            note(sent)
            await asyncio.sleep(WORK)

    app.db.migrate()
    app.db.queue("work").create()
    return app, waits


def fill(app: fairturn.App, backlog: int) -> None:
    task = app.tasks["work"]
    for start in range(0, backlog, 10_000):
        task.send_many([{"sent": 0.0}] * min(10_000, backlog - start))


def send(url: str, n: int, case: str) -> None:
    """In the other process: n sends at random gaps."""
    make: Callable[[], tuple[fairturn.App, list[float]]] = (
        (lambda: idle_app(url)) if case == "idle" else (lambda: busy_app(url, "async"))
    )
    task = make()[0].tasks["work"]
    chance = random.Random(1)
    for _ in range(n):
        time.sleep(chance.uniform(*(IDLE_GAPS if case == "idle" else QUIET_GAPS)))
        task.send(sent=time.time())


async def observe(
    app: fairturn.App, waits: list[float], url: str, case: str, n: int, *, slots: int
) -> None:
    async with app.worker(concurrency=slots) as worker:
        while not worker.ready:
            await asyncio.sleep(0.01)
        words = [sys.executable, "-m", "bench.workers.latency", "--send", url, str(n), case]
        sender = await asyncio.create_subprocess_exec(*words, cwd=ROOT)
        if await sender.wait() != 0:
            raise subprocess.CalledProcessError(sender.returncode or 1, words)
        async with asyncio.timeout(60):
            while len(waits) < n:
                await asyncio.sleep(0.01)


def report(case: str, waits: list[float], note: str = "") -> None:
    ordered = sorted(waits)
    cells = [
        f"{ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000:.1f}"
        for share in PERCENTILES
    ]
    shown = f"{case} ({note})" if note else case
    print(f"| {shown} | {' | '.join(cells)} | {ordered[-1] * 1000:.1f} |", flush=True)


if __name__ == "__main__":
    main()
