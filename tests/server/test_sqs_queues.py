"""Queues: made, named, listed, purged and deleted, through Sqs.answer. Each test is named after the
sentence of SQS.md that it proves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairturn.server.sqs import queue_cache
from fairturn.server.sqs.queue_cache import INTERNAL
from tests.conformance.door import Clock, unique
from tests.server.sqs_bench import ACCOUNT, HOST, Bench, name_of, policy_to

MISSING = "AWS.SimpleQueueService.NonExistentQueue"


# --- names and URLs ---------------------------------------------------------------------------


async def test_a_queue_url_is_built_from_the_host_the_account_and_the_name(bench: Bench) -> None:
    name = unique()
    assert await bench.queue(name=name) == f"{HOST}/{ACCOUNT}/{name}"
    assert await bench("GetQueueUrl", QueueName=name) == {"QueueUrl": f"{HOST}/{ACCOUNT}/{name}"}
    owner = await bench("GetQueueUrl", QueueName=name, QueueOwnerAWSAccountId="999999999999")
    assert owner == {"QueueUrl": f"{HOST}/999999999999/{name}"}


async def test_only_the_last_segment_of_an_incoming_queue_url_counts(bench: Bench) -> None:
    name = name_of(await bench.queue({"DelaySeconds": "7"}))
    for url in (f"https://other.host/1/{name}", f"/{ACCOUNT}/{name}", name, f"http://h/{name}/"):
        assert await bench.attributes(url, "DelaySeconds") == {"DelaySeconds": "7"}


async def test_a_queue_name_has_up_to_80_characters_with_its_fifo(bench: Bench) -> None:
    stem = unique("q" * 60)
    await bench.queue(name=stem.ljust(80, "x"))
    await bench.queue({"FifoQueue": "true"}, name=stem.ljust(75, "x") + ".fifo")
    for name in (stem.ljust(81, "x"), "a.b", "a b", "a.fifo"):
        error = await bench.refusal("CreateQueue", QueueName=name)
        assert error.code == "InvalidParameterValue"
    error = await bench.refusal("CreateQueue", QueueName="a", Attributes={"FifoQueue": "true"})
    assert "must end with .fifo suffix" in error.message


async def test_unknown_queues_do_not_exist_for_any_action(bench: Bench) -> None:
    await bench.sqs.moves.internal()  # the server's own is there, but not for those outside
    tags = {"Tags": {"a": "b"}}
    permission = {"Label": "x", "AWSAccountIds": [ACCOUNT], "Actions": ["SendMessage"]}
    for action, given in (
        ("GetQueueAttributes", {"AttributeNames": ["All"]}),
        ("SetQueueAttributes", {"Attributes": {"DelaySeconds": "1"}}),
        ("DeleteQueue", {}),
        ("PurgeQueue", {}),
        ("ListDeadLetterSourceQueues", {}),
        ("TagQueue", tags),
        ("UntagQueue", {"TagKeys": ["a"]}),
        ("ListQueueTags", {}),
        ("AddPermission", permission),
        ("RemovePermission", {"Label": "x"}),
    ):
        for name in (unique(), INTERNAL, "x" * 300, "x\0"):
            error = await bench.refusal(action, QueueUrl=f"{HOST}/{ACCOUNT}/{name}", **given)
            assert (error.code, error.message) == (MISSING, "The specified queue does not exist.")
    assert (await bench.refusal("GetQueueUrl", QueueName=unique())).code == MISSING


# --- CreateQueue is idempotent ----------------------------------------------------------------


async def test_create_queue_with_equal_attributes_is_the_same_queue(bench: Bench) -> None:
    dead = await bench.queue()
    attributes = {
        "VisibilityTimeout": "40",
        "DelaySeconds": "5",
        "SqsManagedSseEnabled": "False",
        "RedrivePolicy": policy_to(dead),
        "Policy": '{"a": [1, 2]}',
    }
    name = unique()
    url = await bench.queue(attributes, name=name, tags={"team": "red"})
    respelled = {
        "VisibilityTimeout": "040",
        "SqsManagedSseEnabled": "false",
        "RedrivePolicy": policy_to(dead, "3").replace(" ", ""),
        "Policy": '{"a":[1,2]}',
        "RedriveAllowPolicy": "",
    }
    for given in (attributes, respelled, {}, {"DelaySeconds": "5"}):  # missing ones are ignored
        again = await bench("CreateQueue", QueueName=name, Attributes=given, tags={"team": "blue"})
        assert again == {"QueueUrl": url}
    assert await bench("ListQueueTags", QueueUrl=url) == {"Tags": {"team": "red"}}
    assert (await bench.attributes(url))["Policy"] == '{"a": [1, 2]}'


async def test_create_queue_with_defaults_spelled_out_is_the_same_queue(bench: Bench) -> None:
    url = await bench.queue({"FifoQueue": "true"})
    given = await bench.attributes(url)
    for counter in (*book_counters(), "QueueArn"):
        del given[counter]
    given["KmsDataKeyReusePeriodSeconds"] = "300"
    given["KmsMasterKeyId"] = ""
    assert await bench.queue(given, name=name_of(url)) == url


async def test_create_queue_does_not_care_what_is_in_the_queue(bench: Bench) -> None:
    given = {"VisibilityTimeout": "40"}
    url = await bench.queue(given)
    for delay in (None, None, 600):
        await bench.core(url).send("x", delay=delay)
    await bench.core(url).receive()
    counts = await bench.attributes(url, *book_counters()[:3])
    assert list(counts.values()) == ["1", "1", "1"]
    assert await bench.queue(given, name=name_of(url)) == url
    assert await bench.attributes(url, *book_counters()[:3]) == counts


def book_counters() -> list[str]:
    states = ("", "Delayed", "NotVisible")
    return [
        *(f"ApproximateNumberOfMessages{state}" for state in states),
        "CreatedTimestamp",
        "LastModifiedTimestamp",
    ]


async def test_create_queue_with_a_different_value_names_the_attribute(bench: Bench) -> None:
    dead, other = await bench.queue(), await bench.queue()
    url = await bench.queue({"DelaySeconds": "5", "RedrivePolicy": policy_to(dead)})
    for attribute, value in (
        ("DelaySeconds", "6"),
        ("VisibilityTimeout", "31"),
        ("MessageRetentionPeriod", "60"),
        ("Policy", "{}"),
        ("RedrivePolicy", policy_to(dead, 4)),
        ("RedrivePolicy", policy_to(other)),
        ("RedrivePolicy", ""),
        ("KmsMasterKeyId", "alias/x"),
        ("SqsManagedSseEnabled", "false"),
    ):
        error = await bench.refusal(
            "CreateQueue", QueueName=name_of(url), Attributes={attribute: value}
        )
        assert (error.kind.name, error.code) == ("QueueNameExists", "QueueAlreadyExists")
        assert error.message == (
            "A queue already exists with the same name and a different value for attribute "
            f"{attribute}"
        )


async def test_many_creators_of_one_name_make_one_queue(bench: Bench) -> None:
    name = unique()
    asks = [
        bench.another().answer(bench.ask("CreateQueue", QueueName=name, Attributes=attributes))
        for attributes in [{"DelaySeconds": "5"}] * 5
    ]
    assert await asyncio.gather(*asks) == [{"QueueUrl": f"{HOST}/{ACCOUNT}/{name}"}] * 5


async def test_who_creates_later_with_a_different_value_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = unique()
    real = queue_cache.QueueCache.create

    async def overtaken(self: queue_cache.QueueCache, name: str, settings: Any) -> bool:
        monkeypatch.setattr(queue_cache.QueueCache, "create", real)
        await bench.another().answer(bench.ask("CreateQueue", QueueName=name))
        return await real(self, name, settings)

    monkeypatch.setattr(queue_cache.QueueCache, "create", overtaken)
    error = await bench.refusal("CreateQueue", QueueName=name, Attributes={"DelaySeconds": "5"})
    assert error.code == "QueueAlreadyExists"


async def test_fifo_only_attributes_on_a_standard_queue_are_unknown(bench: Bench) -> None:
    url = await bench.queue()
    for attribute in (
        "ContentBasedDeduplication",
        "DeduplicationScope",
        "FifoThroughputLimit",
        "FifoQueue",
    ):
        given = {attribute: "false"}
        create = await bench.refusal("CreateQueue", QueueName=unique(), Attributes=given)
        change = await bench.refusal("SetQueueAttributes", QueueUrl=url, Attributes=given)
        for error in (create, change):
            assert error.code == "InvalidAttributeName"
            assert error.message == f"Unknown Attribute {attribute}."


# --- purge and delete -------------------------------------------------------------------------


async def test_purge_removes_visible_in_flight_and_delayed_messages_at_once(bench: Bench) -> None:
    url = await bench.queue()
    queue = bench.core(url)
    for delay in (None, None, 600):
        await queue.send("x", delay=delay)
    await queue.receive()
    assert await bench("PurgeQueue", QueueUrl=url) is None
    assert (await queue.stats()).total == 0


async def test_a_second_purge_within_60_seconds_is_refused(bench: Bench) -> None:
    clock = Clock()
    bench.on(clock)
    url, other = await bench.queue(), await bench.queue()
    await bench("PurgeQueue", QueueUrl=url)
    clock.tick(59.9)
    error = await bench.refusal("PurgeQueue", QueueUrl=url)
    assert (error.status, error.code) == (403, "AWS.SimpleQueueService.PurgeQueueInProgress")
    assert error.message == (
        f"Only one PurgeQueue operation on {name_of(url)} is allowed every 60 seconds."
    )
    await bench("PurgeQueue", QueueUrl=other)
    clock.tick(0.1)
    await bench("PurgeQueue", QueueUrl=url)


async def test_delete_queue_is_effective_at_once_and_its_name_is_free(bench: Bench) -> None:
    url = await bench.queue({"DelaySeconds": "5"}, tags={"a": "b"})
    await bench.core(url).send("x")
    await bench.sqs.queue_cache.cached(name_of(url))
    assert await bench("DeleteQueue", QueueUrl=url) is None
    assert (await bench.refusal("DeleteQueue", QueueUrl=url)).code == MISSING
    assert (await bench.refusal("GetQueueUrl", QueueName=name_of(url))).code == MISSING
    assert await bench.queue({"DelaySeconds": "6"}, name=name_of(url)) == url
    assert await bench("ListQueueTags", QueueUrl=url) == {"Tags": {}}
    assert (await bench.attributes(url))["ApproximateNumberOfMessages"] == "0"


async def test_queue_deleted_recently_is_told_where_it_is_asked_for(bench: Bench) -> None:
    clock = Clock()
    bench.on(clock, recreate_pause=60)
    url = await bench.queue()
    await bench("DeleteQueue", QueueUrl=url)
    clock.tick(59.9)
    error = await bench.refusal("CreateQueue", QueueName=name_of(url))
    assert (error.status, error.code) == (400, "AWS.SimpleQueueService.QueueDeletedRecently")
    assert error.message.startswith("You must wait 60 seconds")
    clock.tick(0.1)
    assert await bench.queue(name=name_of(url)) == url


# --- ListQueues -------------------------------------------------------------------------------


async def test_list_queues_pages_in_a_stable_order(bench: Bench) -> None:
    prefix = unique("list")
    urls = sorted([await bench.queue(name=f"{prefix}-{n}") for n in (3, 1, 5, 2, 4)])
    await bench.queue()
    everything = {"QueueUrls": urls, "NextToken": None}
    assert await bench("ListQueues", QueueNamePrefix=prefix) == everything
    assert set(urls) < set((await bench("ListQueues"))["QueueUrls"])
    found: list[str] = []
    page = await bench("ListQueues", QueueNamePrefix=prefix, MaxResults=2)
    while True:
        found += page["QueueUrls"]
        if page["NextToken"] is None:
            break
        await bench("DeleteQueue", QueueUrl=page["QueueUrls"][0])  # what comes after stays right
        page = await bench(
            "ListQueues", QueueNamePrefix=prefix, MaxResults=2, NextToken=page["NextToken"]
        )
    assert found == urls


async def test_list_queues_refuses_bad_pages(bench: Bench) -> None:
    prefix = unique("list")
    for n in range(2):
        await bench.queue(name=f"{prefix}-{n}")
    page = await bench("ListQueues", QueueNamePrefix=prefix, MaxResults=1)
    for given, text in (
        ({"MaxResults": 0}, "MaxResults must be between 1 and 1000."),
        ({"MaxResults": 1001}, "MaxResults must be between 1 and 1000."),
        ({"NextToken": page["NextToken"]}, "MaxResults is a mandatory parameter"),
        ({"NextToken": page["NextToken"], "MaxResults": 1}, "must not change the other"),
        ({"NextToken": "nonsense", "MaxResults": 1}, "Invalid or expired next token."),
        ({"NextToken": "ü", "MaxResults": 1}, "Invalid or expired next token."),
        ({"NextToken": "WzEsMl0=", "MaxResults": 1}, "Invalid or expired next token."),
    ):
        error = await bench.refusal("ListQueues", **given)
        assert error.code == "InvalidParameterValue"
        assert text in error.message


async def test_list_queues_shows_at_most_1000(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairturn.sqs.limits.MAX_RESULTS", 3)
    prefix = unique("list")
    urls = [await bench.queue(name=f"{prefix}-{n}") for n in range(4)]
    page = await bench("ListQueues", QueueNamePrefix=prefix)
    assert page == {"QueueUrls": urls[:3], "NextToken": None}  # a token comes with MaxResults only


async def test_list_queues_shows_what_the_key_allows(bench: Bench) -> None:
    prefix = unique("list")
    await bench.queue(name=f"{prefix}-a")
    url = await bench.queue(name=f"{prefix}-b")
    ask = bench.ask("ListQueues", allows=lambda action, queue: queue == f"{prefix}-b")
    assert await bench.sqs.answer(ask) == {"QueueUrls": [url], "NextToken": None}
