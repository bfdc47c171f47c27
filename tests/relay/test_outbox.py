"""The outbox: a business write and its message in one transaction, and a broker in the end."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

import aio_pika
import pytest

from fairturn.relay import Destination, Later, Outcome, Parcel
from fairturn.relay.amqp.destination import AmqpDestination
from fairturn.relay.sqs.clients import client_for
from fairturn.relay.sqs.destination import SqsDestination
from tests import rabbit
from tests.conformance import yours
from tests.conformance.door import unique
from tests.relay.places import relayed
from tests.relay.sqs_servers import Sqs
from tests.worker.bench import Bench, eventually

ORDERS = 30


class Forgetful:
    """Hands over, and loses the answer of every first try: as a crash before the ack does."""

    def __init__(self, place: Destination) -> None:
        self._place = place
        self.shown, self.ahead, self.most = place.shown, place.ahead, place.most
        self._forgot: set[str] = set()

    async def hand_over(self, parcels: Sequence[Parcel], now_us: int) -> Sequence[Outcome]:
        outcomes = await self._place.hand_over(parcels, now_us)
        return [self._answer(*each) for each in zip(parcels, outcomes, strict=True)]

    def _answer(self, parcel: Parcel, outcome: Outcome) -> Outcome:
        assert outcome is None
        if parcel.identity in self._forgot:
            return None
        self._forgot.add(parcel.identity)
        return Later("the answer was lost")

    async def close(self) -> None:
        await self._place.close()


def _do_business(bench: Bench) -> set[int]:
    """Orders and their messages, every third rolled back; those that there are."""
    queue = bench.app.db.queue(bench.name)
    with yours.plain(bench.backend, bench.url) as mine:
        for n in range(ORDERS):
            mine.begin()
            mine.execute(f"INSERT INTO effect VALUES ('{bench.name}', {n})")
            queue.using(mine.connection).send({"order": n}, channel=f"customer-{n % 4}")
            mine.rollback() if n % 3 == 0 else mine.commit()
        mine.begin()
        rows = mine.execute(f"SELECT n FROM effect WHERE queue = '{bench.name}'")
        mine.commit()
    return {n for (n,) in rows}


async def test_a_fifo_queue_has_each_order_once(bench: Bench, ours: Sqs) -> None:
    orders = await asyncio.to_thread(_do_business, bench)
    assert len(orders) == ORDERS * 2 // 3
    fifo = ours.queue(".fifo")
    place = SqsDestination(client_for(fifo), fifo, own=True)
    async with relayed(bench, Forgetful(place)) as relay:
        await eventually(bench.empty)
        assert relay.snapshot()[bench.name]["later"] == len(orders)
    bodies = [json.loads(message["Body"])["order"] for message in ours.taken(fifo)]
    assert sorted(bodies) == sorted(orders)


@pytest.mark.server
async def test_rabbitmq_has_each_order_and_tells_which_are_the_same(bench: Bench) -> None:
    orders = await asyncio.to_thread(_do_business, bench)
    name = unique("outbox")
    async with await aio_pika.connect(rabbit.url()) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(name, durable=True)
        place = AmqpDestination(rabbit.url(), routing_key=name)
        async with relayed(bench, Forgetful(place)):
            await eventually(bench.empty)
        came: list[tuple[str | None, int]] = []
        while (message := await queue.get(no_ack=True, fail=False)) is not None:
            came.append((message.message_id, json.loads(message.body)["order"]))
        await queue.delete()
    assert {order for _, order in came} == orders
    assert set(Counter(id for id, _ in came).values()) == {2}
    assert len({id for id, _ in came}) == len(orders)
