"""The cases of `make bench`. Compare ratios of the same run: the machine may be shared."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

import fairturn
from bench import coordination, floors, locked_channel
from bench.measure import Table, clients, drain

BODY = b"x" * 200


class Bench:
    def __init__(self, db: fairturn.Database, table: Table, scale: float) -> None:
        self.db = db
        self.table = table
        self.scale = scale
        self.seconds = max(0.5, 4 * scale)
        self.number = 0

    def n(self, full: int) -> int:
        return max(200, int(full * self.scale))

    def queue(self, n: int = 0, channels: int = 1, **policy: Any) -> fairturn.Queue:
        """A new queue with n waiting messages."""
        self.number += 1
        queue = self.db.queue(f"bench-{self.number}")
        queue.create(policy=fairturn.Policy(**policy))
        if n:
            floors.fill(self.db, queue.name, n, channels)
        return queue

    def done(self, queue: fairturn.Queue) -> None:
        """Drop a queue and delete its rows."""
        queue.drop()
        if self.db.target.backend.dialect == "postgresql":
            driver = floors.connection(self.db)
            driver.execute("DELETE FROM fairturn.message", ())
            driver.execute("VACUUM fairturn.message", ())
            driver.close()
        else:
            while self.db.maintain(50_000).more:
                pass

    # --- cases -------------------------------------------------------------------------------
    def sends(self) -> None:
        floors.make_table(self.db)
        insert = floors.insert_one(self.db, BODY)
        queue = self.queue()
        for n in (1, 8):
            floor = clients(insert, n, self.seconds)
            rate = clients(lambda: lambda: queue.send(BODY), n, self.seconds)
            self.table.add(
                f"send one, {n} client{'s' * (n > 1)}", rate, floor, "floor: INSERT + commit"
            )
        items = [fairturn.Send(BODY, channel="c0") for _ in range(self.n(50_000))]
        best = floor = 0.0
        name = ""
        for _ in range(3):
            name, one = floors.bulk(self.db, BODY, len(items))
            floor = max(floor, one)
            started = time.perf_counter()
            queue.send_many(items)
            best = max(best, len(items) / (time.perf_counter() - started))
        self.table.add(
            f"send_many of {len(items):,}", best, floor, f"floor: {name} into two indexes"
        )
        self.done(queue)

    def receives(self) -> None:
        total = self.n(20_000)
        for batch in (1, 10, 100):
            count = max(200, total * batch // 100 // (1 if batch == 100 else 2))
            queue = self.queue(count * 5)
            floor = floors.receive_ack(self.db, queue.name, batch, count)
            rate = drain(queue, batch, count, carry=False)
            floor = max(floor, floors.receive_ack(self.db, queue.name, batch, count))
            carrying = drain(queue, batch, count, carry=True)
            self.table.add(f"receive + ack, batch {batch}", rate, floor)
            self.table.add(f"receive carrying acks, batch {batch}", carrying, floor)
            self.done(queue)
        for channels in (1_000, 10_000):
            queue = self.queue(max(total * 2, channels * 4), channels)
            rate = drain(queue, 100, total, carry=False)
            carrying = drain(queue, 100, total, carry=True)
            self.table.add(f"batch 100 over {channels:,} channels", rate, floor)
            self.table.add(f"… carrying acks, {channels:,} channels", carrying, floor)
            self.done(queue)
        queue = self.queue(max(total, 2000), 1_000, max_concurrency=1)
        self.table.add(
            "batch 100 over 1,000 channels, limit 1 each, carrying acks",
            drain(queue, 100, total // 2, carry=True),
            floor,
        )
        self.done(queue)

    def hot_channel(self) -> None:
        """One channel with limit 1, and 8 consumers whose receives carry acks. It counts how many
        messages are leased at the same time."""
        queue = self.queue(self.n(20_000), 1, max_concurrency=1)
        held, most = multiprocessing.Value("i", 0), multiprocessing.Value("i", 0)

        def client() -> Any:
            before: list[Any] = []

            def call() -> int:
                nonlocal before
                acked = len(before)
                with held.get_lock():
                    held.value -= acked
                messages = queue.receive(1, ack=before, wait=0.5)
                with held.get_lock():
                    held.value += len(messages)
                    most.value = max(most.value, held.value)
                before = list(messages)
                return acked

            return call

        rate = clients(client, 8, self.seconds)
        note = f"most at once: {most.value}"
        self.table.add("hot channel, limit 1, 8 consumers", rate, None, note)
        self.done(queue)

    def lifecycles(self) -> None:
        """Eight clients. In each call a client sends one message and receives one. All use the same
        channel, or each its own."""
        rival = self.db.target.backend.dialect == "postgresql"
        for where, channel in (
            ("one channel", lambda: "all"),
            ("a channel each", lambda: f"client-{os.getpid()}"),
        ):
            queue = self.queue()
            single = clients(lambda: _life(queue, channel()), 8, self.seconds)  # noqa: B023
            carrying = clients(lambda: _life_carrying(queue, channel()), 8, self.seconds)  # noqa: B023
            self.done(queue)
            note = ""
            if rival:
                other = clients(
                    lambda: locked_channel.client(self.db, channel()),  # noqa: B023
                    8,
                    self.seconds,
                )
                note = f"{carrying / other:.1f} times a locked channel row's {other:,.0f}"
            self.table.add(f"8 clients, {where}: send, receive, ack", single)
            self.table.add(
                f"8 clients, {where}: send, receive carrying the ack", carrying, None, note
            )

    def backlog(self) -> None:
        total = self.n(10_000)
        small = self.queue(total * 2 + 1_000)
        base = drain(small, 100, total, carry=False)
        self.done(small)
        big = self.queue(self.n(1_000_000))
        self.table.add(
            "backlog of 1,000,000",
            drain(big, 100, total, carry=False),
            base,
            "floor: the same with a small backlog",
        )
        self.done(big)
        future = self.queue(total * 2)
        floors.fill(self.db, future.name, self.n(1_000_000), 1, future=True)
        self.table.add(
            "1,000,000 future messages beside",
            drain(future, 100, total, carry=False),
            base,
            "floor: the same without them",
        )
        self.done(future)


def _life(queue: Any, channel: str) -> Any:
    def call() -> int:
        queue.send(BODY, channel=channel)
        messages = queue.receive(1)
        for message in messages:
            message.ack()
        return len(messages)

    return call


def _life_carrying(queue: Any, channel: str) -> Any:
    before: Any = ()

    def call() -> int:
        nonlocal before
        acked = len(before)
        queue.send(BODY, channel=channel)
        before = queue.receive(1, ack=before)
        return acked

    return call


def run(db: fairturn.Database, table: Table, scale: float) -> None:
    bench = Bench(db, table, scale)
    bench.sends()
    bench.receives()
    bench.hot_channel()
    bench.lifecycles()
    bench.backlog()
    coordination.run(bench)
    if db.target.backend.dialect == "postgresql":
        from bench import snapshot

        snapshot.run(bench)
