"""Waiter and AsyncWaiter behind one door, so that a test is written once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import get_session

import fairturn
from fairturn.relay.runner import Relay
from fairturn.relay.sqs import AsyncWaiter, Waiter, Waiting
from fairturn.relay.sqs.waiter_orders import queue_name
from tests.relay.sqs_servers import Sqs

VARIANTS = ("sync", "async")
HOUR = 3600
Open = Callable[..., AbstractAsyncContextManager["Door"]]


def string(value: str, kind: str = "String") -> dict[str, Any]:
    return {"DataType": kind, "StringValue": value}


ATTRIBUTES: dict[str, Any] = {
    "text": string(" blanks "),
    "json": string('{"type":"Number","value":"1"}'),
    "number": string("1.0", "Number"),
    "digits": string("007", "Number.int"),
    "power": string("-1E+5", "Number"),
    "labelled": string("x", "String.uuid.v4"),
    "binary": {"DataType": "Binary", "BinaryValue": b"\x00\xff\r\n"},
    "picture": {"DataType": "Binary.png", "BinaryValue": b"PNG"},
    "Größe.x_y-z": string("ä 🚢"),
}


class Door:
    """Methods of either, awaited; the sync one is called in a thread."""

    def __init__(self, waiter: Waiter | AsyncWaiter, db: fairturn.AsyncDatabase) -> None:
        self.waiter: Any = waiter
        self.db = db  # to look behind it

    async def call(self, method: str, **given: Any) -> Any:
        asked = getattr(self.waiter, method)
        if isinstance(self.waiter, Waiter):
            return await asyncio.to_thread(asked, **given)
        return await asked(**given)

    async def send(self, queue_url: str, body: str = "x", **given: Any) -> dict[str, Any]:
        return await self.call("send_message", QueueUrl=queue_url, MessageBody=body, **given)

    async def batch(self, queue_url: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
        return await self.call("send_message_batch", QueueUrl=queue_url, Entries=entries)

    async def cancel(self, queue_url: str, **which: Any) -> bool:
        return await self.call("cancel", QueueUrl=queue_url, **which)

    async def count(self, queue_url: str) -> int:
        return await self.call("count", QueueUrl=queue_url)

    async def waiting(self, queue_url: str, **given: Any) -> list[Waiting]:
        found = self.waiter.waiting(QueueUrl=queue_url, **given)
        if isinstance(self.waiter, Waiter):
            return await asyncio.to_thread(list, found)
        return [one async for one in found]

    def queue(self, queue_url: str) -> fairturn.AsyncQueue:
        """Where its messages wait."""
        return self.db.queue(queue_name("waiter-", queue_url))

    async def due(self, queue_url: str) -> None:
        """Time passes: all that waits is due."""
        queue = self.queue(queue_url)
        for message in await queue.peek(1000):
            assert await queue.reschedule(id=message.id, delay=0)

    @contextlib.asynccontextmanager
    async def relayed(self) -> AsyncIterator[Relay]:
        async with Relay(self.db, schedules=False) as relay:
            yield relay


@contextlib.asynccontextmanager
async def opened(variant: str, sqs: Sqs, database: str, **options: Any) -> AsyncIterator[Door]:
    async with fairturn.connect_async(database) as behind:
        if variant == "sync":
            with fairturn.connect(database) as db:
                yield Door(Waiter(sqs.client, db, **options), behind)
        else:
            client = get_session().create_client("sqs", endpoint_url=sqs.address)
            async with client as given:
                yield Door(AsyncWaiter(given, behind, **options), behind)


@pytest.fixture
def variant(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def door(variant: str, ours: Sqs, tmp_path: Path) -> Open:
    """``async with door() as d``: on SQLite, before Fairturn's own SQS."""
    database = f"sqlite:///{tmp_path}/waiter.db"
    with fairturn.connect(database) as db:
        db.migrate()
    return lambda **options: opened(variant, ours, database, **options)
