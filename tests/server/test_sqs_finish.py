"""DeleteMessage, ChangeMessageVisibility and their batches; the names are the sentences."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fairturn.sqs import receipt_handles
from tests.server.sqs_desk import Desk, everywhere

GONE = "Message does not exist or is not available for visibility timeout change."


def handle_of(message: Any) -> str:
    return message["ReceiptHandle"]


# --- deleting ---


@everywhere(clock=True)
async def test_a_deleted_message_does_not_come_back(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url)
    [message] = await desk.receive(url)
    assert await desk.ask("DeleteMessage", QueueUrl=url, ReceiptHandle=handle_of(message)) == {}
    desk.clock.move(100)
    assert await desk.receive(url) == []
    assert await desk.counts(url) == (0, 0, 0)


@everywhere()
async def test_delete_is_idempotent(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url)
    [message] = await desk.receive(url)
    for _ in range(3):
        await desk.delete(url, message)


@everywhere(clock=True)
async def test_old_handles_still_delete_on_standard_queues(desk: Desk) -> None:
    url = await desk.queue(VisibilityTimeout=10)
    await desk.send(url, "received again")
    await desk.send(url, "visible again")
    old = {message["Body"]: message for message in await desk.receive(url)}
    desk.clock.move(10)
    again = await desk.receive(url, 1)
    other = {"received again", "visible again"} - {again[0]["Body"]}
    await desk.delete(url, old[again[0]["Body"]])  # in flight, by another receive
    await desk.delete(url, old[other.pop()])  # visible
    assert await desk.counts(url) == (0, 0, 0)
    await desk.delete(url, again[0])


@everywhere()
async def test_a_malformed_handle_is_invalid(desk: Desk) -> None:
    url = await desk.queue()
    for action in ("DeleteMessage", "ChangeMessageVisibility"):
        given = {"QueueUrl": url, "ReceiptHandle": "nonsense"}
        if action != "DeleteMessage":
            given["VisibilityTimeout"] = 1
        refused = await desk.refused(action, **given)
        assert refused.code == "ReceiptHandleIsInvalid"
        assert refused.message == (
            'The input receipt handle "nonsense" is not a valid receipt handle.'
        )


@everywhere()
async def test_a_handle_of_another_queue_deletes_nothing(desk: Desk) -> None:
    url, other = await desk.queue(), await desk.queue()
    await desk.send(url)
    [message] = await desk.receive(url)
    await desk.delete(other, message)
    assert await desk.counts(url) == (0, 1, 0)


@everywhere()
async def test_a_batch_of_deletes_is_answered_entry_by_entry(desk: Desk) -> None:
    url = await desk.queue()
    for n in range(3):
        await desk.send(url, str(n))
    messages = await desk.receive(url)
    await desk.delete(url, messages[0])
    entries = [
        {"Id": f"e{n}", "ReceiptHandle": handle_of(message)} for n, message in enumerate(messages)
    ]
    entries.append({"Id": "twice", "ReceiptHandle": handle_of(messages[1])})
    entries.append({"Id": "bad", "ReceiptHandle": "nonsense"})
    answer = await desk.ask("DeleteMessageBatch", QueueUrl=url, Entries=entries)
    assert answer["Successful"] == [{"Id": id} for id in ("e0", "e1", "e2", "twice")]
    [failed] = answer["Failed"]
    assert (failed["Id"], failed["Code"]) == ("bad", "ReceiptHandleIsInvalid")
    assert failed["SenderFault"] is True
    assert await desk.counts(url) == (0, 0, 0)
    del entries[-1]
    answer = await desk.ask("DeleteMessageBatch", QueueUrl=url, Entries=entries)
    assert set(answer) == {"Successful"}


@everywhere()
async def test_a_whole_batch_of_deletes_fails_for_its_ids_and_its_number(desk: Desk) -> None:
    url = await desk.queue()
    handle = receipt_handles.receipt_handle(receipt_handles.Receipt(1, 1, 1, 1))

    def entries(*ids: str) -> list[dict[str, Any]]:
        return [{"Id": id, "ReceiptHandle": handle, "VisibilityTimeout": 1} for id in ids]

    for action in ("DeleteMessageBatch", "ChangeMessageVisibilityBatch"):
        for given, code in [
            ([], "EmptyBatchRequest"),
            (entries(*"abcdefghijk"), "TooManyEntriesInBatchRequest"),
            (entries("a b"), "InvalidBatchEntryId"),
            (entries("a", "a"), "BatchEntryIdsNotDistinct"),
        ]:
            refused = await desk.refused(action, QueueUrl=url, Entries=given)
            assert refused.code == f"AWS.SimpleQueueService.{code}"
        refused = await desk.refused(action, QueueUrl="http://x/1/nowhere", Entries=[])
        assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"


@everywhere()
async def test_concurrent_deletes_delete_each_their_own(desk: Desk) -> None:
    url = await desk.queue()
    await asyncio.gather(*(desk.send(url, str(n)) for n in range(60)))
    messages = [m for _ in range(6) for m in await desk.receive(url)]
    assert len(messages) == 60
    await asyncio.gather(*(desk.delete(url, message) for message in messages[:40]))
    assert await desk.counts(url) == (0, 20, 0)


@everywhere()
async def test_a_message_the_library_keeps_as_done_stays_done(desk: Desk) -> None:
    url = await desk.queue()
    await desk.core(url).set(retention=3600)
    await desk.send(url)
    [message] = await desk.receive(url)
    await desk.delete(url, message)
    await desk.delete(url, message)
    assert (await desk.core(url).stats()).done == 1


# --- changing visibility ---


@everywhere(clock=True)
async def test_visibility_can_be_made_longer_and_shorter(desk: Desk) -> None:
    url = await desk.queue(VisibilityTimeout=30)
    await desk.send(url)
    [message] = await desk.receive(url)
    await desk.change(url, message, 100)
    desk.clock.move(99.999)
    assert await desk.receive(url) == []
    await desk.change(url, message, 5)
    desk.clock.move(4.999)
    assert await desk.receive(url) == []
    desk.clock.move(0.001)
    assert len(await desk.receive(url)) == 1


@everywhere()
async def test_visibility_0_makes_it_visible_at_once(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url)
    [message] = await desk.receive(url)
    await desk.change(url, message, 0)
    assert await desk.counts(url) == (1, 0, 0)
    [again] = await desk.receive(url, AttributeNames=["All"])
    assert again["MessageId"] == message["MessageId"]
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


@everywhere(clock=True)
async def test_old_handles_still_extend_on_standard_queues(desk: Desk) -> None:
    url = await desk.queue(VisibilityTimeout=10)
    await desk.send(url)
    [old] = await desk.receive(url)
    desk.clock.move(10)
    [new] = await desk.receive(url)
    await desk.change(url, old, 100)
    desk.clock.move(50)
    assert await desk.receive(url) == []
    await desk.change(url, new, 0)
    assert len(await desk.receive(url)) == 1


@everywhere()
async def test_change_on_a_deleted_message_is_invalid(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url)
    [message] = await desk.receive(url)
    await desk.delete(url, message)
    handle = handle_of(message)
    refused = await desk.refused(
        "ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=1
    )
    assert refused.code == "InvalidParameterValue"
    assert refused.message == (
        f"Value {handle} for parameter ReceiptHandle is invalid. Reason: {GONE}"
    )


@everywhere(clock=True)
async def test_change_on_a_message_that_is_visible_again_is_invalid(desk: Desk) -> None:
    url = await desk.queue(VisibilityTimeout=10)
    await desk.send(url, "one")
    [message] = await desk.receive(url)
    desk.clock.move(10)
    await desk.core(url).receive(1, types=["none"])  # somebody looks, and takes nothing
    refused = await desk.refused(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=handle_of(message),
        VisibilityTimeout=1,
    )
    assert refused.message.endswith(GONE)
    assert await desk.counts(url) == (1, 0, 0)


@everywhere(backends=["sqlite"])
async def test_visibility_is_capped_at_12_hours_in_all(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url)
    [message] = await desk.receive(url)
    await desk.change(url, message, 43_200)
    refused = await desk.refused(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=handle_of(message),
        VisibilityTimeout=43_201,
    )
    assert refused.message == (
        "Value 43201 for parameter VisibilityTimeout is invalid. "
        "Reason: Must be >= 0 and <= 43200, if provided."
    )
    receipt = receipt_handles.receipt(handle_of(message))
    early = receipt_handles.receipt_handle(receipt._replace(received=int(time.time()) - 43_000))
    for seconds, allowed in [(100, True), (3600, False)]:
        given = {"QueueUrl": url, "ReceiptHandle": early, "VisibilityTimeout": seconds}
        if allowed:
            await desk.ask("ChangeMessageVisibility", **given)
        else:
            refused = await desk.refused("ChangeMessageVisibility", **given)
            assert refused.message == (
                f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: "
                "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]"
            )


@everywhere(clock=True)
async def test_a_batch_of_changes_is_answered_entry_by_entry(desk: Desk) -> None:
    url = await desk.queue(VisibilityTimeout=30)
    for n in range(4):
        await desk.send(url, str(n))
    messages = await desk.receive(url)
    await desk.delete(url, messages[3])
    seconds = {"now": 0, "later": 100, "bad": 43_201, "gone": 1}
    entries: list[dict[str, Any]] = [
        {"Id": id, "ReceiptHandle": handle_of(message), "VisibilityTimeout": value}
        for (id, value), message in zip(seconds.items(), messages, strict=True)
    ]
    entries.append({"Id": "none", "ReceiptHandle": handle_of(messages[0])})
    answer = await desk.ask("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=entries)
    assert answer["Successful"] == [{"Id": "now"}, {"Id": "later"}]
    failed = {one["Id"]: one for one in answer["Failed"]}
    assert set(failed) == {"bad", "gone", "none"}
    assert failed["gone"]["Message"].endswith(GONE)
    assert failed["none"]["Code"] == "MissingParameter"
    assert await desk.counts(url) == (1, 2, 0)
    desk.clock.move(30)
    assert await desk.counts(url) == (2, 1, 0)
    desk.clock.move(70)
    assert await desk.counts(url) == (3, 0, 0)
