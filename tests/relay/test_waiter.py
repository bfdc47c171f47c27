"""Waiter and AsyncWaiter: an SQS client whose delays have no limit."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fairturn
from fairturn.core.errors import InvalidArgument, InvalidName
from fairturn.relay.sqs import HandingOver
from fairturn.relay.sqs import waiter_orders as orders
from tests import servers
from tests.conformance import yours
from tests.relay.sqs_servers import Sqs
from tests.relay.waiters import ATTRIBUTES, HOUR, Open, opened, string
from tests.worker.bench import eventually

# --- straight, or stored -------------------------------------------------------------------------


async def test_900_goes_straight_and_901_is_stored(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue()
    async with door() as d:
        for delay in (0, 1, 900):
            answer = await d.send(queue_url, DelaySeconds=delay)
            assert answer["MessageId"].startswith("0000")
        assert await d.count(queue_url) == 0
        assert ours.counts(queue_url) == (1, 2)
        answer = await d.send(queue_url, DelaySeconds=901)
        assert orders.id_of(answer["MessageId"]) is not None
        assert await d.count(queue_url) == 1
        assert ours.counts(queue_url) == (1, 2)


@pytest.mark.parametrize(
    ("after", "delay"),
    [(-5, 0), (0, 0), (0.2, 1), (899.2, 900), (900, 900), (900.000001, None), (901, None)],
)
def test_a_time_is_rounded_up(after: float, delay: int | None) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    now_us = int(now.timestamp()) * 1_000_000
    given = {"MessageBody": "x", "At": now + timedelta(seconds=after)}
    found = orders.order("https://host/1/q", given, now_us)
    if delay is None:
        assert found.straight is None
        assert found.send is not None
        assert found.send.at == given["At"]
    else:
        assert found.send is None
        assert found.straight == {"MessageBody": "x", "DelaySeconds": delay}


async def test_what_is_not_said_is_not_sent(door: Open, ours: Sqs) -> None:
    """The queue's own delay is the queue's."""
    queue_url = ours.queue(DelaySeconds="300")
    async with door() as d:
        await d.send(queue_url)
        await d.send(queue_url, DelaySeconds=0)
    assert ours.counts(queue_url) == (1, 1)


async def test_everything_else_is_the_clients(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue()
    async with door() as d:
        await d.send(queue_url, "hello")
        answer = await d.call("receive_message", QueueUrl=queue_url)
        assert [message["Body"] for message in answer["Messages"]] == ["hello"]
        with pytest.raises(d.waiter.exceptions.QueueDoesNotExist):
            await d.call("get_queue_url", QueueName="nowhere")
        assert d.waiter.meta.service_model.service_name == "sqs"
        with pytest.raises(AttributeError):
            d.waiter.no_such_method  # noqa: B018


# --- byte for byte -------------------------------------------------------------------------------

BODIES = [
    "plain",
    "trailing blanks  \n",
    " \t\r\n",
    '{"a": 1.0, "b" :[1,2],  "a": 2}',
    '{"a":1} ',
    ' {"a":1}',
    "{only looks like it}",
    "[1e400, 1E2, -0]",
    '"quoted"',
    "null",
    "007",
    '{"half": "\\ud83d", "nul": "\\u0000"}',
    "Größe 🚢 \u2028 \x7f \ufeff",
    "[" * 5000,
    "[" * 2000 + "]" * 2000,
    "<xml>&amp;</xml>",
]
# moto does not know that AWS takes such names, too.
PLAIN = {name: value for name, value in ATTRIBUTES.items() if name.isascii()}


async def test_what_was_stored_arrives_byte_for_byte(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue()
    md5s: dict[str, str] = {}
    async with door() as d:
        for body in BODIES:
            answer = await d.send(queue_url, body, DelaySeconds=HOUR, MessageAttributes=ATTRIBUTES)
            md5s[body] = answer["MD5OfMessageBody"]
            attributes_md5 = answer["MD5OfMessageAttributes"]
        await d.due(queue_url)
        async with d.relayed():
            await eventually(lambda: ours.counts(queue_url)[0] == len(BODIES))
        assert await d.count(queue_url) == 0
    found = ours.taken(queue_url)
    assert sorted(message["Body"] for message in found) == sorted(BODIES)
    for message in found:
        assert message["MD5OfBody"] == md5s[message["Body"]]
        assert message["MessageAttributes"] == ATTRIBUTES
        assert message["MD5OfMessageAttributes"] == attributes_md5


async def test_an_answer_looks_like_boto3s(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue()
    trace = {"AWSTraceHeader": string("Root=1-5759e988-bd862e3fe1be46a994272793")}
    given = {"MessageAttributes": ATTRIBUTES, "MessageSystemAttributes": trace}
    async with door() as d:
        straight = await d.send(queue_url, DelaySeconds=0, **given)
        stored = await d.send(queue_url, DelaySeconds=HOUR, **given)
        assert straight.keys() == stored.keys()
        for name in straight.keys() - {"MessageId", "ResponseMetadata"}:
            assert straight[name] == stored[name]
        assert stored["ResponseMetadata"].keys() == straight["ResponseMetadata"].keys()
        await d.due(queue_url)
        async with d.relayed():
            await eventually(lambda: ours.counts(queue_url)[0] == 2)
    one, two = ours.taken(queue_url)
    assert one["Attributes"]["AWSTraceHeader"] == two["Attributes"]["AWSTraceHeader"]


async def test_a_group_arrives(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue()
    async with door() as d:
        await d.send(queue_url, DelaySeconds=HOUR, MessageGroupId="tenant-7")
        await d.due(queue_url)
        async with d.relayed():
            await eventually(lambda: ours.counts(queue_url)[0])
    [found] = ours.taken(queue_url)
    assert found["Attributes"]["MessageGroupId"] == "tenant-7"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"MessageBody": ""}, "MessageBody"),
        ({"MessageBody": "\x00"}, "MessageBody"),
        ({"MessageBody": "half \ud83d"}, "MessageBody"),
        ({"MessageBody": 5}, "MessageBody"),
        ({"MessageBody": "x" * (1024**2 + 1)}, "MessageBody"),
        ({"MessageAttributes": {"a": string("")}}, "MessageAttributes"),
        ({"MessageAttributes": {"a": string("x", "Text")}}, "MessageAttributes"),
        ({"MessageAttributes": {"a": string("x", "Number")}}, "MessageAttributes"),
        ({"MessageAttributes": {"a": "x"}}, "MessageAttributes"),
        ({"MessageAttributes": ["a"]}, "MessageAttributes"),
        ({"MessageAttributes": {"a": string(7, "Number")}}, "MessageAttributes"),  # type: ignore
        (
            {"MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": 7}}},
            "MessageAttributes",
        ),
        ({"MessageAttributes": {"AWS.x": string("x")}}, "MessageAttributes"),
        ({"MessageAttributes": {f"a{n}": string("x") for n in range(11)}}, "MessageAttributes"),
        ({"MessageSystemAttributes": {"Other": string("x")}}, "MessageSystemAttributes"),
        ({"MessageGroupId": "a blank"}, "MessageGroupId"),
        ({"MessageDeduplicationId": "x"}, "MessageDeduplicationId"),
        ({"DelaySeconds": 101 * 366 * 86_400}, "DelaySeconds"),
        ({"DelaySeconds": None, "At": "tomorrow"}, "At"),
        ({"At": time.time() + HOUR}, "At"),
        ({"Colour": "red"}, "Colour"),
        ({"JobId": ""}, "JobId"),
        ({"JobId": "x" * 256}, "JobId"),
    ],
)
def test_what_sqs_would_refuse_is_refused_now(given: dict[str, Any], field: str) -> None:
    asked = {"MessageBody": "x", "DelaySeconds": HOUR, **given}
    if asked["DelaySeconds"] is None:
        del asked["DelaySeconds"]
    with pytest.raises((InvalidArgument, InvalidName), match=rf"^{field}"):
        orders.order("https://host/1/q", asked, 0)


# --- FIFO ----------------------------------------------------------------------------------------


async def test_a_fifo_queue_has_delays_now(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue(".fifo")
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d1"}
    async with door() as d:
        await d.send(queue_url, "now", **ids)
        await d.send(queue_url, "past", At=time.time() - 5, MessageGroupId="g",
                     MessageDeduplicationId="d2")  # fmt: skip
        assert await d.count(queue_url) == 0
        for n in range(5):
            await d.send(queue_url, f"n{n}", DelaySeconds=5, MessageGroupId="g")
        await d.send(queue_url, "once", DelaySeconds=1, MessageGroupId="h",
                     MessageDeduplicationId="d3")  # fmt: skip
        with pytest.raises(InvalidArgument, match="MessageGroupId"):
            await d.send(queue_url, DelaySeconds=1)
        with pytest.raises(InvalidArgument, match="MessageDeduplicationId"):
            await d.send(queue_url, DelaySeconds=1, MessageGroupId="g", MessageDeduplicationId="")
        assert await d.count(queue_url) == 6
        await d.due(queue_url)
        async with d.relayed():
            await eventually(lambda: ours.counts(queue_url)[0] == 8)
    found = ours.taken(queue_url)
    groups = [(message["Attributes"]["MessageGroupId"], message["Body"]) for message in found]
    assert [body for group, body in groups if group == "g"] == [
        *("now", "past"),
        *(f"n{n}" for n in range(5)),
    ]
    [once] = [message for message in found if message["Body"] == "once"]
    assert once["Attributes"]["MessageDeduplicationId"] == "d3"


# --- on every database ---------------------------------------------------------------------------


async def test_in_your_transaction(backend: str, url: str, ours: Sqs) -> None:
    queue_url, other_url = ours.queue(), ours.queue()
    with fairturn.connect(url) as db, yours.plain(backend, url) as mine:
        async with opened("sync", ours, url) as d:
            for prepared in (queue_url, other_url):
                if prepared == other_url:
                    await d.call("prepare", QueueUrl=prepared)
                mine.begin()
                yours_waiter = d.waiter.using(mine.connection)
                yours_waiter.send_message(QueueUrl=prepared, MessageBody="undone", JobId="j")
                assert yours_waiter.count(QueueUrl=prepared) == 1
                mine.rollback()
                assert await d.count(prepared) == 0
                mine.begin()
                entries = [
                    {"Id": "1", "MessageBody": "short", "DelaySeconds": 3},
                    {"Id": "2", "MessageBody": "long", "DelaySeconds": HOUR, "JobId": "j"},
                ]
                sent = yours_waiter.send_message_batch(QueueUrl=prepared, Entries=entries)
                assert [one["Id"] for one in sent["Successful"]] == ["1", "2"]
                assert not yours_waiter.cancel(QueueUrl=prepared, JobId="k")
                mine.commit()
                assert [one.body for one in await d.waiting(prepared)] == ["short", "long"]
                assert ours.counts(prepared) == (0, 0)
        for name in db.queues():
            if name.startswith("waiter-"):
                db.queue(name).drop()


@pytest.mark.server
async def test_in_your_async_transaction(ours: Sqs) -> None:
    database = servers.postgres_url("waiter")
    queue_url = ours.queue()
    async with (
        opened("async", ours, database) as d,
        await psycopg.AsyncConnection.connect(database) as mine,
    ):
        await d.db.migrate()
        in_yours = d.waiter.using(mine)
        await in_yours.send_message(QueueUrl=queue_url, MessageBody="undone")
        await mine.rollback()
        assert await d.count(queue_url) == 0
        for body in ("one", "two"):
            await in_yours.send_message(QueueUrl=queue_url, MessageBody=body, JobId=body)
        assert await in_yours.cancel(QueueUrl=queue_url, JobId="one")
        await mine.commit()
        assert [one.body for one in await d.waiting(queue_url)] == ["two"]
        assert ours.counts(queue_url) == (0, 0)


async def test_it_does_not_wait_inside_your_transaction(tmp_path: Path, ours: Sqs) -> None:
    database = f"sqlite:///{tmp_path}/waiter.db"
    queue_url = ours.queue()
    with fairturn.connect(database) as db:
        db.migrate()
    with yours.plain("sqlite", database) as mine:
        async with opened("sync", ours, database, patience=600) as d:
            await d.send(queue_url, DelaySeconds=HOUR, JobId="j")
            await d.due(queue_url)
            assert len(await d.queue(queue_url).receive(1)) == 1
            mine.begin()
            in_yours = d.waiter.using(mine.connection)
            with pytest.raises(HandingOver):
                in_yours.send_message(QueueUrl=queue_url, MessageBody="x", JobId="j")
            with pytest.raises(HandingOver):
                in_yours.cancel(QueueUrl=queue_url, JobId="j")
            mine.rollback()


async def test_from_the_send_to_sqs(backend: str, url: str, sqs: Sqs) -> None:
    """The whole way, on every database and to both servers: inside the last 15 minutes SQS waits,
    and what is overdue is there at once."""
    queue_url = sqs.queue()
    async with opened("async", sqs, url) as d:
        body = '{"n": 1.0}'
        await d.send(queue_url, body, DelaySeconds=HOUR, MessageAttributes=PLAIN, JobId="n")
        await d.send(queue_url, "soon", DelaySeconds=HOUR, JobId="soon")
        await d.send(queue_url, "next year", DelaySeconds=365 * 86_400)
        queue = d.queue(queue_url)
        try:
            await queue.reschedule(key="n", at=time.time() - 86_400)
            await queue.reschedule(key="soon", delay=600)
            async with d.relayed():
                await eventually(lambda: sqs.counts(queue_url) == (1, 1))
            assert [one.body for one in await d.waiting(queue_url)] == ["next year"]
        finally:
            await queue.drop()
    [found] = sqs.taken(queue_url)
    assert found["Body"] == body
    assert found["MessageAttributes"] == PLAIN
