"""RabbitMQ's side of the relay's tests: queues that are declared and read, and parcels to send."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

import fairturn
from fairturn.core.sends import Send
from fairturn.relay.destination import Later, Outcome, Parcel
from fairturn.relay.route import parcel
from tests import rabbit

NOW = 0  # AMQP keeps no delays: nobody looks


@dataclass
class Harbour:
    """A connection to the broker."""

    channel: AbstractChannel

    async def queue(self, name: str | None = None, **arguments: Any) -> AbstractQueue:
        """A durable queue, of this name or of one that nobody else has."""
        name = name or f"q{uuid.uuid4().hex}"
        return await self.channel.declare_queue(name, durable=True, arguments=arguments)

    async def exchange(self, kind: str = "topic") -> Any:
        name = f"x{uuid.uuid4().hex}"
        return await self.channel.declare_exchange(name, aio_pika.ExchangeType(kind))


@contextlib.asynccontextmanager
async def harbour(url: str) -> AsyncIterator[Harbour]:
    connection = await aio_pika.connect(url)
    try:
        yield Harbour(await connection.channel())
    finally:
        await connection.close()


async def arrived(queue: AbstractQueue) -> list[AbstractIncomingMessage]:
    """All that is in the queue now; it is empty afterwards."""
    there = (await queue.channel.declare_queue(queue.name, passive=True)).declaration_result
    found: list[AbstractIncomingMessage] = []
    if there.message_count:
        async with queue.iterator(no_ack=True) as messages:
            async for message in messages:
                found.append(message)
                if len(found) == there.message_count:
                    break
    return found


async def names(url: str, queue: str) -> list[str | None]:
    """The ids of the messages that are in a queue, which must be there."""
    async with harbour(url) as side:
        found = await side.channel.get_queue(queue)
        return [message.message_id for message in await arrived(found)]


class Goods:
    """Parcels as the relay has them: received from a queue of a real database."""

    def __init__(self, directory: Path) -> None:
        self._db = fairturn.connect(f"sqlite:///{directory}/goods.db")
        self._db.migrate()
        self._queue = self._db.queue("goods")
        self._queue.create()

    def parcel(self, body: Any = "an anchor", **given: Any) -> Parcel:
        [found] = self.parcels([Send(body, **given)])
        return found

    def parcels(self, sends: int | Sequence[Send]) -> list[Parcel]:
        if isinstance(sends, int):
            sends = [Send({"n": n}) for n in range(sends)]
        self._queue.send_many(sends)
        found = [parcel(message) for message in self._queue.receive(len(sends))]
        assert len(found) == len(sends)
        return found

    def close(self) -> None:
        self._db.close()


async def hand_over_all(
    destination: Any, parcels: Sequence[Parcel], at_once: int = 4
) -> list[Outcome]:
    """As the relay does it: in batches, some at the same time."""
    turns = asyncio.Semaphore(at_once)

    async def batch(some: Sequence[Parcel]) -> Sequence[Outcome]:
        async with turns:
            return await destination.hand_over(some, NOW)

    most = destination.most
    batches = [parcels[i : i + most] for i in range(0, len(parcels), most)]
    found = await asyncio.gather(*(batch(some) for some in batches))
    return [outcome for outcomes in found for outcome in outcomes]


@pytest.fixture
def goods(tmp_path: Path) -> Iterator[Goods]:
    found = Goods(tmp_path)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """asyncio complains about nothing: no error of a task that nobody looked at."""
    yield
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def later(outcome: object, *words: str, down: bool) -> None:
    """It is to be tried later, for this reason."""
    assert isinstance(outcome, Later)
    assert outcome.down is down, outcome
    for word in words:
        assert word in outcome.reason
    assert rabbit.PASSWORD not in outcome.reason
