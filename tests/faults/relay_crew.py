"""Relays as real processes that are killed, and brokers that are killed under them."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import fairturn
from fairturn.sqs import limits
from tests import rabbit, servers
from tests.faults.proxy import Proxy
from tests.faults.sqs_crew import Server
from tests.relay import sqs_servers
from tests.server.moto_twins import moto
from tests.server.serve_programs import Program, sdk

LEASE = "2s"
RELAYS = 2
RESENT = RELAYS * 8 * limits.BATCH  # calls that are on their way at once, and boto3 makes again
KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}


class Broker(Protocol):
    """Where the messages go: it can be killed, comes back, and tells what it has."""

    address: str
    remembers: bool  # it knows what it has taken: nothing arrives twice
    ordered: bool
    resent: int = 0  # at most so much at a kill of it by the SDK alone, without a delivery of ours

    def blow(self) -> None:
        """Kill it, and start it again."""

    def rest(self) -> None:
        """Wait until it can take more."""

    def bodies(self) -> list[dict[str, int]]: ...


class Crew:
    """So many relays at all times, whatever happens to each."""

    def __init__(self, database: str, dice: random.Random) -> None:
        self._words = ("relay", "--db", database, "--lease", LEASE, "--log", "json")
        self._dice = dice
        self._members = [self._hire() for _ in range(RELAYS)]
        self.kills = 0
        self.broken: list[str] = []

    def _hire(self) -> Program:
        return Program(*self._words, environment=KEYS)

    def kill_one(self) -> None:
        place = self._dice.randrange(len(self._members))
        self._bury(self._members[place])
        self._members[place] = self._hire()
        self.kills += 1

    def _bury(self, member: Program) -> None:
        member.kill()
        self.broken += [line for line in member.err.splitlines() if "Traceback" in line]

    def close(self) -> None:
        for member in self._members:
            self._bury(member)


class Sqs(Broker):
    ordered = False

    def __init__(self, tmp_path: Path, name: str) -> None:
        self._url = f"sqlite:///{tmp_path}/broker.db"
        self._name = name
        self._server = Server(self._url)
        self._server.start()
        self.remembers = self.ordered = name.endswith(".fifo")
        self._made = asyncio.run(self._make())
        self.address = f"sqs:http://127.0.0.1:{self._server.port}/000000000000/{name}"

    async def _make(self) -> dict[str, Any]:
        from tests.faults.sqs_crew import Client

        attributes = {"FifoQueue": "true"} if self._name.endswith(".fifo") else {}
        async with Client(self._server.port) as client:
            return await client.surely("CreateQueue", QueueName=self._name, Attributes=attributes)

    def blow(self) -> None:
        self._server.kill()
        self._server.start()

    def bodies(self) -> list[dict[str, int]]:
        with fairturn.connect(self._url) as db:
            return _all(db.queue(self._name))

    def close(self) -> None:
        self._server.kill()


class Moto(Broker):
    """moto's SQS has its messages in memory: not it is killed, but the connections to it, so that
    it has taken what the relay got no answer for. And it counts all that it has at every send:
    somebody takes the messages out while they come."""

    remembers = ordered = False
    resent = RESENT

    def __init__(self) -> None:
        self._stack = ExitStack()
        url = self._stack.enter_context(moto())
        self._proxy = self._stack.enter_context(Proxy(int(url.rpartition(":")[2])))
        client = self._stack.enter_context(sdk(url))
        self._server = sqs_servers.Sqs("moto", "", client)
        self._queue = client.create_queue(QueueName="in")["QueueUrl"]
        self.address = f"sqs:{self._proxy.url(self._queue)}"
        self._bodies: list[dict[str, int]] = []
        self._last = threading.Event()  # nothing is sent any more
        self._consumer = threading.Thread(target=self._consume)
        self._consumer.start()
        self._stack.callback(self.bodies)

    def _consume(self) -> None:
        while not self._last.wait(0.05) or self._left():
            taken = self._server.taken(self._queue)
            self._bodies += [json.loads(message["Body"]) for message in taken]

    def blow(self) -> None:
        self._proxy.cut()

    def _left(self) -> bool:
        # In this order: what is not delayed any more is ready.
        return self._server.counts(self._queue)[1] > 0 or self._server.counts(self._queue)[0] > 0

    def rest(self) -> None:
        while self._left():
            time.sleep(0.1)

    def bodies(self) -> list[dict[str, int]]:
        self._last.set()
        self._consumer.join()
        return self._bodies

    def close(self) -> None:
        self._stack.close()


class Other(Broker):
    """Another Fairturn, on a PostgreSQL of its own."""

    remembers = ordered = True

    def __init__(self) -> None:
        self._server = servers.Postgres()
        self._server.start()
        self._url = self._server.create_database("centre")
        with fairturn.connect(self._url) as db:
            db.migrate()
            db.queue("in").create()
        self.address = f"{self._url}#in"

    def blow(self) -> None:
        self._server.kill9()
        self._server.start()

    def bodies(self) -> list[dict[str, int]]:
        with fairturn.connect(self._url) as db:
            return _all(db.queue("in"))

    def close(self) -> None:
        self._server.stop()


class RabbitMq(Broker):
    remembers = ordered = False

    def __init__(self) -> None:
        self._broker = rabbit.Rabbit()
        self._broker.start()
        self.address = f"{self._broker.url}?routing_key=in"
        asyncio.run(self._with_queue(None))
        self._broker.restart()  # killed at once, it might forget the queue with all in it

    def blow(self) -> None:
        self._broker.kill9()
        self._broker.start()

    async def _with_queue(self, take: list[dict[str, int]] | None) -> None:
        import aio_pika

        async with await aio_pika.connect(self._broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("in", durable=True)
            while take is not None:
                message = await queue.get(no_ack=True, fail=False)
                if message is None:
                    return
                take.append(json.loads(message.body))

    def bodies(self) -> list[dict[str, int]]:
        found: list[dict[str, int]] = []
        asyncio.run(self._with_queue(found))
        return found

    def close(self) -> None:
        self._broker.stop()


def _all(queue: fairturn.Queue) -> list[dict[str, int]]:
    """By id: the order in which they came."""
    found: list[dict[str, int]] = []
    after = 0
    while page := queue.peek(1000, after=after):
        found += [message.body for message in page]
        after = page[-1].id
    return found


@contextmanager
def broker_of(kind: str, tmp_path: Path) -> Iterator[Any]:
    if kind == "rabbitmq":
        made: Any = RabbitMq()
    elif kind == "fairturn":
        made = Other()
    elif kind == "moto":
        made = Moto()
    else:
        made = Sqs(tmp_path, "in.fifo" if kind == "fifo" else "in")
    try:
        yield made
    finally:
        made.close()


def unfinished(queue: fairturn.Queue) -> int:
    stats = queue.stats()
    return stats.ready + stats.scheduled + stats.leased
