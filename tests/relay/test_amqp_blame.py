"""A message at fault for RabbitMQ holds up no other: it waits, or is dead, by itself, though the
broker may close a channel or the connection because of it. A broker of their own, for these tests.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn.core.sends import Send
from fairturn.relay import Relay
from fairturn.relay.amqp.destination import AmqpDestination
from fairturn.relay.destination import Never, Outcome, Parcel
from tests import rabbit
from tests.relay.harbour import NOW, Goods, arrived, goods, harbour, later, quiet
from tests.worker.bench import eventually

pytestmark = pytest.mark.server

__all__ = ["goods", "quiet"]  # fixtures
AGENT = "agent"  # may write to amq.topic with routing keys that start with "open" only
ALL = {"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
USERS = {
    "vhosts": [{"name": "/"}],
    "users": [
        {"name": name, "password": rabbit.PASSWORD, "tags": ""} for name in (rabbit.USER, AGENT)
    ],
    "permissions": [{"user": name, **ALL} for name in (rabbit.USER, AGENT)],
    "topic_permissions": [
        {"vhost": "/", "user": AGENT, "exchange": "amq.topic", "write": "^open", "read": ""}
    ],
}


@pytest.fixture(scope="module")
def broker() -> Iterator[rabbit.Rabbit]:
    found = rabbit.Rabbit(settings={"load_definitions": "users.json"})
    users = found.directory / "users.json"  # where the broker's user may read it
    users.write_text(json.dumps(USERS))
    users.chmod(0o644)
    with found:
        yield found


async def test_no_route_for_some_headers_stops_no_other(
    broker: rabbit.Rabbit, goods: Goods
) -> None:
    """One routing key, but a headers exchange: what is turned away tells nothing of the next."""
    async with harbour(broker.url) as side:
        exchange, queue = await side.exchange("headers"), await side.queue()
        await queue.bind(exchange, "", arguments={"x-match": "all", "kind": "good"})
        destination = AmqpDestination(broker.url, exchange=exchange.name, routing_key="")
        bad = [goods.parcel(0, headers={"kind": "bad"}) for _ in range(2)]
        good = [goods.parcel(n, headers={"kind": "good"}) for n in (1, 2)]

        async def tell(*parcels: Parcel) -> list[Outcome]:
            return list(await destination.hand_over(parcels, NOW))

        for outcome in await tell(*bad):
            later(outcome, exchange.name, "bind", down=True)  # none was taken
        assert await tell(good[0]) == [None]
        outcome, taken = await tell(bad[0], good[1])
        later(outcome, "bind", down=False)
        assert taken is None
        await destination.close()
        assert {message.body for message in await arrived(queue)} == {b"1", b"2"}


async def test_the_address_of_an_answer_is_no_queue(broker: rabbit.Rabbit, goods: Goods) -> None:
    """RabbitMQ would close the connection, and with it what others have on their way."""
    asker = "amq.rabbitmq.reply-to.g1h2AAxyZWxheQ.xyz"
    async with harbour(broker.url) as side:
        queue = await side.queue()
        destination = AmqpDestination(broker.url, routing_key="{channel}")
        sends = [Send(n, channel=queue.name) for n in range(3)]
        sends += [Send(3, channel=asker), Send(4, channel=queue.name, headers={"CC": [asker]})]
        parcels = sorted(goods.parcels(sends), key=lambda parcel: parcel.message.body)
        *taken, to_asker, copied = await destination.hand_over(parcels, NOW)
        await destination.close()
        assert taken == [None] * 3
        for outcome in (to_asker, copied):
            assert isinstance(outcome, Never)
            assert asker in outcome.reason
        await queue.bind("amq.fanout")  # elsewhere it is a word as any other
        elsewhere = AmqpDestination(broker.url, exchange="amq.fanout", routing_key=asker)
        assert await elsewhere.hand_over([goods.parcel(5)], NOW) == [None]
        await elsewhere.close()
        assert len(await arrived(queue)) == 4


async def test_a_forbidden_routing_key_stops_no_other(broker: rabbit.Rabbit, goods: Goods) -> None:
    url = broker.url.replace(rabbit.USER, AGENT)
    async with harbour(broker.url) as side:
        queue = await side.queue()
        await queue.bind("amq.topic", "open.#")
    destination = AmqpDestination(url, exchange="amq.topic", routing_key="{channel}")
    long = "secret" * 40  # RabbitMQ cuts its text
    for key in ("secret", "it's a 'secret' in exchange 'x'", long):
        parcels = goods.parcels([Send(key, channel=key), Send(1, channel="open.1")])
        outcomes = await destination.hand_over(parcels, NOW)
        by_key = {one.message.channel: it for one, it in zip(parcels, outcomes, strict=True)}
        later(by_key[key], "may not write", "'amq.topic'", "routing key", key[:200], down=False)
        if by_key["open.1"] is not None:  # it may have been confirmed before
            later(by_key["open.1"], "nothing is wrong", down=False)
        again = [one for one in parcels if one.message.channel == "open.1"]
        assert await destination.hand_over(again, NOW) == [None]
    await destination.close()
    fixed = AmqpDestination(url, exchange="amq.topic", routing_key="secret")
    for outcome in await fixed.hand_over(goods.parcels(3), NOW):
        later(outcome, "may not write", "'secret'", down=True)  # there is no other key
    await fixed.close()


async def test_another_hand_over_is_not_down_for_a_forbidden_routing_key(
    broker: rabbit.Rabbit, goods: Goods
) -> None:
    """They share a channel, which RabbitMQ closes."""
    url = broker.url.replace(rabbit.USER, AGENT)
    destination = AmqpDestination(url, exchange="amq.topic", routing_key="{channel}")
    bad = goods.parcel(channel="secret")
    others = goods.parcels([Send(n, channel="open.2") for n in range(100)])
    [outcome], outcomes = await asyncio.gather(
        destination.hand_over([bad], NOW), destination.hand_over(others, NOW)
    )
    await destination.close()
    later(outcome, "may not write", down=False)
    for outcome in outcomes:
        later(outcome, "nothing is wrong", down=False)


@pytest.mark.parametrize("deaths", [["a"], [{}, 1], [None], [{"count": 0.5}], [{"count": None}]])
async def test_deaths_that_would_kill_a_queue_are_not_sent(
    broker: rabbit.Rabbit, goods: Goods, deaths: list[object]
) -> None:
    """RabbitMQ's queue reads the header x-death when it dead-letters a message."""
    name, known = "mortal", {"queue": "mortal", "reason": "maxlen"}
    async with harbour(broker.url) as side:
        given = {"x-max-length": 3, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "d"}
        await side.queue(name, **given)
        await side.queue("d")
    bad = [one | known if isinstance(one, dict) else one for one in deaths]
    destination = AmqpDestination(broker.url, routing_key=name)
    [outcome] = await destination.hand_over([goods.parcel(headers={"x-death": bad})], NOW)
    good = goods.parcel(headers={"x-death": [known | {"count": 7}]})
    assert await destination.hand_over([good, *goods.parcels(10)], NOW) == [None] * 11
    await destination.close()
    assert isinstance(outcome, Never)
    assert "x-death" in outcome.reason
    async with harbour(broker.url) as side:
        first: Any = (await arrived(await side.channel.get_queue("d")))[0]
        await side.channel.queue_delete(name)
    assert first.message_id == good.identity
    assert first.headers["x-death"][0]["count"] == 8


async def test_one_at_fault_holds_up_none_behind_it(broker: rabbit.Rabbit, tmp_path: Path) -> None:
    """With the relay: the one at fault is the first, alone, and of the same channel."""
    agent = broker.url.replace(rabbit.USER, AGENT)
    async with (
        harbour(broker.url) as side,
        fairturn.connect_async(f"sqlite:///{tmp_path}/source.db") as db,
    ):
        await db.migrate()
        queue = await side.queue()
        await queue.bind("amq.headers", "", arguments={"x-match": "all", "kind": "good"})
        await queue.bind("amq.topic", "open.#")
        cases = {
            f"{broker.url}?exchange=amq.headers&routing_key=": ("bad", "good"),
            f"{agent}?exchange=amq.topic&routing_key={{type}}": ("secret", "open.3"),
            f"{broker.url}?routing_key={{type}}": ("amq.rabbitmq.reply-to.g1h2AAx.x", queue.name),
        }
        for n, (address, (bad, good)) in enumerate(cases.items()):
            source = db.queue(f"source{n}")
            await source.create()
            await source.send(bad, type=bad, headers={"kind": bad})
            async with Relay(db, {source.name: address}, schedules=False) as relay:
                await eventually(lambda relay=relay: any(asdict(relay.totals()).values()))
                await source.send_many(
                    [Send(n, type=good, headers={"kind": good}) for _ in range(20)]
                )
                await eventually(lambda relay=relay: relay.totals().handed == 20)
            assert {message.body for message in await arrived(queue)} == {str(n).encode()}
