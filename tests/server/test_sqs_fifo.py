"""FIFO queues: order, duplicates, sequence numbers, attempt ids; the names are the sentences."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any
from unittest.mock import patch

from fairturn.server.sqs.actions import receive
from tests.server.sqs_desk import Desk, arn_of, everywhere

EXPIRED = "The receipt handle has expired."
ALL = {"AttributeNames": ["All"]}


# --- what must be there ---


@everywhere(backends=["sqlite"])
async def test_a_message_needs_a_group_and_something_to_deduplicate_by(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    refused = await desk.refused(
        "SendMessage", QueueUrl=url, MessageBody="x", MessageDeduplicationId="1"
    )
    assert refused.code == "MissingParameter"
    assert refused.message == "The request must contain the parameter MessageGroupId."
    refused = await desk.refused("SendMessage", QueueUrl=url, MessageBody="x", MessageGroupId="g")
    assert refused.code == "InvalidParameterValue"
    assert refused.message == (
        "The queue should either have ContentBasedDeduplication enabled or "
        "MessageDeduplicationId provided explicitly"
    )


@everywhere()
async def test_a_missing_group_or_dedup_id_fails_the_whole_batch(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    good = {"Id": "a", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    for lacking in ("MessageGroupId", "MessageDeduplicationId"):
        other = {key: value for key, value in good.items() if key != lacking} | {"Id": "b"}
        refused = await desk.refused("SendMessageBatch", QueueUrl=url, Entries=[good, other])
        assert refused.code in ("MissingParameter", "InvalidParameterValue")
    assert await desk.counts(url) == (0, 0, 0)


@everywhere(backends=["sqlite"])
async def test_group_and_dedup_ids_are_1_to_128_alnum_and_punctuation(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    given: dict[str, Any] = {"QueueUrl": url, "MessageBody": "x"}
    ids = {"MessageGroupId": "!~" * 64, "MessageDeduplicationId": "`{|}" * 32}
    await desk.ask("SendMessage", **given, **ids)
    for name in ids:
        for bad in ("a b", "x" * 129, "é"):
            refused = await desk.refused("SendMessage", **given, **(ids | {name: bad}))
            assert refused.code == "InvalidParameterValue"


@everywhere(clock=True)
async def test_a_delay_per_message_above_0_is_rejected_and_0_is_the_queues(desk: Desk) -> None:
    url = await desk.queue(fifo=True, DelaySeconds=10)
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "1"}
    refused = await desk.refused(
        "SendMessage", QueueUrl=url, MessageBody="x", DelaySeconds=5, **ids
    )
    assert refused.code == "InvalidParameterValue"
    assert refused.message == (
        "Value 5 for parameter DelaySeconds is invalid. Reason: The request include parameter "
        "that is not valid for this queue type."
    )
    await desk.send(url, DelaySeconds=0, **ids)
    assert await desk.counts(url) == (0, 0, 1)
    desk.clock.move(10)
    assert len(await desk.receive(url)) == 1


# --- order ---


@everywhere()
async def test_a_group_is_given_in_the_order_of_its_sequence(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    await desk.send_to(url, "g", *map(str, range(15)))
    got: list[Any] = []
    while messages := await desk.receive(url, 4, **ALL):
        got += messages
        for message in messages:
            await desk.delete(url, message)
    assert [message["Body"] for message in got] == list(map(str, range(15)))
    numbers = [message["Attributes"]["SequenceNumber"] for message in got]
    assert numbers == sorted(set(numbers))


@everywhere()
async def test_sequence_numbers_are_strictly_increasing_twenty_digit_strings(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    sent = await desk.send_to(url, "g", *"abc")
    entries = [
        {"Id": id, "MessageBody": id, "MessageGroupId": "h", "MessageDeduplicationId": id}
        for id in "de"
    ]
    answer = await desk.ask("SendMessageBatch", QueueUrl=url, Entries=entries)
    numbers = [one["SequenceNumber"] for one in sent + answer["Successful"]]
    assert all(len(number) == 20 and number.isdigit() for number in numbers)
    assert numbers == sorted(set(numbers))
    shown = {m["Attributes"]["SequenceNumber"] for m in await desk.receive(url, **ALL)}
    assert shown == set(numbers)


@everywhere()
async def test_a_batch_is_filled_from_one_group_before_the_next(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    for n in range(4):
        for group in "abc":
            await desk.send_to(url, group, f"{group}{n}")
    got = await desk.bodies(url, 10)
    assert len(got) == 10
    assert [body[0] for body in got] == sorted(body[0] for body in got)
    for group in "abc":
        own = [body for body in got if body[0] == group]
        assert own == [f"{group}{n}" for n in range(len(own))]


@everywhere()
async def test_a_group_in_flight_gives_nothing_and_others_do(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    await desk.send_to(url, "a", "a1", "a2")
    await desk.send_to(url, "b", "b1")
    [first] = await desk.receive(url, 1)
    rest = await desk.receive(url, 10)
    assert [first["Body"][0], *(message["Body"][0] for message in rest)] in (
        ["a", "b"],
        ["b", "a", "a"],
    )
    assert await desk.receive(url) == []


@everywhere()
async def test_a_group_unlocks_on_delete_and_on_visibility_0(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    await desk.send_to(url, "g", "1", "2")
    [first] = await desk.receive(url, 1)
    assert await desk.receive(url) == []
    await desk.change(url, first, 0)
    [first] = await desk.receive(url, 1)
    assert first["Body"] == "1"  # in its place again
    await desk.delete(url, first)
    assert await desk.bodies(url) == ["2"]


@everywhere(clock=True)
async def test_a_group_goes_on_where_it_was_when_visibility_ends(desk: Desk) -> None:
    url = await desk.queue(fifo=True, VisibilityTimeout=30)
    await desk.send_to(url, "g", "1", "2", "3")
    assert await desk.bodies(url, 2) == ["1", "2"]
    desk.clock.move(30)
    assert await desk.bodies(url, 10) == ["1", "2", "3"]


@everywhere(clock=True)
async def test_order_holds_with_many_receivers_and_random_expiries(desk: Desk) -> None:
    url = await desk.queue(fifo=True, VisibilityTimeout=10)
    groups = {f"g{n}": [f"g{n} {i}" for i in range(12)] for n in range(5)}
    for group, texts in groups.items():
        await desk.send_to(url, group, *texts)
    draw = random.Random(7)
    done: dict[str, list[str]] = {group: [] for group in groups}

    async def receiver() -> None:
        for message in await desk.receive(url, draw.randint(1, 4)):
            group = message["Body"].split()[0]
            if draw.random() < 0.3:
                return  # it dies, with the rest of its batch
            done[group].append(message["Body"])
            await desk.delete(url, message)

    while sum(map(len, done.values())) < 60:
        await asyncio.gather(*(receiver() for _ in range(8)))
        desk.clock.move(10)
    assert done == groups


# --- receipt handles ---


@everywhere(clock=True)
async def test_delete_after_expiry_is_refused_on_fifo(desk: Desk) -> None:
    url = await desk.queue(fifo=True, VisibilityTimeout=10)
    await desk.send_to(url, "g", "1")
    [message] = await desk.receive(url)
    desk.clock.move(10)
    handle = message["ReceiptHandle"]
    refused = await desk.refused("DeleteMessage", QueueUrl=url, ReceiptHandle=handle)
    assert refused.code == "InvalidParameterValue"
    assert refused.message == (
        f"Value {handle} for parameter ReceiptHandle is invalid. Reason: {EXPIRED}"
    )
    [again] = await desk.receive(url)
    entries = [
        {"Id": "old", "ReceiptHandle": handle},
        {"Id": "new", "ReceiptHandle": again["ReceiptHandle"]},
    ]
    answer = await desk.ask("DeleteMessageBatch", QueueUrl=url, Entries=entries)
    assert answer["Successful"] == [{"Id": "new"}]
    assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [
        ("old", "InvalidParameterValue")
    ]
    assert await desk.counts(url) == (0, 0, 0)
    await desk.delete(url, message)  # deleted already: as good as deleted


@everywhere(clock=True)
async def test_change_after_expiry_is_refused_on_fifo(desk: Desk) -> None:
    url = await desk.queue(fifo=True, VisibilityTimeout=10)
    await desk.send_to(url, "g", "1")
    [message] = await desk.receive(url)
    await desk.change(url, message, 20)
    desk.clock.move(20)
    refused = await desk.refused(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=message["ReceiptHandle"],
        VisibilityTimeout=10,
    )
    assert refused.code == "InvalidParameterValue"
    assert len(await desk.receive(url)) == 1


# --- duplicates ---


@everywhere(clock=True)
async def test_a_dedup_id_is_remembered_for_5_minutes_and_survives_delete(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "1"}
    first = await desk.send(url, "one", **ids)
    desk.clock.move(299.999)
    again = await desk.send(url, "other body", **ids)
    assert again["MessageId"] == first["MessageId"]  # success
    assert again["SequenceNumber"] == first["SequenceNumber"]
    [message] = await desk.receive(url, **ALL)
    assert message["Body"] == "one"
    assert message["Attributes"]["MessageDeduplicationId"] == "1"
    assert message["Attributes"]["MessageGroupId"] == "g"
    await desk.delete(url, message)
    assert (await desk.send(url, **ids))["MessageId"] == first["MessageId"]
    assert await desk.counts(url) == (0, 0, 0)
    desk.clock.move(0.001)
    later = await desk.send(url, "two", **ids)
    assert later["MessageId"] != first["MessageId"]
    assert await desk.bodies(url) == ["two"]


@everywhere()
async def test_purge_clears_what_was_remembered(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "1"}
    await desk.send(url, **ids)
    await desk.ask("PurgeQueue", QueueUrl=url)
    await desk.send(url, "again", **ids)
    assert await desk.bodies(url) == ["again"]


@everywhere()
async def test_content_is_sha256_and_shares_the_namespace_with_explicit_ids(desk: Desk) -> None:
    url = await desk.queue(fifo=True, ContentBasedDeduplication="true")
    first = await desk.send(url, "hello", MessageGroupId="g")
    again = await desk.send(url, "hello", MessageGroupId="h")
    digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    explicit = await desk.send(url, "x", MessageGroupId="g", MessageDeduplicationId=digest)
    assert first["MessageId"] == again["MessageId"] == explicit["MessageId"]
    other = await desk.send(url, "hello", MessageGroupId="g", MessageDeduplicationId="own")
    assert other["MessageId"] != first["MessageId"]
    shown = [m["Attributes"]["MessageDeduplicationId"] for m in await desk.receive(url, **ALL)]
    assert shown == [digest, "own"]


@everywhere()
async def test_scope_is_the_queue_by_default(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    for group in "ab":
        await desk.send(url, MessageGroupId=group, MessageDeduplicationId="1")
    assert await desk.counts(url) == (1, 0, 0)


@everywhere()
async def test_scope_message_group_at_creation_and_later_changes_do_not_alter_it(
    desk: Desk,
) -> None:
    url = await desk.queue(
        fifo=True, DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId"
    )
    for group in "aabb":
        await desk.send(url, MessageGroupId=group, MessageDeduplicationId="1")
    assert await desk.counts(url) == (2, 0, 0)
    attributes = {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}
    await desk.ask("SetQueueAttributes", QueueUrl=url, Attributes=attributes)
    await desk.send(url, MessageGroupId="c", MessageDeduplicationId="1")
    assert await desk.counts(url) == (3, 0, 0)


@everywhere()
async def test_duplicates_within_a_batch_are_successes_of_one_message(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    entries = [
        {"Id": id, "MessageBody": id, "MessageGroupId": "g", "MessageDeduplicationId": "1"}
        for id in "abc"
    ]
    answer = await desk.ask("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["a", "b", "c"]
    assert len({one["MessageId"] for one in answer["Successful"]}) == 1
    assert await desk.bodies(url) == ["a"]


@everywhere()
async def test_racing_senders_of_one_id_make_one_message(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "1"}
    answers = await asyncio.gather(*(desk.send(url, str(n), **ids) for n in range(40)))
    assert len({answer["MessageId"] for answer in answers}) == 1
    assert await desk.counts(url) == (1, 0, 0)


# --- dead letters ---


@everywhere(clock=True)
async def test_a_fifo_dead_letter_unblocks_its_group_and_its_dedup_id_becomes_its_id(
    desk: Desk,
) -> None:
    dead = await desk.queue(fifo=True)
    policy = json.dumps({"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": 1})
    url = await desk.queue(fifo=True, RedrivePolicy=policy, VisibilityTimeout=10)
    [sent] = await desk.send_to(url, "g", "poison", MessageDeduplicationId="own")
    await desk.send_to(url, "g", "next")
    assert await desk.bodies(url, 1) == ["poison"]
    assert await desk.bodies(url, 1) == []
    desk.clock.move(10)
    assert await desk.bodies(url, 1) == ["next"]
    [message] = await desk.receive(dead, **ALL)
    attributes = message["Attributes"]
    assert message["MessageId"] == sent["MessageId"]
    assert attributes["MessageDeduplicationId"] == sent["MessageId"]
    assert attributes["MessageGroupId"] == "g"
    assert attributes["DeadLetterQueueSourceArn"] == arn_of(url)
    assert attributes["ApproximateReceiveCount"] == "2"


# --- attempt ids ---


@everywhere(clock=True)
async def test_the_same_attempt_id_gives_the_same_messages_and_handles_again(desk: Desk) -> None:
    url = await desk.queue(fifo=True, VisibilityTimeout=30)
    await desk.send_to(url, "g", "1", "2", "3")
    first = await desk.receive(url, 2, ReceiveRequestAttemptId="a")
    desk.clock.move(20)
    with patch.object(receive, "time") as later:
        later.time = lambda: time.time() + 20
        again = await desk.receive(url, 2, ReceiveRequestAttemptId="a")
    assert again == first
    desk.clock.move(20)  # its visibility was reset
    assert await desk.receive(url) == []
    assert await desk.receive(url, 2, ReceiveRequestAttemptId="b") == []
    for message in again:
        await desk.delete(url, message)
    assert await desk.bodies(url, ReceiveRequestAttemptId="a") == ["3"]  # ordinary again


@everywhere(clock=True)
async def test_an_attempt_is_not_repeated_once_something_was_deleted_or_changed(
    desk: Desk,
) -> None:
    for change in ("delete", "visibility", "expiry", "window"):
        url = await desk.queue(fifo=True, VisibilityTimeout=1000 if change == "window" else 30)
        await desk.send_to(url, "g", "1", "2")
        await desk.send_to(url, "h", "other")
        messages = await desk.receive(url, 2, ReceiveRequestAttemptId="a")
        assert [message["Body"] for message in messages] in (["1", "2"], ["other", "1"])
        if change == "delete":
            await desk.delete(url, messages[0])
        elif change == "visibility":
            await desk.change(url, messages[0], 29)
        elif change == "window":
            desk.clock.move(300)
        else:
            desk.clock.move(30)
            await desk.receive(url)
        again = await desk.bodies(url, ReceiveRequestAttemptId="a")
        assert not {message["Body"] for message in messages} & set(again)


@everywhere(backends=["sqlite"])
async def test_an_attempt_id_is_checked_and_for_fifo_only(desk: Desk) -> None:
    for fifo, attempt in [(True, "a b"), (False, "a")]:
        url = await desk.queue(fifo=fifo)
        refused = await desk.refused(
            "ReceiveMessage", QueueUrl=url, ReceiveRequestAttemptId=attempt
        )
        assert refused.code == "InvalidParameterValue"


@everywhere()
async def test_an_attempt_that_found_nothing_is_not_remembered(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    assert await desk.receive(url, ReceiveRequestAttemptId="a") == []
    await desk.send_to(url, "g", "1")
    assert await desk.bodies(url, ReceiveRequestAttemptId="a") == ["1"]
