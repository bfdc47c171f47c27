"""SendMessage and SendMessageBatch; the names of the tests are the sentences they prove."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

from fairturn import Policy
from fairturn.sqs import receipt_handles
from tests.server.sqs_desk import Desk, everywhere, name_of

MIB = 1024 * 1024
TEXT = {"DataType": "String", "StringValue": "red"}


def entry(id: str, body: str = "hello", **more: Any) -> dict[str, Any]:
    return {"Id": id, "MessageBody": body, **more}


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


# --- one message ---


@everywhere()
async def test_a_sent_message_is_answered_with_its_id_and_the_md5_of_its_body(desk: Desk) -> None:
    url = await desk.queue()
    sent = await desk.send(url, "héllo")
    assert sent == {"MessageId": sent["MessageId"], "MD5OfMessageBody": md5("héllo")}
    [message] = await desk.receive(url)
    assert message["MessageId"] == sent["MessageId"]
    assert message["Body"] == "héllo"
    assert message["MD5OfBody"] == md5("héllo")


@everywhere()
async def test_the_md5_of_attributes_is_the_one_recorded_from_aws(desk: Desk) -> None:
    url = await desk.queue()
    number = {"timestamp": {"DataType": "Number", "StringValue": "1493147359900"}}
    sent = await desk.send(url, MessageAttributes=number)
    assert sent["MD5OfMessageAttributes"] == "235c5c510d26fb653d073faed50ae77c"
    assert "MD5OfMessageSystemAttributes" not in sent
    [message] = await desk.receive(url, MessageAttributeNames=["All"])
    assert message["MessageAttributes"] == number
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]


@everywhere()
async def test_a_trace_header_is_a_system_attribute_with_an_md5_of_its_own(desk: Desk) -> None:
    url = await desk.queue()
    root = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": root}}
    sent = await desk.send(url, MessageSystemAttributes=trace)
    assert "MD5OfMessageAttributes" not in sent
    assert sent["MD5OfMessageSystemAttributes"] == "5ae4d5d7636402d80f4eb6d213245a88"
    [message] = await desk.receive(url, AttributeNames=["AWSTraceHeader"])
    assert message["Attributes"] == {"AWSTraceHeader": root}
    assert "MessageAttributes" not in message


@everywhere()
async def test_the_header_x_amzn_trace_id_becomes_aws_trace_header(desk: Desk) -> None:
    url = await desk.queue()
    given = {"QueueUrl": url, "MessageBody": "x"}
    sent = await desk.ask("SendMessage", trace="Root=1", **given)
    assert "MD5OfMessageSystemAttributes" not in sent
    own = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=2"}}
    await desk.ask("SendMessage", trace="Root=1", MessageSystemAttributes=own, **given)
    found = await desk.receive(url, MessageSystemAttributeNames=["AWSTraceHeader"])
    assert {m["Attributes"]["AWSTraceHeader"] for m in found} == {"Root=1", "Root=2"}


@everywhere(backends=["sqlite"])
async def test_other_system_attributes_cannot_be_sent(desk: Desk) -> None:
    url = await desk.queue()
    given = {"MessageBody": "x", "MessageSystemAttributes": {"SenderId": TEXT}}
    refused = await desk.refused("SendMessage", QueueUrl=url, **given)
    assert refused.code == "InvalidParameterValue"


@everywhere()
async def test_a_worker_of_the_library_sees_what_was_sent(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url, '{"to": "ann"}', MessageAttributes={"colour": TEXT})
    await desk.send(url, "plain")
    found = sorted(await desk.core(url).receive(2), key=lambda message: message.id)
    assert [message.body for message in found] == [{"to": "ann"}, "plain"]
    assert found[0].raw == b'{"to": "ann"}'
    assert found[0].headers["colour"] == "red"


@everywhere()
async def test_a_missing_queue_is_told(desk: Desk) -> None:
    refused = await desk.refused("SendMessage", QueueUrl="http://x/1/nowhere", MessageBody="x")
    assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"


@everywhere()
async def test_a_queue_dropped_a_moment_ago_is_told_too(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url)
    await desk.core(url).drop()  # the book still knows it
    refused = await desk.refused("SendMessage", QueueUrl=url, MessageBody="x")
    assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"


@everywhere(backends=["sqlite"])
async def test_body_chars_are_the_xml_1_0_set_else_invalid_message_contents(desk: Desk) -> None:
    url = await desk.queue()
    for bad in ("\0", "a\x0b", "\ufffe", "\ud800"):
        refused = await desk.refused("SendMessage", QueueUrl=url, MessageBody=bad)
        assert refused.code == "InvalidMessageContents"
    await desk.send(url, "\t\n\r \x7f\ud7ff\ue000\ufffd\U0010ffff")


@everywhere(backends=["sqlite"])
async def test_an_empty_body_is_a_missing_parameter(desk: Desk) -> None:
    url = await desk.queue()
    for given in ({}, {"MessageBody": ""}):
        refused = await desk.refused("SendMessage", QueueUrl=url, **given)
        assert refused.code == "MissingParameter"


@everywhere(backends=["sqlite"])
async def test_an_empty_attribute_value_is_rejected(desk: Desk) -> None:
    url = await desk.queue()
    empty = {"a": {"DataType": "String", "StringValue": ""}}
    refused = await desk.refused(
        "SendMessage", QueueUrl=url, MessageBody="x", MessageAttributes=empty
    )
    assert refused.code == "InvalidParameterValue"


@everywhere(backends=["sqlite"])
async def test_there_are_at_most_ten_message_attributes(desk: Desk) -> None:
    url = await desk.queue()
    ten = {f"a{n}": TEXT for n in range(10)}
    await desk.send(url, MessageAttributes=ten)
    refused = await desk.refused(
        "SendMessage", QueueUrl=url, MessageBody="x", MessageAttributes=ten | {"b": TEXT}
    )
    assert refused.code == "InvalidParameterValue"


# --- sizes ---


@everywhere()
async def test_maximum_message_size_is_one_mebibyte_by_default(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url, "é" * (MIB // 2))
    await desk.send(url, "\n" * MIB)  # twice as long in JSON
    refused = await desk.refused("SendMessage", QueueUrl=url, MessageBody="x" * (MIB + 1))
    assert refused.code == "InvalidParameterValue"
    assert refused.message == (
        "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes."
    )
    assert {len(body) for body in await desk.bodies(url)} == {MIB // 2, MIB}


@everywhere()
async def test_size_is_body_and_names_and_types_and_values_of_attributes(desk: Desk) -> None:
    url = await desk.queue(MaximumMessageSize=1024)
    weight = len("colour") + len("String") + len("red")
    await desk.send(url, "x" * (1024 - weight), MessageAttributes={"colour": TEXT})
    refused = await desk.refused(
        "SendMessage",
        QueueUrl=url,
        MessageBody="x" * (1025 - weight),
        MessageAttributes={"colour": TEXT},
    )
    assert refused.message.endswith("Reason: Message must be shorter than 1024 bytes.")


@everywhere()
async def test_attributes_may_fill_the_whole_message(desk: Desk) -> None:
    url = await desk.queue()
    binary = {"b": {"DataType": "Binary", "BinaryValue": b"\xff" * (MIB - 100)}}
    await desk.send(url, "x", MessageAttributes=binary)
    [message] = await desk.receive(url, MessageAttributeNames=["b"])
    assert len(message["MessageAttributes"]["b"]["BinaryValue"]) == (MIB - 100 + 2) // 3 * 4


# --- delay ---


@everywhere(clock=True)
async def test_delay_per_message_overrides_queue_and_zero_does_too(desk: Desk) -> None:
    url = await desk.queue(DelaySeconds=100)
    await desk.send(url, "queue's")
    await desk.send(url, "own", DelaySeconds=10)
    await desk.send(url, "none", DelaySeconds=0)
    assert await desk.counts(url) == (1, 0, 2)
    assert await desk.bodies(url) == ["none"]
    desk.clock.move(9.999)
    assert await desk.bodies(url) == []
    desk.clock.move(0.001)
    assert await desk.bodies(url) == ["own"]
    desk.clock.move(90)
    assert "queue's" in await desk.bodies(url)


@everywhere(backends=["sqlite"])
async def test_delay_seconds_is_0_to_900(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url, DelaySeconds=900)
    for bad in (-1, 901):
        refused = await desk.refused("SendMessage", QueueUrl=url, MessageBody="x", DelaySeconds=bad)
        assert refused.code == "InvalidParameterValue"
        assert refused.message == (
            f"Value {bad} for parameter DelaySeconds is invalid. "
            "Reason: DelaySeconds must be >= 0 and <= 900."
        )


# --- batches ---


@everywhere()
async def test_a_batch_is_answered_entry_by_entry(desk: Desk) -> None:
    url = await desk.queue()
    entries = [entry(f"e{n}", f"body {n}") for n in range(10)]
    entries[3]["MessageAttributes"] = {"colour": TEXT}
    answer = await desk.ask("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert set(answer) == {"Successful"}  # Failed is empty, so it is left out
    assert [one["Id"] for one in answer["Successful"]] == [f"e{n}" for n in range(10)]
    assert [one["MD5OfMessageBody"] for one in answer["Successful"]] == [
        md5(f"body {n}") for n in range(10)
    ]
    assert [n for n, one in enumerate(answer["Successful"]) if "MD5OfMessageAttributes" in one] == [
        3
    ]
    ids = {one["MessageId"]: one["Id"] for one in answer["Successful"]}
    assert len(ids) == 10
    for message in await desk.receive(url):
        assert ids[message["MessageId"]] == "e" + message["Body"].removeprefix("body ")


@everywhere()
async def test_entries_fail_alone_for_size_characters_and_delay(desk: Desk) -> None:
    url = await desk.queue(MaximumMessageSize=1024)
    entries = [
        entry("large", "x" * 1025),
        entry("good", "good"),
        entry("odd", "\x00"),
        entry("late", DelaySeconds=901),
        entry("group", MessageGroupId="a b"),
        entry("dedup", MessageDeduplicationId="1"),
        entry("attribute", MessageAttributes={"AWS.x": TEXT}),
    ]
    answer = await desk.ask("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["good"]
    failed = {one["Id"]: one for one in answer["Failed"]}
    assert set(failed) == {"large", "odd", "late", "group", "dedup", "attribute"}
    assert failed["odd"]["Code"] == "InvalidMessageContents"
    assert "shorter than 1024 bytes" in failed["large"]["Message"]
    assert "DelaySeconds" in failed["late"]["Message"]
    assert all(one["SenderFault"] is True for one in failed.values())
    assert await desk.bodies(url) == ["good"]


@everywhere()
async def test_a_batch_of_which_all_fail_sends_nothing(desk: Desk) -> None:
    url = await desk.queue()
    answer = await desk.ask("SendMessageBatch", QueueUrl=url, Entries=[entry("odd", "\x00")])
    assert set(answer) == {"Failed"}
    assert await desk.counts(url) == (0, 0, 0)


@everywhere()
async def test_a_whole_batch_fails_for_empty_too_many_bad_ids_and_total_size(desk: Desk) -> None:
    url = await desk.queue()
    half = "x" * (MIB // 2)
    for entries, code in [
        ([], "EmptyBatchRequest"),
        ([entry(f"e{n}") for n in range(11)], "TooManyEntriesInBatchRequest"),
        ([entry("a"), entry("bad id")], "InvalidBatchEntryId"),
        ([entry("a"), entry("x" * 81)], "InvalidBatchEntryId"),
        ([entry("id_1"), entry("id_2"), entry("id_2")], "BatchEntryIdsNotDistinct"),
        ([entry("a", half), entry("b", half), entry("c")], "BatchRequestTooLong"),
    ]:
        refused = await desk.refused("SendMessageBatch", QueueUrl=url, Entries=entries)
        assert refused.code == f"AWS.SimpleQueueService.{code}"
        if code == "BatchEntryIdsNotDistinct":
            assert refused.message == "Id id_2 repeated."
    assert await desk.counts(url) == (0, 0, 0)
    await desk.ask("SendMessageBatch", QueueUrl=url, Entries=[entry("a", half), entry("b", half)])
    assert await desk.counts(url) == (2, 0, 0)


@everywhere()
async def test_an_unknown_queue_fails_the_batch_first(desk: Desk) -> None:
    refused = await desk.refused("SendMessageBatch", QueueUrl="http://x/1/nowhere", Entries=[])
    assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"


# --- gathered ---


@everywhere()
async def test_concurrent_senders_each_get_the_id_of_their_own_message(desk: Desk) -> None:
    url = await desk.queue()
    texts = [f"text {n}" for n in range(200)]
    answers = await asyncio.gather(*(desk.send(url, text) for text in texts))
    sent = {answer["MessageId"]: text for answer, text in zip(answers, texts, strict=True)}
    assert len(sent) == 200
    got: dict[str, str] = {}
    while messages := await desk.receive(url):
        got |= {message["MessageId"]: message["Body"] for message in messages}
    assert got == sent


@everywhere()
async def test_one_senders_mistake_is_not_anothers(desk: Desk) -> None:
    url = await desk.queue()
    await desk.core(url).set(policy=Policy(max_size=3))
    sends = [desk.send(url, MessageGroupId=f"g{n % 5}") for n in range(50)]
    done = await asyncio.gather(*sends, return_exceptions=True)
    refused = [one for one in done if isinstance(one, Exception)]
    assert {getattr(one, "code", None) for one in refused} == {"OverLimit"}
    assert len(done) - len(refused) >= 5
    assert (await desk.counts(url))[0] == len(done) - len(refused)


@everywhere()
async def test_a_message_id_is_the_cores_id(desk: Desk) -> None:
    url = await desk.queue()
    sent = await desk.send(url, json.dumps({"a": 1}))
    id = receipt_handles.id_of(sent["MessageId"])
    assert id is not None
    message = await desk.db.queue(name_of(url)).get(id=id)
    assert message is not None
    assert message.body == {"a": 1}
