"""Fair queues: MessageGroupId on a standard queue; the names are the sentences."""

from __future__ import annotations

from tests.server.sqs_desk import Desk, everywhere


@everywhere()
async def test_message_group_id_is_optional_on_standard_queues_and_returned(desk: Desk) -> None:
    url = await desk.queue()
    sent = await desk.send(url, "grouped", MessageGroupId="tenant-1")
    await desk.send(url, "plain")
    assert "SequenceNumber" not in sent
    shown = {
        message["Body"]: message["Attributes"]
        for message in await desk.receive(url, AttributeNames=["All"])
    }
    assert shown["grouped"]["MessageGroupId"] == "tenant-1"
    assert "MessageGroupId" not in shown["plain"]
    for attributes in shown.values():
        assert "SequenceNumber" not in attributes
        assert "MessageDeduplicationId" not in attributes


@everywhere(backends=["sqlite"])
async def test_message_group_id_is_validated(desk: Desk) -> None:
    url = await desk.queue()
    for bad in ("", "a b", "x" * 129, "é"):
        refused = await desk.refused(
            "SendMessage", QueueUrl=url, MessageBody="x", MessageGroupId=bad
        )
        assert refused.code == "InvalidParameterValue"


@everywhere(backends=["sqlite"])
async def test_message_deduplication_id_stays_invalid_there(desk: Desk) -> None:
    url = await desk.queue()
    refused = await desk.refused(
        "SendMessage",
        QueueUrl=url,
        MessageBody="x",
        MessageGroupId="g",
        MessageDeduplicationId="1",
    )
    assert refused.code == "InvalidParameterValue"
    assert refused.message == (
        "Value 1 for parameter MessageDeduplicationId is invalid. Reason: The request include "
        "parameter that is not valid for this queue type."
    )


@everywhere()
async def test_groups_of_a_standard_queue_block_nothing(desk: Desk) -> None:
    url = await desk.queue()
    for n in range(3):
        await desk.send(url, str(n), MessageGroupId="g")
    assert len(await desk.receive(url, 1)) == 1
    assert len(await desk.receive(url, 10)) == 2  # though one of the group is in flight


@everywhere()
async def test_one_tenants_flood_does_not_delay_the_others(desk: Desk) -> None:
    url = await desk.queue()
    for start in range(0, 300, 10):
        entries = [
            {"Id": f"e{n}", "MessageBody": f"noisy {start + n}", "MessageGroupId": "noisy"}
            for n in range(10)
        ]
        await desk.ask("SendMessageBatch", QueueUrl=url, Entries=entries)
    for tenant in ("ann", "bob"):
        await desk.send(url, tenant, MessageGroupId=tenant)
    got = await desk.bodies(url, 10)
    assert {"ann", "bob"} <= set(got)


@everywhere()
async def test_the_group_is_the_librarys_channel_both_ways(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url, MessageGroupId="tenant-1")
    [message] = await desk.core(url).receive(1)
    assert message.channel == "tenant-1"
    await message.ack()
    await desk.core(url).send("x", channel="tenant-2")
    [shown] = await desk.receive(url, AttributeNames=["MessageGroupId"])
    assert shown["Attributes"] == {"MessageGroupId": "tenant-2"}
