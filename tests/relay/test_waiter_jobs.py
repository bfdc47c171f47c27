"""Waiter and AsyncWaiter: jobs that are sent again, batches, and what waits."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import fairturn
from fairturn.core.errors import InvalidArgument
from fairturn.core.values import moment
from fairturn.relay.sqs import HandingOver
from fairturn.relay.sqs import waiter_orders as orders
from tests import servers
from tests.relay.sqs_servers import Sqs
from tests.relay.waiters import ATTRIBUTES, HOUR, Open, opened
from tests.worker.bench import eventually

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
        assert (failed["Id"], failed["Code"]) == ("a", "Fairturn.HandingOver")
        assert await d.count(queue_url) == 2
        # What goes straight to SQS is there already: the old one is not tried again.
        await d.send(queue_url, "now", JobId="job")
        with pytest.raises(fairturn.LeaseLost):
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
        ({"JobId": "first"}, "JobId 'first' occurs twice"),
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


async def test_a_database_that_is_away_fails_its_entries_only(variant: str, ours: Sqs) -> None:
    nowhere = f"postgresql://postgres@127.0.0.1:{servers.free_port()}/nowhere"
    queue_url = ours.queue()
    entries = [
        {"Id": "0", "MessageBody": "now"},
        {"Id": "1", "MessageBody": "later", "DelaySeconds": HOUR},
    ]
    async with opened(variant, ours, nowhere) as d:
        answer = await d.batch(queue_url, entries)
        assert [one["Id"] for one in answer["Successful"]] == ["0"]
        [failed] = answer["Failed"]
        assert (failed["Id"], failed["SenderFault"]) == ("1", False)
        assert failed["Code"] == "Fairturn.DatabaseUnavailable"
        with pytest.raises(fairturn.DatabaseUnavailable):
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
        until = due - 60_000_000
        memo = {"due": due, "tries": 1, "until": until}
        await leased[1].defer(at=moment(until), memo=memo)
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


async def test_a_name_instead_of_a_url_is_refused_before_anything_is_sent(
    door: Open, ours: Sqs
) -> None:
    queue_url = ours.queue()
    name = queue_url.rpartition("/")[2]
    async with door() as d:
        with pytest.raises(fairturn.InvalidArgument, match="not the queue's URL"):
            await d.send(name, "x", JobId="job")
        with pytest.raises(fairturn.InvalidArgument, match="not the queue's URL"):
            await d.batch(name, [{"Id": "1", "MessageBody": "x", "JobId": "job"}])
        await d.send(name, "without a job")
    assert [message["Body"] for message in ours.taken(queue_url)] == ["without a job"]


async def test_when_some_of_a_batch_is_sent_the_rest_is_told(door: Open, ours: Sqs) -> None:
    queue_url = ours.queue()
    late = [{"Id": id, "MessageBody": id, "DelaySeconds": HOUR} for id in "ab"]
    async with door() as d:
        await d.call("prepare", QueueUrl=queue_url)
        await d.queue(queue_url).set(policy=fairturn.Policy(max_size=1))
        answer = await d.batch(queue_url, [{"Id": "s", "MessageBody": "straight"}, *late])
        assert [one["Id"] for one in answer["Successful"]] == ["s"]
        assert [one["Id"] for one in answer["Failed"]] == ["a", "b"]
        with pytest.raises(fairturn.ChannelFull):
            await d.batch(queue_url, late)
        assert await d.count(queue_url) == 0
