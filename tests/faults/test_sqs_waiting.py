"""A thousand open polls on one process: no thread and no database connection for any of them, and a
send wakes them whichever way it comes: the library, another server, plain SQL.

What was measured is printed; `make faults` measures more often.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import fairturn
from fairturn.server.process import allow_files
from tests.faults.crew import FULL, connection, fresh_url
from tests.faults.sqs_crew import KINDS, Client, Server, until

POLLS = 1_000
QUEUES = 4
TIMES = 50 if FULL else 5  # sends each way


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def connections(pid: int, url: str) -> int:
    """To the database: open files of SQLite's, or sockets to the server's port."""
    files = Path(f"/proc/{pid}/fd")
    targets = [os.readlink(files / name) for name in os.listdir(files)]
    if url.startswith("sqlite"):
        return targets.count(url.removeprefix("sqlite:///"))
    port = f":{urlsplit(url).port:04X}"
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()]
    there = {f"socket:[{line[9]}]" for line in lines if line[2].endswith(port)}
    return sum(target in there for target in targets)


class Waiting:
    """Clients that poll again and again, and when each message came."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.came: dict[str, float] = {}

    async def poll(self, queue: str) -> None:
        async with Client(self.server.port) as client:
            while True:
                answer = await client.ask("ReceiveMessage", queue, WaitTimeSeconds=20)
                now = time.monotonic()
                for one in answer.get("Messages", []):
                    self.came[one["Body"]] = now

    async def are_open(self, count: int) -> None:
        async with asyncio.timeout(60):
            while await asyncio.to_thread(self.server.metric, "fairturn_sqs_open_polls") != count:
                await asyncio.sleep(0.02)

    async def measure(self, way: str, send: Callable[[str, str], Awaitable[float]]) -> None:
        """Each message arrives. Prints the time from its send's end to its arrival."""
        whole: list[float] = []
        after: list[float] = []
        for n in range(TIMES):
            body = f"{way} {n}"
            began = time.monotonic()
            ended = await send(f"q{n % QUEUES}", body)
            await until(lambda known=body: known in self.came, f"{body} arrives")
            whole.append(1000 * (self.came[body] - began))
            after.append(1000 * max(0.0, self.came[body] - ended))
        for what, values in (("from its begin", whole), ("after its end", after)):
            values.sort()
            half = values[len(values) // 2]
            print(f"{way}, {what}: p50 {half:.1f} ms, p100 {values[-1]:.1f} ms of {TIMES}")


class Ways:
    """How a message may come; each returns the moment when its send had ended."""

    def __init__(self, kind: str, url: str, other: Server) -> None:
        self._kind, self._url = kind, url
        self._other = Client(other.port)
        self._db = fairturn.connect(url)

    async def through_another_server(self, queue: str, body: str) -> float:
        await self._other.ask("SendMessage", queue, MessageBody=body)
        return time.monotonic()

    async def through_the_library(self, queue: str, body: str) -> float:
        def send() -> float:
            self._db.queue(queue).send(body)
            return time.monotonic()

        return await asyncio.to_thread(send)

    async def by_plain_sql(self, queue: str, body: str) -> float:
        """On SQLite, which has no functions, in a transaction on a connection of the user's."""

        def send() -> float:
            with connection(self._url) as raw:
                if self._kind == "sqlite":
                    raw.execute("BEGIN IMMEDIATE")
                    self._db.queue(queue).using(raw).send(body)
                    raw.execute("COMMIT")
                else:
                    call = {
                        "postgresql": "SELECT fairturn.send(%s, %s)",
                        "mysql": "CALL fairturn_send(%s, %s, NULL)",
                    }[self._kind]
                    raw.cursor().execute(call, (queue, f'"{body}"'))
                return time.monotonic()

        return await asyncio.to_thread(send)

    def close(self) -> None:
        self._other.close()
        self._db.close()


async def scene(kind: str, url: str, server: Server, other: Server) -> None:
    waiting, ways = Waiting(server), Ways(kind, url, other)
    async with Client(server.port) as client:
        for n in range(QUEUES):
            await client.ask("CreateQueue", QueueName=f"q{n}")
    polls = [asyncio.create_task(waiting.poll(f"q{n}")) for n in range(QUEUES)]
    try:
        await waiting.are_open(QUEUES)
        few = threads(server.pid), connections(server.pid, url)
        polls += [
            asyncio.create_task(waiting.poll(f"q{n % QUEUES}")) for n in range(POLLS - QUEUES)
        ]
        await waiting.are_open(POLLS)
        many = threads(server.pid), connections(server.pid, url)
        print(f"{kind}: threads and connections: {few} with {QUEUES} polls, {many} with {POLLS}")
        # The pool, which is ten at most, and a line to the one who wakes them.
        assert many[0] - few[0] <= 2
        assert many[1] <= 12
        await waiting.measure(f"{kind} through another server", ways.through_another_server)
        await waiting.measure(f"{kind} through the library", ways.through_the_library)
        await waiting.measure(f"{kind} by plain SQL", ways.by_plain_sql)
        assert not any(one.done() for one in polls)
    finally:
        for one in polls:
            one.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
        ways.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_polls_cost_nothing_and_are_woken(kind: str, tmp_path: Path) -> None:
    allow_files(POLLS + 1_000)
    url = fresh_url(kind, tmp_path)
    with Server(url) as server, Server(url) as other:
        asyncio.run(scene(kind, url, server, other))
