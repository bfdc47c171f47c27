"""kill -9 of the server under load: what was accepted is delivered, in order within its group and
enqueued once; what was deleted stays deleted; a move task goes on.

`make test` runs a few kills; `make faults` one for each twenty of FAIRTURN_FAULTS, in all
forms.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from pathlib import Path

import pytest

from tests.faults.crew import FULL, ROUNDS, fresh_url
from tests.faults.sqs_crew import CUT, Client, Refused, Server, together, until
from tests.faults.sqs_history import Delivery, History

KILLS = max(5, ROUNDS // 20) if FULL else 2
FORMS = [("sqlite", 1), ("postgresql", 2), ("mysql", 1)]
MORE = [("sqlite", 2), ("postgresql", 1), ("mysql", 2)] if FULL else []
VISIBILITY = 3
GROUPS = 6
DEAD = 1_000 if FULL else 100  # messages of the move task
RATE = 20  # of them a second
RECENT = 200.0  # seconds: well inside a deduplication window
AWAY = 0.2  # seconds until a client tries again whose server was away
COUNTS = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
]
ARN = "arn:aws:sqs:us-east-1:000000000000:"


class Storm:
    def __init__(self, server: Server, rng: random.Random) -> None:
        self.server, self.rng = server, rng
        self.plain, self.fifo = History(), History()
        self.accepted: set[str] = set()
        self.maybe: set[str] = set()
        # Of each group, in order: the sequence numbers, and when they were told.
        self.sent: dict[str, list[tuple[str, float]]] = {f"g{n}": [] for n in range(GROUPS)}
        self.cuts = 0
        self.killed = asyncio.Event()  # all kills are done: producers end
        self.busy = True  # consumers go on as long

    # --- clients --------------------------------------------------------------------------------
    async def produce(self, name: str) -> None:
        """Each message once: if the answer does not come, nobody knows."""
        async with Client(self.server.port) as client:
            for n in itertools.count():
                if self.killed.is_set():
                    return
                body = f"{name} {n}"
                try:
                    await client.ask("SendMessage", "plain", MessageBody=body)
                    self.accepted.add(body)
                except CUT:
                    self.cuts += 1
                    self.maybe.add(body)
                    await asyncio.sleep(AWAY)

    async def produce_in_order(self, group: str) -> None:
        """Each message until it is accepted, always with the same deduplication id."""
        async with Client(self.server.port) as client:
            while not self.killed.is_set():
                number = await self.send_in_order(client, group, len(self.sent[group]))
                self.sent[group].append((number, time.monotonic()))

    async def send_in_order(self, client: Client, group: str, n: int) -> str:
        ids = {"MessageGroupId": group, "MessageDeduplicationId": f"{group}-{n}"}
        answer = await client.surely("SendMessage", "order.fifo", MessageBody=f"{group} {n}", **ids)
        return answer["SequenceNumber"]

    async def consume(self, queue: str, history: History) -> None:
        async with Client(self.server.port) as client:
            while self.busy:
                asked = history.asks()
                try:
                    answer = await client.ask(
                        "ReceiveMessage",
                        queue,
                        MaxNumberOfMessages=10,
                        WaitTimeSeconds=1,
                        AttributeNames=["ApproximateReceiveCount"],
                    )
                    for one in history.gets(asked, answer):
                        await self.delete(client, queue, history, one)
                except CUT:
                    self.cuts += 1
                    await asyncio.sleep(AWAY)

    async def delete(self, client: Client, queue: str, history: History, one: Delivery) -> None:
        history.deletes(one)
        try:
            await client.ask("DeleteMessage", queue, ReceiptHandle=one.handle)
        except Refused as refused:
            if not refused.is_late:
                raise
            history.has_not_deleted(one)
        else:
            history.has_deleted(one)

    # --- the course of things -------------------------------------------------------------------
    async def prepare(self, client: Client) -> None:
        plain = {"VisibilityTimeout": str(VISIBILITY)}
        await client.ask("CreateQueue", QueueName="plain", Attributes=plain)
        fifo = {**plain, "FifoQueue": "true"}
        await client.ask("CreateQueue", QueueName="order.fifo", Attributes=fifo)
        for name in ("dead", "moved"):
            await client.ask("CreateQueue", QueueName=name)
        policy = f'{{"deadLetterTargetArn": "{ARN}dead", "maxReceiveCount": 1}}'
        attributes = {"RedrivePolicy": policy}
        await client.ask("CreateQueue", QueueName="source", Attributes=attributes)
        for n in range(0, DEAD, 10):
            entries = [{"Id": str(i), "MessageBody": f"d {i}"} for i in range(n, n + 10)]
            await client.ask("SendMessageBatch", "dead", Entries=entries)

    async def kill(self) -> None:
        for n in range(KILLS):
            before = len(self.accepted), len(self.fifo.deleted)
            await until(
                lambda known=before: (
                    len(self.accepted) > known[0] + 60 and len(self.fifo.deleted) > known[1] + 20
                ),
                "there is load",
            )
            if n == 0:
                await self.start_task()
            # In a send, a receive, a delete, a step of the move: anywhere.
            await asyncio.sleep(self.rng.uniform(0, 0.3))
            if n % 2 and self.server.children():
                await asyncio.to_thread(self.server.kill_one)
            else:
                await asyncio.to_thread(self.server.kill)
                await asyncio.to_thread(self.server.start)
            if n == 0:
                async with Client(self.server.port) as client:
                    assert await self.task(client) == "RUNNING"
        self.killed.set()

    async def start_task(self) -> None:
        async with Client(self.server.port) as client:
            await client.ask(
                "StartMessageMoveTask",
                SourceArn=ARN + "dead",
                DestinationArn=ARN + "moved",
                MaxNumberOfMessagesPerSecond=RATE,
            )

    async def task(self, client: Client) -> str:
        answer = await client.surely("ListMessageMoveTasks", SourceArn=ARN + "dead")
        [result] = answer["Results"]
        return result["Status"]

    async def left(self, client: Client, queue: str) -> int:
        answer = await client.surely("GetQueueAttributes", queue, AttributeNames=COUNTS)
        return sum(int(answer["Attributes"][name]) for name in COUNTS)

    async def drain(self) -> None:
        await self.killed.wait()
        async with Client(self.server.port) as client, asyncio.timeout(120):
            while await self.left(client, "plain") + await self.left(client, "order.fifo"):
                await asyncio.sleep(0.1)
            self.busy = False

    async def run(self) -> None:
        async with Client(self.server.port) as client:
            await self.prepare(client)
            await together(
                *(self.produce(f"p{n}") for n in range(3)),
                *(self.produce_in_order(group) for group in self.sent),
                *(self.consume("plain", self.plain) for _ in range(4)),
                *(self.consume("order.fifo", self.fifo) for _ in range(4)),
                self.kill(),
                self.drain(),
            )
            await self.check_windows(client)
            await self.check_task(client)

    async def check_windows(self, client: Client) -> None:
        """What was sent before the kills, and not five minutes ago, is known."""
        for group, known in self.sent.items():
            recent = [n for n, (_, at) in enumerate(known) if time.monotonic() - at < RECENT]
            for n in {recent[0], recent[len(recent) // 2], recent[-1]}:
                assert await self.send_in_order(client, group, n) == known[n][0]
        assert await self.left(client, "order.fifo") == 0

    async def check_task(self, client: Client) -> None:
        async with asyncio.timeout(300):
            while (status := await self.task(client)) == "RUNNING":
                await asyncio.sleep(0.1)
        assert status == "COMPLETED"
        assert await self.left(client, "dead") == 0
        moved: list[str] = []
        while len(moved) < DEAD:
            answer = await client.ask("ReceiveMessage", "moved", MaxNumberOfMessages=10)
            moved += [one["Body"] for one in answer["Messages"]]
        assert sorted(moved) == sorted(f"d {n}" for n in range(DEAD))
        assert await self.left(client, "moved") == DEAD


@pytest.mark.timeout(300 + KILLS * 20)
@pytest.mark.parametrize(("kind", "processes"), FORMS + MORE)
def test_a_kill_of_the_server_loses_nothing(
    kind: str, processes: int, tmp_path: Path, rng: random.Random
) -> None:
    url = fresh_url(kind, tmp_path)
    with Server(url, "--processes", str(processes)) as server:
        storm = Storm(server, rng)
        asyncio.run(storm.run())
        print(
            f"{kind}, {processes} processes: {KILLS} kills, {storm.cuts} calls cut; "
            f"{len(storm.accepted)} accepted and {len(storm.maybe)} unknown, "
            f"{sum(1 for _ in storm.plain.deliveries())} delivered; FIFO "
            f"{sum(map(len, storm.sent.values()))} accepted, "
            f"{sum(1 for _ in storm.fifo.deliveries())} delivered, "
            f"{storm.fifo.refused} deletes too late"
        )
    assert storm.cuts
    plain, fifo = storm.plain, storm.fifo
    assert storm.accepted <= plain.bodies() <= storm.accepted | storm.maybe
    sent = {f"{group} {n}" for group, known in storm.sent.items() for n in range(len(known))}
    assert fifo.bodies() == sent
    for known in storm.sent.values():
        numbers = [number for number, _ in known]
        assert numbers == sorted(set(numbers))
    fifo.check_order()
    for history in (plain, fifo):
        history.check_ids()
        history.check_deleted()
        history.check_visibility(VISIBILITY)
