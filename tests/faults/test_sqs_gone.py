"""Clients of ReceiveMessage that go in the middle of it: what was on its way to them is for others,
at once and not after its visibility time."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.crew import connection, fresh_url
from tests.faults.sqs_crew import KINDS, Client, Server

POLLS = "fairturn_sqs_open_polls"


@contextlib.contextmanager
def nobody_receives(kind: str, url: str) -> Iterator[None]:
    """A lock that every receive waits for."""
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as raw:
            raw.execute("BEGIN IMMEDIATE")
            yield
            raw.rollback()
        return
    with connection(url) as raw:
        cursor = raw.cursor()
        if kind == "postgresql":
            cursor.execute("BEGIN")
            cursor.execute("LOCK TABLE fairturn.message IN ACCESS EXCLUSIVE MODE")
        else:
            cursor.execute("LOCK TABLES fairturn_message WRITE")
        yield
        cursor.execute("ROLLBACK" if kind == "postgresql" else "UNLOCK TABLES")


async def scene(kind: str, server: Server, queue: str) -> None:
    async def polls(count: int) -> None:
        async with asyncio.timeout(60):
            while await asyncio.to_thread(server.metric, POLLS) != count:
                await asyncio.sleep(0.01)

    fifo = queue.endswith(".fifo")
    attributes = {"VisibilityTimeout": "3600", **({"FifoQueue": "true"} if fifo else {})}
    async with Client(server.port) as client:
        await client.ask("CreateQueue", QueueName=queue, Attributes=attributes)
        for n in range(4):
            ids = {"MessageGroupId": f"g{n % 2}", "MessageDeduplicationId": str(n)} if fifo else {}
            await client.ask("SendMessage", queue, MessageBody=str(n), **ids)
        with nobody_receives(kind, server.database):
            gone = [Client(server.port) for _ in range(3)]
            asking = [
                asyncio.create_task(
                    one.ask("ReceiveMessage", queue, MaxNumberOfMessages=n, WaitTimeSeconds=20)
                )
                for n, one in enumerate(gone, 1)
            ]
            await polls(3)
            for one in asking:
                one.cancel()
            await asyncio.wait(asking)
            await polls(0)
        got: list[str] = []
        while len(got) < 4:
            answer = await client.ask(
                "ReceiveMessage", queue, MaxNumberOfMessages=10, WaitTimeSeconds=20
            )
            messages = answer.get("Messages", [])
            assert messages, f"{queue}: of four messages only {got} came back"
            for message in messages:
                got.append(message["Body"])
                handle = message["ReceiptHandle"]
                await client.ask("DeleteMessage", queue, ReceiptHandle=handle)
        assert sorted(got) == ["0", "1", "2", "3"]
        if fifo:
            assert [n for n in got if n in "02"] == ["0", "2"]
            assert [n for n in got if n in "13"] == ["1", "3"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_on_its_way_to_a_client_that_has_gone_is_for_others(
    kind: str, tmp_path: Path
) -> None:
    with Server(fresh_url(kind, tmp_path)) as server:
        for queue in ("plain", "ordered.fifo"):
            asyncio.run(scene(kind, server, queue))
