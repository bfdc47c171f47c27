"""Waiter and AsyncWaiter: an SQS client whose delays have no limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead.errors import InvalidArgument, InvalidName
from fairlead.relay import waiter_orders as orders
from fairlead.relay.sqs import HandingOver
from tests import servers
from tests.conformance import yours
from tests.relay.sqs_servers import Sqs
from tests.relay.waiters import WAYS, Door, opened
from tests.worker.bench import eventually

HOUR = 3600
Open = Callable[..., AbstractAsyncContextManager[Door]]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def door(way: str, ours: Sqs, tmp_path: Path) -> Open:
    """``async with door() as d``: on SQLite, before Fairlead's own SQS."""
    database = f"sqlite:///{tmp_path}/waiter.db"
    with fairlead.connect(database) as db:
        db.migrate()
    return lambda **options: opened(way, ours, database, **options)


def string(value: str, kind: str = "String") -> dict[str, Any]:
    return {"DataType": kind, "StringValue": value}


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


# --- a job again ---------------------------------------------------------------------------------


async def test_the_same_job_replaces_the_one_that_waits(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue()
    async with door() as d:
        first = await d.send(queue_url, "old", DelaySeconds=HOUR, JobId="job")
        second = await d.send(queue_url, "new", DelaySeconds=2 * HOUR, JobId="job")
        other = await d.send(queue_url, "other", DelaySeconds=HOUR, JobId="other")
        assert first["MessageId"] == second["MessageId"] != other["MessageId"]
        assert await d.count(queue_url) == 2
        job = (await d.waiting(queue_url))[0]
        assert (job.body, job.job_id, job.message_id) == ("new", "job", second["MessageId"])
        assert job.at > datetime.now(UTC) + timedelta(seconds=1.9 * HOUR)
        await d.due(queue_url)
        async with d.relayed():
            await eventually(lambda: ours.counts(queue_url)[0] == 2)
    assert sorted(message["Body"] for message in ours.taken(queue_url)) == ["new", "other"]


async def test_a_short_delay_takes_the_place_of_the_one_that_waits(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue()
    async with door() as d:
        await d.send(queue_url, "old", DelaySeconds=HOUR, JobId="job")
        await d.send(queue_url, "new", JobId="job")
        assert await d.count(queue_url) == 0
        await d.send(queue_url, "later", DelaySeconds=HOUR, JobId="job")
        entry = {"Id": "1", "MessageBody": "newer", "JobId": "job"}
        assert len((await d.batch(queue_url, [entry]))["Successful"]) == 1
        assert await d.count(queue_url) == 0
    assert sorted(message["Body"] for message in ours.taken(queue_url)) == ["new", "newer"]


async def test_one_that_is_being_handed_over_is_waited_for(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue()
    async with door(patience=60) as d:
        tries: list[str] = []
        send = d.waiter._send
        d.waiter._send = lambda *given: tries.append(given[0]) or send(*given)
        for done in ("ack", "release"):
            await d.send(queue_url, "old", DelaySeconds=HOUR, JobId=done)
            await d.due(queue_url)
            [leased] = await d.queue(queue_url).receive(1)
            tries.clear()
            replacing = asyncio.create_task(d.send(queue_url, "new", DelaySeconds=HOUR, JobId=done))
            await eventually(lambda: len(tries) > 1)  # the first was refused
            await getattr(leased, done)()
            await replacing
            [waits] = await d.waiting(queue_url)
            assert (waits.body, waits.job_id) == ("new", done)
            assert await d.cancel(queue_url, JobId=done)


async def test_one_that_stays_on_its_way_is_told(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue()
    async with door(patience=0.2) as d:
        stored = await d.send(queue_url, "old", DelaySeconds=HOUR, JobId="job")
        await d.due(queue_url)
        [leased] = await d.queue(queue_url).receive(1)
        with pytest.raises(HandingOver, match="JobId 'job' is being handed over"):
            await d.send(queue_url, "new", DelaySeconds=HOUR, JobId="job")
        with pytest.raises(HandingOver, match="job"):
            await d.cancel(queue_url, JobId="job")
        with pytest.raises(HandingOver, match="fa171ead"):
            await d.cancel(queue_url, MessageId=stored["MessageId"])
        entries = [
            {"Id": "a", "MessageBody": "new", "DelaySeconds": HOUR, "JobId": "job"},
            {"Id": "b", "MessageBody": "other", "DelaySeconds": HOUR},
        ]
        answer = await d.batch(queue_url, entries)
        assert [one["Id"] for one in answer["Successful"]] == ["b"]
        [failed] = answer["Failed"]
        assert (failed["Id"], failed["Code"]) == ("a", "Fairlead.HandingOver")
        assert await d.count(queue_url) == 2
        # What goes straight to SQS is there already: the old one is not tried again.
        await d.send(queue_url, "now", JobId="job")
        with pytest.raises(fairlead.LeaseLost):
            await leased.ack()
        assert [one.body for one in await d.waiting(queue_url)] == ["other"]
    assert [message["Body"] for message in ours.taken(queue_url)] == ["now"]


# --- batches -------------------------------------------------------------------------------------


async def test_a_batch_is_parted(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue()
    entries: list[dict[str, Any]] = [
        {"Id": "a", "MessageBody": "later", "DelaySeconds": HOUR, "MessageAttributes": ATTRIBUTES},
        {"Id": "b", "MessageBody": "now"},
        {"Id": "c", "MessageBody": "\x00"},  # SQS's to refuse
        {
            "Id": "d",
            "MessageBody": "job",
            "At": datetime.now(UTC) + timedelta(days=1),
            "JobId": "j",
        },
        {"Id": "e", "MessageBody": "soon", "At": time.time() + 60},
    ]
    async with door() as d:
        answer = await d.batch(queue_url, entries)
        assert [one["Id"] for one in answer["Successful"]] == ["a", "b", "d", "e"]
        assert [one["Id"] for one in answer["Failed"]] == ["c"]
        ids = [orders.id_of(one["MessageId"]) for one in answer["Successful"]]
        assert [id is not None for id in ids] == [True, False, True, False]
        assert "MD5OfMessageAttributes" in answer["Successful"][0]
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
        assert ours.counts(queue_url) == (1, 1)
        assert [one.body for one in await d.waiting(queue_url)] == ["later", "job"]

        stored = await d.batch(queue_url, entries[:1])
        assert [one["Id"] for one in stored["Successful"]] == ["a"]
        assert "Failed" not in stored
        assert stored["ResponseMetadata"]["HTTPStatusCode"] == 200


async def test_a_batch_of_short_ones_is_sqss(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue()
    async with door() as d:
        answer = await d.batch(queue_url, [{"Id": "b", "MessageBody": "now"}])
        assert [one["Id"] for one in answer["Successful"]] == ["b"]
        with pytest.raises(d.waiter.exceptions.EmptyBatchRequest):
            await d.batch(queue_url, [])
        with pytest.raises(d.waiter.exceptions.BatchEntryIdsNotDistinct):
            await d.batch(queue_url, [{"Id": "b", "MessageBody": "now"}] * 2)
        assert await d.db.queues() == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"MessageBody": ""}, r"Entries\[1\].MessageBody"),
        ({"JobId": "first"}, "JobId 'first' is there twice"),
        ({"Id": "0"}, "Entries: Id 0 repeated"),
        ({"Id": "no id"}, "Entries: A batch entry id"),
    ],
)
async def test_nothing_of_a_wrong_batch_is_sent(
    change: dict[str, Any], says: str, door: Open, ours: Sqs
) -> None:
    queue_url = ours.queue()
    entries = [
        {"Id": "0", "MessageBody": "now", "JobId": "first"},
        {"Id": "1", "MessageBody": "later", "DelaySeconds": HOUR, **change},
    ]
    async with door() as d:
        with pytest.raises(InvalidArgument, match=says):
            await d.batch(queue_url, entries)
        assert await d.count(queue_url) == 0
    assert ours.counts(queue_url) == (0, 0)


async def test_a_database_that_is_away_fails_its_entries_only(way: str, ours: Sqs) -> None:
    nowhere = f"postgresql://postgres@127.0.0.1:{servers.free_port()}/nowhere"
    queue_url = ours.queue()
    entries = [
        {"Id": "0", "MessageBody": "now"},
        {"Id": "1", "MessageBody": "later", "DelaySeconds": HOUR},
    ]
    async with opened(way, ours, nowhere) as d:
        answer = await d.batch(queue_url, entries)
        assert [one["Id"] for one in answer["Successful"]] == ["0"]
        [failed] = answer["Failed"]
        assert (failed["Id"], failed["SenderFault"]) == ("1", False)
        assert failed["Code"] == "Fairlead.DatabaseUnavailable"
        with pytest.raises(fairlead.DatabaseUnavailable):
            await d.batch(queue_url, entries[1:])
    assert ours.counts(queue_url) == (1, 0)


# --- what waits ----------------------------------------------------------------------------------


async def test_cancel(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue()
    async with door() as d:
        assert not await d.cancel(queue_url, JobId="job")  # there is not even a queue
        await d.send(queue_url, DelaySeconds=HOUR, JobId="job")
        plain = await d.send(queue_url, DelaySeconds=HOUR)
        straight = await d.send(queue_url, DelaySeconds=900)
        assert not await d.cancel(queue_url, MessageId=straight["MessageId"])
        assert not await d.cancel(queue_url, JobId="another")
        assert await d.count(queue_url) == 2
        assert await d.cancel(queue_url, JobId="job")
        assert not await d.cancel(queue_url, JobId="job")
        assert await d.cancel(queue_url, MessageId=plain["MessageId"])
        assert await d.count(queue_url) == 0
        with pytest.raises(InvalidArgument, match="one of them"):
            await d.cancel(queue_url)
        with pytest.raises(InvalidArgument, match="one of them"):
            await d.cancel(queue_url, JobId="a", MessageId="b")


async def test_what_waits_is_listed(door: Open, ours: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "PAGE", 3)
    queue_url = ours.queue()
    at = datetime(2031, 5, 1, 12, tzinfo=UTC)
    async with door() as d:
        assert await d.waiting(queue_url) == []
        for n in range(7):
            await d.send(queue_url, f"n{n}", At=at + timedelta(days=n))
        found = await d.waiting(queue_url)
        assert [one.body for one in found] == [f"n{n}" for n in range(7)]
        assert [one.at for one in found] == [at + timedelta(days=n) for n in range(7)]
        assert [one.body for one in await d.waiting(queue_url, limit=4)] == ["n0", "n1", "n2", "n3"]
        assert await d.waiting(queue_url, limit=0) == []
        with pytest.raises(InvalidArgument, match="limit"):
            await d.waiting(queue_url, limit=-1)
        # One is on its way, one was turned away, one is dead.
        await d.due(queue_url)
        leased = await d.queue(queue_url).receive(3)
        due = int(at.timestamp()) * 1_000_000
        await leased[1].defer(60, memo={"due": due, "tries": 1})
        await leased[2].kill("SQS does not take it")
        found = await d.waiting(queue_url)
        assert [one.body for one in found] == ["n0", "n1", "n3", "n4", "n5", "n6"]
        assert found[1].at == at
        assert await d.count(queue_url) == 6


async def test_the_queue_says_where_it_goes(door: Open, ours: Sqs) -> None:
    standard, fifo = ours.queue(), ours.queue(".fifo")
    async with door() as d:
        for queue_url, asked in ((standard, "&groups=1"), (fifo, "")):
            name = await d.call("prepare", QueueUrl=queue_url)
            assert name == d.queue(queue_url).name
            assert name.startswith(f"waiter-{queue_url.rpartition('/')[2]}-")
            settings = await d.queue(queue_url).settings()
            address = f"sqs:{queue_url}?region=us-east-1{asked}"
            assert settings.meta == {"destination": address}
            assert settings.max_attempts == 0
            assert settings.policy.ordered == (queue_url == fifo)
        await d.queue(standard).set(meta={"destination": "elsewhere"})
        await d.send(standard, DelaySeconds=HOUR)
        assert (await d.queue(standard).settings()).meta == {"destination": "elsewhere"}


def test_two_urls_never_share_a_queue() -> None:
    aws = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
    names = {orders.queue_name("waiter-", url) for url in (aws, aws.replace("eu", "us"))}
    assert len(names) == 2
    assert orders.queue_settings(aws, "eu-west-1")["meta"] == {"destination": f"sqs:{aws}?groups=1"}
    with pytest.raises(InvalidArgument, match="QueueUrl"):
        orders.queue_name("waiter-", "https://")


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
    with fairlead.connect(url) as db, yours.plain(backend, url) as mine:
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


async def test_it_does_not_wait_inside_your_transaction(tmp_path: Path, ours: Sqs) -> None:
    database = f"sqlite:///{tmp_path}/waiter.db"
    queue_url = ours.queue()
    with fairlead.connect(database) as db:
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
