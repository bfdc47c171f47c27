"""Attributes of queues, through Sqs.answer. Each test is named after the sentence of SQS.md that it
proves."""

from __future__ import annotations

from tests.conformance.door import Clock, unique
from tests.server.sqs_bench import Bench, arn_of, name_of, policy_to

MISSING = "AWS.SimpleQueueService.NonExistentQueue"


# --- attributes -------------------------------------------------------------------------------


async def test_defaults_of_a_standard_queue(bench: Bench) -> None:
    url = await bench.queue()
    found = await bench.attributes(url)
    assert found.pop("CreatedTimestamp") == found.pop("LastModifiedTimestamp")
    assert found == {
        "QueueArn": arn_of(url),
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "DelaySeconds": "0",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "true",
        "VisibilityTimeout": "30",
    }


async def test_defaults_of_a_fifo_queue(bench: Bench) -> None:
    url = await bench.queue({"FifoQueue": "true"})
    found = await bench.attributes(url)
    assert {name: found[name] for name in found.keys() - await standard(bench)} == {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "false",
        "DeduplicationScope": "queue",
        "FifoThroughputLimit": "perQueue",
    }


async def standard(bench: Bench) -> set[str]:
    return set(await bench.attributes(await bench.queue()))


async def test_every_attribute_is_returned_as_it_was_set(bench: Bench) -> None:
    given = {
        "DelaySeconds": "900",
        "MaximumMessageSize": "1024",
        "MessageRetentionPeriod": "1209600",
        "ReceiveMessageWaitTimeSeconds": "20",
        "VisibilityTimeout": "43200",
        "Policy": '{ "Version" : "2012-10-17" }',
        "RedriveAllowPolicy": '{"redrivePermission" : "denyAll"}',
        "SqsManagedSseEnabled": "false",
    }
    for url in (await bench.queue(given), await bench.queue()):
        await bench.set(url, **given)
        assert await bench.attributes(url, *given) == given
    settings = await bench.core(url).settings()
    assert (settings.lease, settings.expires) == (43_200, 1_209_600)
    await bench.set(url, DelaySeconds="007")
    assert await bench.attributes(url, "DelaySeconds") == {"DelaySeconds": "7"}


async def test_set_queue_attributes_leaves_the_others_as_they_are(bench: Bench) -> None:
    url = await bench.queue({"DelaySeconds": "5", "VisibilityTimeout": "5"})
    before = await bench.attributes(url)
    await bench.set(url, ReceiveMessageWaitTimeSeconds="3")
    after = await bench.attributes(url)
    assert after.pop("LastModifiedTimestamp") >= before.pop("LastModifiedTimestamp")
    assert after == before | {"ReceiveMessageWaitTimeSeconds": "3"}


async def test_last_modified_is_when_the_attributes_were_set(bench: Bench) -> None:
    clock = Clock()
    bench.on(clock)
    url = await bench.queue()
    created = str(int(clock.seconds))
    clock.tick(100)
    await bench.set(url, DelaySeconds="1")
    assert await bench.attributes(url, "CreatedTimestamp", "LastModifiedTimestamp") == {
        "CreatedTimestamp": created,
        "LastModifiedTimestamp": str(int(clock.seconds)),
    }


async def test_a_bad_attribute_changes_nothing(bench: Bench) -> None:
    url = await bench.queue()
    for name, value, code in (
        ("VisibilityTimeout", "43201", "InvalidAttributeValue"),
        ("MessageRetentionPeriod", "59", "InvalidAttributeValue"),
        ("Nonsense", "1", "InvalidAttributeName"),
        ("QueueArn", "1", "InvalidAttributeName"),
    ):
        attributes = {"DelaySeconds": "9", name: value}
        error = await bench.refusal("SetQueueAttributes", QueueUrl=url, Attributes=attributes)
        assert error.code == code
    assert await bench.attributes(url, "DelaySeconds") == {"DelaySeconds": "0"}
    name = unique()
    await bench.refusal("CreateQueue", QueueName=name, Attributes={"DelaySeconds": "-1"})
    assert (await bench.refusal("GetQueueUrl", QueueName=name)).code == MISSING


async def test_setting_a_kms_key_flips_sqs_managed_sse_to_false(bench: Bench) -> None:
    names = ("KmsMasterKeyId", "SqsManagedSseEnabled")
    created = await bench.queue({"KmsMasterKeyId": "0042"})
    url = await bench.queue()
    await bench.set(url, KmsMasterKeyId="0042")
    for one in (created, url):
        found = await bench.attributes(one, *names)
        assert found == {"KmsMasterKeyId": "0042", "SqsManagedSseEnabled": "false"}
    await bench.set(url, SqsManagedSseEnabled="true")
    assert await bench.attributes(url, *names) == {"SqsManagedSseEnabled": "true"}


async def test_kms_attributes_vanish_at_their_defaults(bench: Bench) -> None:
    names = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds")
    url = await bench.queue({"KmsMasterKeyId": "key", "KmsDataKeyReusePeriodSeconds": "600"})
    assert await bench.attributes(url, *names) == {
        "KmsMasterKeyId": "key",
        "KmsDataKeyReusePeriodSeconds": "600",
    }
    await bench.set(url, KmsMasterKeyId="", KmsDataKeyReusePeriodSeconds="300")
    assert await bench.attributes(url, *names) == {}


async def test_an_empty_policy_or_redrive_policy_removes_it(bench: Bench) -> None:
    dead = await bench.queue()
    url = await bench.queue(
        {
            "Policy": "{}",
            "RedrivePolicy": policy_to(dead),
            "RedriveAllowPolicy": '{"redrivePermission":"allowAll"}',
        }
    )
    await bench.set(url, Policy="", RedrivePolicy="", RedriveAllowPolicy="")
    assert await bench.attributes(url) == await bench.attributes(
        url, *(name for name in await standard(bench))
    )
    settings = await bench.core(url).settings()
    assert (settings.dead_letter, settings.max_attempts) == (None, 0)


async def test_without_matching_attributes_the_key_is_absent(bench: Bench) -> None:
    url = await bench.queue()
    for names in ([], ["Policy", "RedrivePolicy"]):
        assert await bench.rendered("GetQueueAttributes", QueueUrl=url, AttributeNames=names) == {}
    assert await bench.rendered("GetQueueAttributes", QueueUrl=url) == {}
    assert await bench.rendered("ListQueueTags", QueueUrl=url) == {}
    assert await bench.rendered("ListQueues", QueueNamePrefix=unique()) == {}
    assert await bench.rendered("ListDeadLetterSourceQueues", QueueUrl=url) == {}


async def test_unknown_attribute_names_are_refused(bench: Bench) -> None:
    url = await bench.queue()
    error = await bench.refusal("GetQueueAttributes", QueueUrl=url, AttributeNames=["All", "Foo"])
    assert (error.code, error.message) == ("InvalidAttributeName", "Unknown Attribute Foo.")


async def test_counts_are_exact_and_immediate(bench: Bench) -> None:
    url = await bench.queue()
    queue = bench.core(url)
    for n in range(7):
        await queue.send(n, delay=600 if n < 2 else None)
    [first, second, _] = await queue.receive(3)
    names = [f"ApproximateNumberOfMessages{state}" for state in ("", "NotVisible", "Delayed")]
    found = await bench.attributes(url, *names)
    assert [found[name] for name in names] == ["2", "3", "2"]
    await first.ack()
    await second.release()
    found = await bench.attributes(url, *names)
    assert [found[name] for name in names] == ["3", "1", "2"]


# --- FIFO -------------------------------------------------------------------------------------


async def test_fifo_queue_values_arrive_as_true_in_any_case(bench: Bench) -> None:
    url = await bench.queue({"FifoQueue": "True"}, name=unique() + ".fifo")
    assert await bench.attributes(url, "FifoQueue") == {"FifoQueue": "true"}
    assert (await bench.core(url).settings()).policy.ordered is True
    assert (await bench.sqs.queue_cache.cached(name_of(url))).fifo is True


async def test_fifo_queue_true_can_be_set_again_but_false_is_refused(bench: Bench) -> None:
    url = await bench.queue({"FifoQueue": "true"})
    await bench.set(url, FifoQueue="True")
    error = await bench.refusal(
        "SetQueueAttributes", QueueUrl=url, Attributes={"FifoQueue": "false"}
    )
    assert error.code == "InvalidAttributeValue"
    assert error.message.endswith("Modifying queue type is not supported.")


async def test_the_scope_of_deduplication_is_that_of_the_creation(bench: Bench) -> None:
    url = await bench.queue({"FifoQueue": "true", "DeduplicationScope": "messageGroup"})
    plain = await bench.queue({"FifoQueue": "true"})
    await bench.set(url, DeduplicationScope="queue")
    await bench.set(plain, DeduplicationScope="messageGroup", ContentBasedDeduplication="True")
    assert (await bench.attributes(url))["DeduplicationScope"] == "queue"
    assert (await bench.sqs.queue_cache.cached(name_of(url))).dedup_scope == "messageGroup"
    known = await bench.sqs.queue_cache.cached(name_of(plain))
    assert (known.dedup_scope, known.content_dedup) == ("queue", True)


# --- beyond SQS -------------------------------------------------------------------------------


async def test_extended_queues_allow_years(bench: Bench) -> None:
    beyond = {
        "DelaySeconds": "100000000",
        "VisibilityTimeout": "100000000",
        "MessageRetentionPeriod": "200000000",
    }
    for name, value in beyond.items():
        error = await bench.refusal(
            "CreateQueue", QueueName=unique(), Attributes={name: value}, tags={"fairturn:x": "y"}
        )
        assert error.code == "InvalidAttributeValue"
    url = await bench.queue(beyond, tags={"fairturn:extended": "true"})
    assert await bench.attributes(url, *beyond) == beyond
    assert (await bench.sqs.queue_cache.cached(name_of(url))).extended is True
    strict = await bench.queue()
    await bench("TagQueue", QueueUrl=strict, Tags={"fairturn:extended": "True"})
    await bench.set(strict, **beyond)
    await bench("UntagQueue", QueueUrl=strict, TagKeys=["fairturn:extended"])
    error = await bench.refusal("SetQueueAttributes", QueueUrl=strict, Attributes=beyond)
    assert error.code == "InvalidAttributeValue"
    bench.on(extended=True)
    await bench.set(await bench.queue(), **beyond)
