"""ReceiveMessage; the names of the tests are the sentences they prove."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fairturn.server.sqs.traffic.inflight_limit import Caps
from fairturn.sqs import bodies, receipt_handles
from fairturn.sqs.md5 import of_attributes
from tests.server.sqs_desk import START, Desk, arn_of, everywhere

ALL = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}


def text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


# --- what is shown ---


@everywhere()
async def test_an_empty_receive_has_no_messages_at_all(desk: Desk) -> None:
    url = await desk.queue()
    assert await desk.ask("ReceiveMessage", QueueUrl=url) == {}


@everywhere()
async def test_without_being_asked_a_message_shows_no_attributes(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url, MessageAttributes={"a": text("x")})
    [message] = await desk.receive(url)
    assert set(message) == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}


@everywhere(clock=True)
async def test_system_attributes_of_a_message_on_a_standard_queue(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url)
    desk.clock.move(7.5)
    await desk.receive(url, VisibilityTimeout=0)
    desk.clock.move(2)
    [message] = await desk.receive(url, **ALL)
    assert message["Attributes"] == {
        "SenderId": bodies.ANONYMOUS,
        "SentTimestamp": str(START * 1000),
        "ApproximateReceiveCount": "2",
        "ApproximateFirstReceiveTimestamp": str(START * 1000 + 7500),
    }


@everywhere()
async def test_sender_id_is_who_sent_it(desk: Desk) -> None:
    url = await desk.queue()
    await desk.ask("SendMessage", QueueUrl=url, MessageBody="x", sender="AIDASOMEBODY")
    [message] = await desk.receive(url, AttributeNames=["SenderId"])
    assert message["Attributes"] == {"SenderId": "AIDASOMEBODY"}


@everywhere(backends=["sqlite"])
async def test_attribute_names_and_message_system_attribute_names_are_unioned(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url)
    [message] = await desk.receive(
        url,
        AttributeNames=["SenderId", "VisibilityTimeout"],  # the latter is a queue's
        MessageSystemAttributeNames=["ApproximateReceiveCount"],
    )
    assert set(message["Attributes"]) == {"SenderId", "ApproximateReceiveCount"}


@everywhere(backends=["sqlite"])
async def test_an_unknown_attribute_name_is_refused(desk: Desk) -> None:
    url = await desk.queue()
    refused = await desk.refused("ReceiveMessage", QueueUrl=url, AttributeNames=["Colour"])
    assert refused.code == "InvalidAttributeName"


@everywhere()
async def test_the_md5_of_attributes_is_over_the_returned_subset(desk: Desk) -> None:
    url = await desk.queue(VisibilityTimeout=0)
    sent = {"Bar.one": text("1"), "Bar.two": text("2"), "foo": text("3")}
    await desk.send(url, MessageAttributes=sent)
    for names, expected in [
        (["All"], set(sent)),
        ([".*"], set(sent)),
        (["*"], set(sent)),
        (["Bar.*"], {"Bar.one", "Bar.two"}),
        (["foo", "Bar.two"], {"foo", "Bar.two"}),
        (["foo", "AWS.", "bad name"], {"foo"}),  # illegal names are ignored
        (["nothing"], set()),
    ]:
        [message] = await desk.receive(url, MessageAttributeNames=names)
        shown = message.get("MessageAttributes", {})
        assert shown == {name: sent[name] for name in expected}
        assert message.get("MD5OfMessageAttributes") == of_attributes(shown)
        assert ("MessageAttributes" in message) == bool(expected)


@everywhere()
async def test_what_the_library_sends_is_received(desk: Desk) -> None:
    url = await desk.queue()
    queue = desk.core(url)
    sent = {
        await queue.send({"a": 1}, headers={"trace": "t", "n": 7, "bad name": "x"}): '{"a":1}',
        await queue.send("a text"): "a text",
        await queue.send(b"\xff\x00"): "/wA=",
        await queue.send(b"plain"): "plain",
        await queue.send(None): "null",
    }
    got = {}
    for message in await desk.receive(url, **ALL):
        got[receipt_handles.id_of(message["MessageId"])] = message["Body"]
        if message["Body"] == '{"a":1}':
            assert message["MessageAttributes"] == {
                "trace": text("t"),
                "n": {"DataType": "Number", "StringValue": "7"},
            }
    assert got == sent


# --- how many, how long ---


@everywhere()
async def test_at_most_ten_messages_and_one_unless_said(desk: Desk) -> None:
    url = await desk.queue()
    for n in range(12):
        await desk.send(url, str(n))
    answer = await desk.ask("ReceiveMessage", QueueUrl=url)
    assert len(answer["Messages"]) == 1
    assert len(await desk.receive(url, 10)) == 10
    for bad in (0, 11, -1):
        refused = await desk.refused("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=bad)
        assert refused.code == "InvalidParameterValue"
        assert refused.message == (
            f"Value {bad} for parameter MaxNumberOfMessages is invalid. "
            "Reason: Must be between 1 and 10, if provided."
        )


@everywhere(backends=["sqlite"])
async def test_visibility_is_0_to_43200_and_wait_0_to_20(desk: Desk) -> None:
    url = await desk.queue()
    for name, bad in [("VisibilityTimeout", 43_201), ("VisibilityTimeout", -1)]:
        refused = await desk.refused("ReceiveMessage", QueueUrl=url, **{name: bad})
        assert refused.code == "InvalidParameterValue"
    for bad in (-1, 21):
        refused = await desk.refused("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=bad)
        assert refused.code == "InvalidParameterValue"
    assert await desk.receive(url, VisibilityTimeout=43_200) == []


@everywhere(clock=True)
async def test_a_received_message_is_invisible_until_its_visibility_ends(desk: Desk) -> None:
    url = await desk.queue(VisibilityTimeout=30)
    await desk.send(url)
    [first] = await desk.receive(url)
    assert await desk.receive(url) == []
    assert await desk.counts(url) == (0, 1, 0)
    desk.clock.move(29.999)  # deadlines are sub-second precise
    assert await desk.receive(url) == []
    desk.clock.move(0.001)
    assert await desk.counts(url) == (1, 0, 0)
    [second] = await desk.receive(url)
    assert second["MessageId"] == first["MessageId"]
    assert second["ReceiptHandle"] != first["ReceiptHandle"]  # one per receive


@everywhere(clock=True)
async def test_the_visibility_of_a_receive_overrides_the_queues(desk: Desk) -> None:
    url = await desk.queue(VisibilityTimeout=30)
    await desk.send(url)
    await desk.receive(url, VisibilityTimeout=5)
    desk.clock.move(5)
    assert len(await desk.receive(url)) == 1


@everywhere()
async def test_visibility_0_on_receive_leaves_it_visible(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url)
    for count in "123":
        [message] = await desk.receive(url, VisibilityTimeout=0, AttributeNames=["All"])
        assert message["Attributes"]["ApproximateReceiveCount"] == count
        assert await desk.counts(url) == (1, 0, 0)


@everywhere()
async def test_two_concurrent_receivers_never_get_the_same_message(desk: Desk) -> None:
    url = await desk.queue()
    entries = [[{"Id": f"e{n}", "MessageBody": "x"} for n in range(10)]] * 30
    await asyncio.gather(
        *(desk.ask("SendMessageBatch", QueueUrl=url, Entries=batch) for batch in entries)
    )
    got: list[str] = []

    async def receiver() -> None:
        while messages := await desk.receive(url, 7):
            got.extend(message["MessageId"] for message in messages)

    await asyncio.gather(*(receiver() for _ in range(8)))
    while messages := await desk.receive(url):  # what a locked row hid from the last of them
        got.extend(message["MessageId"] for message in messages)
    assert len(got) == len(set(got)) == 300


@everywhere()
async def test_gathered_receivers_have_no_more_than_they_asked_for(desk: Desk) -> None:
    url = await desk.queue()
    for n in range(20):
        await desk.send(url, str(n))
    counts = [1, 3, 10, 2, 1, 1, 1, 1]
    got = await asyncio.gather(*(desk.receive(url, n) for n in counts))
    assert all(len(messages) <= n for messages, n in zip(got, counts, strict=True))
    assert sum(map(len, got)) == sum(counts)
    ids = [message["MessageId"] for messages in got for message in messages]
    assert len(set(ids)) == len(ids)


# --- counts and retention ---


@everywhere(clock=True)
async def test_counts_are_exact_and_immediate(desk: Desk) -> None:
    url = await desk.queue(VisibilityTimeout=10)
    for n in range(5):
        await desk.send(url, DelaySeconds=0 if n else 60)
    assert await desk.counts(url) == (4, 0, 1)
    messages = await desk.receive(url, 3)
    assert await desk.counts(url) == (1, 3, 1)
    await desk.delete(url, messages[0])
    assert await desk.counts(url) == (1, 2, 1)
    await desk.change(url, messages[1], 0)
    assert await desk.counts(url) == (2, 1, 1)
    desk.clock.move(10)
    assert await desk.counts(url) == (3, 0, 1)
    desk.clock.move(50)
    assert await desk.counts(url) == (4, 0, 0)
    await desk.ask("PurgeQueue", QueueUrl=url)
    assert await desk.counts(url) == (0, 0, 0)


@everywhere(clock=True)
async def test_retention_counts_from_send_and_also_removes_in_flight(desk: Desk) -> None:
    url = await desk.queue(MessageRetentionPeriod=60, VisibilityTimeout=300)
    await desk.send(url, "waits", DelaySeconds=20)
    await desk.send(url, "in flight")
    assert await desk.bodies(url) == ["in flight"]
    desk.clock.move(59.999)
    assert await desk.counts(url) == (1, 1, 0)
    desk.clock.move(0.001)
    assert await desk.counts(url) == (0, 0, 0)
    desk.clock.move(300)
    assert await desk.receive(url) == []


# --- dead letters ---


async def with_dead_letters(desk: Desk, most: int, **attributes: Any) -> tuple[str, str]:
    dead = await desk.queue(**attributes)
    policy = json.dumps({"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": most})
    return await desk.queue(RedrivePolicy=policy, **attributes), dead


@everywhere(clock=True)
async def test_when_a_receive_would_exceed_max_receive_count_it_moves_instead(desk: Desk) -> None:
    url, dead = await with_dead_letters(desk, 2)
    sent = await desk.send(url, "poison", MessageAttributes={"a": text("x")})
    for count in "12":
        [message] = await desk.receive(url, AttributeNames=["All"])
        assert message["Attributes"]["ApproximateReceiveCount"] == count
        desk.clock.move(30)
    await desk.send(url, "next")
    assert await desk.bodies(url) == ["next"]  # by the same call
    assert await desk.counts(dead) == (1, 0, 0)
    [message] = await desk.receive(dead, **ALL)
    assert message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == {"a": text("x")}
    attributes = message["Attributes"]
    assert attributes["SentTimestamp"] == str(START * 1000)
    assert attributes["ApproximateReceiveCount"] == "3"  # count + 1
    assert attributes["DeadLetterQueueSourceArn"] == arn_of(url)


@everywhere()
async def test_without_a_redrive_policy_it_is_received_for_ever(desk: Desk) -> None:
    url = await desk.queue(VisibilityTimeout=0)
    await desk.send(url)
    for count in range(1, 30):
        [message] = await desk.receive(url, AttributeNames=["ApproximateReceiveCount"])
        assert message["Attributes"] == {"ApproximateReceiveCount": str(count)}


@everywhere()
async def test_a_message_made_visible_by_its_receiver_dies_as_well(desk: Desk) -> None:
    url, dead = await with_dead_letters(desk, 1)
    await desk.send(url)
    [message] = await desk.receive(url)
    await desk.change(url, message, 0)
    assert await desk.receive(url) == []
    assert len(await desk.receive(dead)) == 1


# --- the in-flight cap ---


@everywhere()
async def test_at_the_in_flight_cap_a_short_poll_is_over_limit(desk: Desk) -> None:
    desk.sqs.traffic.inflight_limit.caps = Caps(standard=5, fifo=5)
    url = await desk.queue()
    for n in range(8):
        await desk.send(url, str(n))
    messages = await desk.receive(url, 10)
    assert len(messages) == 5
    refused = await desk.refused("ReceiveMessage", QueueUrl=url)
    assert (refused.code, refused.status) == ("OverLimit", 403)
    await desk.delete(url, messages[0])
    assert len(await desk.receive(url, 10)) == 1


@everywhere()
async def test_at_the_in_flight_cap_a_long_poll_waits_for_a_delete(desk: Desk) -> None:
    desk.sqs.traffic.inflight_limit.caps = Caps(standard=1, fifo=1)
    url = await desk.queue()
    await desk.send(url, "one")
    await desk.send(url, "two")
    [first] = await desk.receive(url)
    assert await desk.receive(url, WaitTimeSeconds=1) == []  # no error
    poll = asyncio.create_task(desk.bodies(url, WaitTimeSeconds=20))
    await desk.polling(url, 1)
    await desk.delete(url, first)
    assert await poll in (["one"], ["two"])


@everywhere()
async def test_at_the_in_flight_cap_a_fifo_queue_is_empty(desk: Desk) -> None:
    desk.sqs.traffic.inflight_limit.caps = Caps(standard=9, fifo=2)
    url = await desk.queue(fifo=True)
    for group in "abc":
        await desk.send_to(url, group, group)
    messages = await desk.receive(url, 10)
    assert len(messages) == 2
    assert await desk.receive(url) == []
    await desk.delete(url, messages[0])
    assert len(await desk.receive(url)) == 1


@everywhere(clock=True)
async def test_visibility_that_ends_makes_room_below_the_cap(desk: Desk) -> None:
    desk.sqs.traffic.inflight_limit.caps = Caps(standard=2, fifo=2)
    url = await desk.queue(VisibilityTimeout=30)
    for n in range(4):
        await desk.send(url, str(n))
    assert len(await desk.receive(url, 10)) == 2
    desk.clock.move(30)
    assert len(await desk.receive(url, 10)) == 2
