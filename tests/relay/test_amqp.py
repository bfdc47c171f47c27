"""RabbitMQ as a destination, against a real one: what arrives, and what becomes of the rest."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys

import pytest

from fairturn.core.sends import Send
from fairturn.relay.amqp.address import check_address, destination_for
from fairturn.relay.amqp.destination import AmqpDestination, _bound
from fairturn.relay.destination import DestinationError, Never
from tests import rabbit, servers
from tests.relay.harbour import NOW, Goods, arrived, goods, hand_over_all, harbour, later, quiet

__all__ = ["goods", "quiet"]  # fixtures


@pytest.fixture(scope="module")
def broker_url() -> str:
    return rabbit.url()


# --- what arrives ---------------------------------------------------------------------------------
@pytest.mark.server
async def test_a_message_arrives_as_it_was_sent(broker_url: str, goods: Goods) -> None:
    parcels = goods.parcels(
        [
            Send({"order": 7}, channel="acme", type="shop.order", priority=3),
            Send("text is JSON, too: ü"),
            Send(b"\x00\xff"),
            Send(b""),
            Send(None, priority=-5),
            Send(1, priority=1000),
        ]
    )
    async with harbour(broker_url) as side:
        queue = await side.queue()
        destination = AmqpDestination(broker_url, routing_key=queue.name)
        assert await destination.hand_over(parcels, NOW) == [None] * 6
        await destination.close()
        came = {message.message_id: message for message in await arrived(queue)}
    assert set(came) == {parcel.identity for parcel in parcels}
    for parcel in parcels:
        one, message = came[parcel.identity], parcel.message
        assert one.body == message.raw
        assert one.delivery_mode == 2
        assert one.type == message.type
        assert one.priority == min(max(message.priority, 0), 255)
        assert one.timestamp == message.created_at.replace(microsecond=0)
        assert one.headers == {
            "fairturn.queue": "goods",
            "fairturn.channel": message.channel,
            "fairturn.id": message.id,
        }
        json_ = isinstance(message.body, bytes)
        assert one.content_type == ("application/octet-stream" if json_ else "application/json")


@pytest.mark.server
async def test_headers_arrive_and_what_amqp_cannot_hold_is_text(
    broker_url: str, goods: Goods
) -> None:
    exact = {
        "text": "ü",
        "none": None,
        "yes": True,
        "numbers": [0, -1, 127, 128, -129, 40_000, -40_000, 3_000_000_000, 2**63 - 1, -(2**63)],
        "nested": {"list": [1, "2", None, {}, []], "": {"deep": False}},
    }
    inexact = {"pi": 3.14159265358979, "half": 0.5, "large": 2**63, "small": -(2**70)}
    mine = {"fairturn.queue": "a lie"}
    async with harbour(broker_url) as side:
        queue = await side.queue()
        destination = AmqpDestination(broker_url, routing_key=queue.name)
        parcel = goods.parcel(1, headers=exact | {"in": [inexact]} | inexact | mine)
        assert await destination.hand_over([parcel], NOW) == [None]
        await destination.close()
        [came] = await arrived(queue)
    texts = {name: json.dumps(value) for name, value in inexact.items()}
    ours = {name: came.headers.pop(name) for name in list(came.headers) if "fairturn." in name}
    assert came.headers == exact | {"in": [texts]} | texts
    assert ours["fairturn.queue"] == "goods"


@pytest.mark.server
async def test_batches_arrive_in_order(broker_url: str, goods: Goods) -> None:
    async with harbour(broker_url) as side:
        queue = await side.queue()
        destination = AmqpDestination(broker_url, routing_key=queue.name)
        parcels = goods.parcels(1200)
        assert await hand_over_all(destination, parcels, at_once=1) == [None] * 1200
        await destination.close()
        came = [message.message_id for message in await arrived(queue)]
    assert came == [parcel.identity for parcel in parcels]


@pytest.mark.server
async def test_where_it_goes_may_depend_on_the_message(broker_url: str, goods: Goods) -> None:
    async with harbour(broker_url) as side:
        exchange = await side.exchange("topic")
        acme, all_ = await side.queue(), await side.queue()
        await acme.bind(exchange, "goods.acme.#")
        await all_.bind(exchange, "goods.#")
        destination = AmqpDestination(
            broker_url, exchange=exchange.name, routing_key="{queue}.{channel}.{type}"
        )
        sends = [Send(1, channel="acme", type="order"), Send(2, channel="zeta")]
        assert await destination.hand_over(goods.parcels(sends), NOW) == [None, None]
        await destination.close()
        assert [message.routing_key for message in await arrived(acme)] == ["goods.acme.order"]
        keys = {message.routing_key for message in await arrived(all_)}
        assert keys == {"goods.acme.order", "goods.zeta."}


@pytest.mark.server
async def test_a_name_that_looks_like_a_placeholder_is_a_name(
    broker_url: str, goods: Goods
) -> None:
    async with harbour(broker_url) as side:
        queue = await side.queue()
        await queue.bind("amq.topic", f"{queue.name}.#")
        destination = AmqpDestination(
            broker_url, exchange="amq.topic", routing_key=f"{queue.name}.{{channel}}.{{type}}"
        )
        parcel = goods.parcel(1, channel="{type}", type="{queue}")
        assert await destination.hand_over([parcel], NOW) == [None]
        await destination.close()
        [came] = await arrived(queue)
        assert came.routing_key == f"{queue.name}.{{type}}.{{queue}}"


@pytest.mark.server
async def test_an_address_says_it_all(broker_url: str, goods: Goods) -> None:
    async with harbour(broker_url) as side:
        exchange, queue = await side.exchange("direct"), await side.queue()
        await queue.bind(exchange, "a b")
        where = f"{broker_url}?heartbeat=30&exchange={exchange.name}&routing_key=a%20b"
        destination = destination_for(where, "goods")
        assert await destination.hand_over([goods.parcel()], NOW) == [None]
        await destination.close()
        named = await side.queue("goods")  # no routing key: the queue's name
        plain = destination_for(broker_url, "goods")
        assert await plain.hand_over([goods.parcel()], NOW) == [None]
        await plain.close()
        assert len(await arrived(queue)) == 1
        assert len(await arrived(named)) == 1


@pytest.mark.server
async def test_a_message_twice_at_once_is_published_once(broker_url: str, goods: Goods) -> None:
    """RabbitMQ tells which message it returns by its id, so two of one id must not be out."""
    async with harbour(broker_url) as side:
        queue = await side.queue()
        destination = AmqpDestination(broker_url, routing_key=queue.name)
        parcel = goods.parcel()
        first, second = await destination.hand_over([parcel, parcel], NOW)
        assert first is None
        later(second, "another hand-over", down=False)
        assert await destination.hand_over([parcel], NOW) == [None]
        await destination.close()
        assert len(await arrived(queue)) == 2


# --- what is turned away --------------------------------------------------------------------------
@pytest.mark.server
async def test_what_nobody_would_get_waits(broker_url: str, goods: Goods) -> None:
    async with harbour(broker_url) as side:
        queue = await side.queue()
        await queue.delete()
        destination = AmqpDestination(broker_url, routing_key=queue.name)
        parcels = goods.parcels(3)
        for outcome in await destination.hand_over(parcels, NOW):
            later(outcome, "default exchange", queue.name, "bind", down=True)
        queue = await side.queue(queue.name)
        assert await destination.hand_over(parcels, NOW) == [None] * 3
        await destination.close()
        assert len(await arrived(queue)) == 3


@pytest.mark.server
async def test_no_route_for_one_channel_stops_no_other(broker_url: str, goods: Goods) -> None:
    async with harbour(broker_url) as side:
        queue = await side.queue()
        prefix, channel = queue.name[:8], queue.name[8:]
        destination = AmqpDestination(broker_url, routing_key=f"{prefix}{{channel}}")
        sends = [Send(1, channel="nobody"), Send(2, channel=channel)]
        parcels = sorted(goods.parcels(sends), key=lambda parcel: parcel.message.body)
        lost, sent = await destination.hand_over(parcels, NOW)
        await destination.close()
        later(lost, f"{prefix}nobody", down=False)
        assert sent is None
        assert [message.body for message in await arrived(queue)] == [b"2"]


@pytest.mark.server
async def test_a_missing_exchange_is_named_and_may_come(broker_url: str, goods: Goods) -> None:
    async with harbour(broker_url) as side:
        exchange, queue = await side.exchange("fanout"), await side.queue()
        await exchange.delete()
        destination = AmqpDestination(broker_url, exchange=exchange.name)
        parcels = goods.parcels(500)
        for outcome in await destination.hand_over(parcels, NOW):
            later(outcome, f"no exchange {exchange.name!r}", "declare", down=True)
        await side.channel.declare_exchange(exchange.name, "fanout")
        await queue.bind(exchange.name)
        assert await destination.hand_over(parcels, NOW) == [None] * 500
        await destination.close()
        assert len(await arrived(queue)) == 500


@pytest.mark.server
async def test_a_full_queue_that_refuses_is_tried_later(broker_url: str, goods: Goods) -> None:
    async with harbour(broker_url) as side:
        full = {"x-max-length": 3, "x-overflow": "reject-publish"}
        queue = await side.queue(None, **full)
        destination = AmqpDestination(broker_url, routing_key=queue.name)
        parcels = goods.parcels(10)
        outcomes = list(await destination.hand_over(parcels, NOW))
        taken = [
            one.identity for one, outcome in zip(parcels, outcomes, strict=True) if not outcome
        ]
        for outcome in outcomes:
            if outcome is not None:
                later(outcome, "nack", queue.name, down=False)
        [outcome] = await destination.hand_over([goods.parcel()], NOW)
        later(outcome, "nack", down=True)  # now all are refused
        assert [message.message_id for message in await arrived(queue)] == taken
        assert len(taken) == 3
        assert await destination.hand_over([goods.parcel()], NOW) == [None]
        await destination.close()


@pytest.mark.server
async def test_what_amqp_cannot_carry_is_dead_and_alone(broker_url: str, goods: Goods) -> None:
    cases = {
        "header's name": Send(1, headers={"x" * 129: 1}),
        "at most 128 bytes": Send(2, headers={"a": [{"ü" * 65: 1}]}),
        "CC": Send(3, headers={"CC": "not a list"}),
        "BCC": Send(4, headers={"BCC": [1]}),
        "frame_max": Send(5, headers={"long": "x" * 200_000}),
        "routing key": Send(6, channel="c" * 255),
    }
    async with harbour(broker_url) as side:
        queue = await side.queue()
        destination = AmqpDestination(broker_url, exchange="amq.fanout", routing_key="k{channel}")
        await queue.bind("amq.fanout")
        parcels = goods.parcels([*cases.values(), Send(7), Send(8, headers={"CC": [], "ok": 1})])
        parcels.sort(key=lambda parcel: parcel.message.body)
        *bad, good, cc = await destination.hand_over(parcels, NOW)
        await destination.close()
        for words, outcome in zip(cases, bad, strict=True):
            assert isinstance(outcome, Never)
            assert words in outcome.reason
        assert (good, cc) == (None, None)
        assert {message.body for message in await arrived(queue)} == {b"7", b"8"}


# --- no connection --------------------------------------------------------------------------------
@pytest.mark.server
async def test_a_wrong_password_is_told_and_not_shown(broker_url: str, goods: Goods) -> None:
    destination = AmqpDestination(broker_url.replace(rabbit.PASSWORD, "pass-and-word"))
    [outcome] = await destination.hand_over([goods.parcel()], NOW)
    await destination.close()
    later(outcome, "refuses the user or the password", "ACCESS_REFUSED", down=True)
    assert "pass-and-word" not in f"{outcome} {destination} {destination.shown}"


@pytest.mark.server
async def test_an_unknown_virtual_host_is_told(broker_url: str, goods: Goods) -> None:
    destination = AmqpDestination(f"{broker_url}elsewhere")
    reasons = {(await destination.hand_over([goods.parcel()], NOW))[0] for _ in range(2)}
    await destination.close()
    [outcome] = reasons  # the same each time: the relay tells news only
    later(outcome, "virtual host", "/elsewhere", down=True)


async def test_where_nobody_listens(goods: Goods) -> None:
    destination = AmqpDestination(f"amqp://127.0.0.1:{servers.free_port()}/")
    for outcome in await destination.hand_over(goods.parcels(3), NOW):
        later(outcome, "127.0.0.1", "Connect call failed", down=True)
    await destination.close()


async def test_a_server_that_says_nothing(goods: Goods) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"amqp://127.0.0.1:{silent.getsockname()[1]}/"
        destination = AmqpDestination(url, connect_timeout=0.2)
        outcomes = await asyncio.gather(
            *(destination.hand_over([goods.parcel()], NOW) for _ in range(3))
        )
        for [outcome] in outcomes:
            later(outcome, "no answer within 0.2 s", down=True)
        await destination.close()


async def test_a_server_that_is_no_broker(goods: Goods) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        destination = AmqpDestination(f"amqp://127.0.0.1:{port}/", connect_timeout=5)
        [outcome] = await destination.hand_over([goods.parcel()], NOW)
        later(outcome, f"127.0.0.1:{port}", down=True)
        await destination.close()


# --- addresses ------------------------------------------------------------------------------------
def test_what_is_shown_has_no_secret() -> None:
    def shown(address: str) -> str:
        return destination_for(address, "goods").shown

    assert shown("amqp://u:p%40ss@h/") == "amqp://u@h:5672/?routing_key=goods"
    assert shown("amqps://u:p@h?cafile=x") == "amqps://u@h:5671/?routing_key=goods"
    assert (
        shown("amqp://[::1]:1/v%2Fh?exchange=x&routing_key=") == "amqp://[::1]:1/v%2Fh?exchange=x"
    )
    assert shown("amqp://h/?routing_key=a.{channel}") == "amqp://h:5672/?routing_key=a.{channel}"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://h/", "amqp://user:password@host/vhost"),
        ("amqp:///vhost", "amqp://user:password@host/vhost"),
        ("amqp://u:hush/hush@h/", "no URL"),
        ("amqp://h/?routing_key={tenant}", "{channel}"),
        ("amqp://h/?exchange=" + "x" * 128, "up to 127 characters"),
        ("amqp://h/?exchange=%C3%BC", "'ü' cannot be used"),
        ("amqp://h/?exchange=it's", "cannot be used"),
        ("amqp://h/?routing_key=amq.rabbitmq.reply-to.{channel}", "no queue has such a name"),
    ],
)
def test_an_address_that_cannot_be_one(address: str, said: str) -> None:
    for use in (check_address, lambda address: destination_for(address, "goods")):
        with pytest.raises(DestinationError, match=said.replace("{", r"\{")) as caught:
            use(address)
        assert "hush" not in str(caught.value)


@pytest.mark.server
async def test_every_exchange_that_may_be_named_can_be(broker_url: str, goods: Goods) -> None:
    name = ("aZ09_.:@#,/+ -" * 10)[:127]
    destination = AmqpDestination(broker_url, exchange=name)
    [outcome] = await destination.hand_over([goods.parcel()], NOW)
    await destination.close()
    later(outcome, f"there is no exchange {name!r}", down=True)


def test_the_largest_message_is_read_from_what_the_broker_says() -> None:
    for words in ("configured max size", "max size"):  # its own limit, and that of all brokers
        said = f"PRECONDITION_FAILED - message size 9000 is larger than {words} 8000"
        assert _bound(Exception(said)) == 8000


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiormq", None)
    with pytest.raises(DestinationError, match="pip install aiormq"):
        destination_for("amqp://h/", "goods")


@pytest.mark.server
def test_the_library_logs_no_password(
    broker_url: str, goods: Goods, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        destination = AmqpDestination(f"{broker_url}elsewhere")
        await destination.hand_over([goods.parcel()], NOW)
        await destination.close()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(fail())
    assert "aiormq" in {record.name.partition(".")[0] for record in caplog.records}
    assert rabbit.PASSWORD not in caplog.text
