"""Dead-letter queues, through Sqs.answer. Each test is named after the sentence of SQS.md that it
proves."""

from __future__ import annotations

import json
from typing import Any

from tests.conformance.door import Clock, unique
from tests.server.sqs_bench import HOST, Bench, arn_of, name_of, policy_to

# --- dead-letter queues -----------------------------------------------------------------------


async def test_a_redrive_policy_is_returned_as_sent_but_its_count_is_a_number(bench: Bench) -> None:
    dead = await bench.queue()
    as_sent = f'{{ "maxReceiveCount" : 3,  "deadLetterTargetArn" : "{arn_of(dead)}" }}'
    url = await bench.queue({"RedrivePolicy": as_sent})
    assert await bench.attributes(url, "RedrivePolicy") == {"RedrivePolicy": as_sent}
    await bench.set(url, RedrivePolicy=as_sent.replace("3", '"1"', 1))
    [text] = (await bench.attributes(url, "RedrivePolicy")).values()
    assert json.loads(text) == {"maxReceiveCount": 1, "deadLetterTargetArn": arn_of(dead)}
    settings = await bench.core(url).settings()
    assert (settings.dead_letter, settings.max_attempts) == (name_of(dead), 1)


async def test_the_target_of_a_redrive_policy_must_exist_and_be_of_the_same_type(
    bench: Bench,
) -> None:
    standard, fifo = await bench.queue(), await bench.queue({"FifoQueue": "true"})
    another = "Dead-letter queue must be same type of queue as the source.."
    for attributes, name, target, reason in (
        ({}, unique(), f"{HOST}/1/{unique()}", "Dead letter target does not exist."),
        ({}, unique(), fifo, another),
        ({"FifoQueue": "true"}, unique() + ".fifo", standard, another),
    ):
        text = policy_to(target)
        error = await bench.refusal(
            "CreateQueue", QueueName=name, Attributes={**attributes, "RedrivePolicy": text}
        )
        assert error.code == "InvalidParameterValue"
        start = f"Value {text} for parameter RedrivePolicy is invalid. Reason: "
        assert error.message == start + reason
    error = await bench.refusal(
        "SetQueueAttributes", QueueUrl=standard, Attributes={"RedrivePolicy": policy_to(standard)}
    )
    assert error.code == "InvalidParameterValue"
    for broken in ("x", "{}", '{"deadLetterTargetArn":"x","maxReceiveCount":1}'):
        error = await bench.refusal(
            "SetQueueAttributes", QueueUrl=standard, Attributes={"RedrivePolicy": broken}
        )
        assert error.code == "InvalidParameterValue"
    assert "RedrivePolicy" not in await bench.attributes(standard)


async def test_a_redrive_allow_policy_says_which_queues_may_use_it(bench: Bench) -> None:
    dead, friend, stranger = [await bench.queue() for _ in range(3)]
    allowed = {"redrivePermission": "byQueue", "sourceQueueArns": [arn_of(friend)]}
    await bench.set(dead, RedriveAllowPolicy=json.dumps(allowed))
    await bench.set(friend, RedrivePolicy=policy_to(dead))
    policy = {"RedrivePolicy": policy_to(dead)}
    error = await bench.refusal("SetQueueAttributes", QueueUrl=stranger, Attributes=policy)
    assert error.code == "InvalidParameterValue"
    assert "does not allow this queue" in error.message
    await bench.set(dead, RedriveAllowPolicy='{"redrivePermission":"denyAll"}')
    for url in (friend, stranger):
        error = await bench.refusal("SetQueueAttributes", QueueUrl=url, Attributes=policy)
        assert error.code == "InvalidParameterValue"
    await bench.set(dead, RedriveAllowPolicy='{"redrivePermission":"allowAll"}')
    await bench.set(stranger, RedrivePolicy=policy_to(dead))


async def test_a_queue_that_the_key_may_not_touch_is_no_target(bench: Bench) -> None:
    dead, url = await bench.queue(), await bench.queue()
    text = policy_to(dead)
    for action, where in (
        ("CreateQueue", {"QueueName": name_of(url) + "-2"}),
        ("SetQueueAttributes", {"QueueUrl": url}),
    ):
        error = await bench.refusal(
            action,
            **where,
            Attributes={"RedrivePolicy": text},
            allows=lambda action, queue: queue != name_of(dead),
        )
        assert error.message.endswith("Reason: Dead letter target does not exist.")


async def receive(bench: Bench, url: str, n: int = 1) -> list[Any]:
    answer = await bench(
        "ReceiveMessage",
        QueueUrl=url,
        MaxNumberOfMessages=n,
        AttributeNames=["All"],
        MessageAttributeNames=["All"],
        WaitTimeSeconds=0,
    )
    return answer.get("Messages", [])


async def test_a_receive_over_the_count_moves_and_may_return_the_next_message(
    bench: Bench,
) -> None:
    clock = Clock()
    bench.on(clock)
    dead = await bench.queue()
    url = await bench.queue({"RedrivePolicy": policy_to(dead, 2)})
    first = await bench("SendMessage", QueueUrl=url, MessageBody="first")
    for count in ("1", "2"):
        [message] = await receive(bench, url)
        assert message["Attributes"]["ApproximateReceiveCount"] == count
        clock.tick(30)
    await bench("SendMessage", QueueUrl=url, MessageBody="second")
    [message] = await receive(bench, url)
    assert message["Body"] == "second"
    [moved] = await receive(bench, dead)
    assert moved["MessageId"] == first["MessageId"]
    assert await receive(bench, url) == []


async def test_a_dead_letter_keeps_its_id_time_attributes_and_count_and_tells_its_source(
    bench: Bench,
) -> None:
    clock = Clock()
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench(
        "SendMessage",
        QueueUrl=url,
        MessageBody="x",
        MessageGroupId="tenant",
        MessageAttributes={"shape": {"DataType": "String", "StringValue": "round"}},
    )
    clock.tick(5)
    [before] = await receive(bench, url)
    assert "DeadLetterQueueSourceArn" not in before["Attributes"]
    clock.tick(30)
    assert await receive(bench, url) == []
    [after] = await receive(bench, dead)
    for kept in ("MessageId", "Body", "MessageAttributes", "MD5OfMessageAttributes"):
        assert after[kept] == before[kept]
    assert after["Attributes"] == before["Attributes"] | {
        "ApproximateReceiveCount": "2",
        "DeadLetterQueueSourceArn": arn_of(url),
    }


async def test_a_message_released_with_visibility_0_dies_as_any_other(bench: Bench) -> None:
    url, dead = await bench.dead_letters()
    await bench("SendMessage", QueueUrl=url, MessageBody="x")
    [message] = await receive(bench, url)
    await bench(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=message["ReceiptHandle"],
        VisibilityTimeout=0,
    )
    assert await receive(bench, url) == []
    [moved] = await receive(bench, dead)
    assert moved["MessageId"] == message["MessageId"]


async def test_without_a_redrive_policy_a_message_is_received_for_ever(bench: Bench) -> None:
    url = await bench.queue({"VisibilityTimeout": "0"})
    await bench.core(url).send("x")
    for _ in range(20):
        [message] = await bench.core(url).receive()
        assert message.body == "x"


async def test_dead_letter_source_queues_are_listed_page_by_page(bench: Bench) -> None:
    dead, other = await bench.queue(), await bench.queue()
    await bench.queue({"RedrivePolicy": policy_to(other)})
    urls = sorted([await bench.queue({"RedrivePolicy": policy_to(dead)}) for _ in range(3)])
    assert await bench("ListDeadLetterSourceQueues", QueueUrl=dead) == {
        "queueUrls": urls,
        "NextToken": None,
    }
    first = await bench("ListDeadLetterSourceQueues", QueueUrl=dead, MaxResults=2)
    assert first["queueUrls"] == urls[:2]
    token = first["NextToken"]
    rest = {"MaxResults": 2, "NextToken": token}
    assert await bench("ListDeadLetterSourceQueues", QueueUrl=dead, **rest) == {
        "queueUrls": urls[2:],
        "NextToken": None,
    }
    error = await bench.refusal("ListDeadLetterSourceQueues", QueueUrl=other, **rest)
    assert "must not change the other request parameters" in error.message
    ask = bench.ask(
        "ListDeadLetterSourceQueues",
        QueueUrl=dead,
        allows=lambda action, queue: queue == name_of(urls[1]),
    )
    assert await bench.sqs.answer(ask) == {"queueUrls": [urls[1]], "NextToken": None}
    await bench.set(urls[0], RedrivePolicy="")
    await bench("DeleteQueue", QueueUrl=urls[1])
    left = await bench("ListDeadLetterSourceQueues", QueueUrl=dead)
    assert left["queueUrls"] == urls[2:]
