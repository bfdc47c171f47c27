"""Beyond SQS, where a server or a queue's tag allows it; strict otherwise."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from fairturn import App
from tests.server.sqs_desk import Desk, everywhere, name_of

YEAR = 365 * 86_400
TAGGED = {"fairturn:extended": "true"}


def text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def number(value: object) -> dict[str, str]:
    return {"DataType": "Number", "StringValue": str(value)}


async def send(desk: Desk, url: str, body: str, **attributes: Any) -> Any:
    return await desk.send(
        url,
        body,
        MessageAttributes={f"Fairturn.{name}": value for name, value in attributes.items()},
    )


@everywhere(clock=True, extended=True)
async def test_a_delay_of_years_outlives_the_retention(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url, "in three years", DelaySeconds=3 * YEAR)
    assert await desk.counts(url) == (0, 0, 1)
    desk.clock.move(3 * YEAR - 1)
    assert await desk.receive(url) == []
    desk.clock.move(1)
    assert await desk.bodies(url) == ["in three years"]
    desk.clock.move(345_600)  # the queue's retention, from when it could be seen
    assert await desk.counts(url) == (0, 0, 0)


@everywhere(clock=True)
async def test_a_queues_tag_is_enough(desk: Desk) -> None:
    url = await desk.queue(tags=TAGGED, DelaySeconds=2 * YEAR)
    await desk.send(url, "queue's")
    await desk.send(url, "own", DelaySeconds=YEAR)
    desk.clock.move(YEAR)
    assert await desk.bodies(url) == ["own"]
    desk.clock.move(YEAR)
    assert await desk.bodies(url) == ["queue's"]


@everywhere(clock=True, extended=True)
async def test_a_fifo_message_may_be_delayed_alone(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    await desk.send_to(url, "g", "later", DelaySeconds=YEAR)
    await desk.send_to(url, "h", "now")
    assert await desk.bodies(url) == ["now"]
    desk.clock.move(YEAR)
    assert "later" in await desk.bodies(url)


@everywhere(clock=True, extended=True)
async def test_visibility_beyond_12_hours(desk: Desk) -> None:
    url = await desk.queue(VisibilityTimeout=100_000)
    await desk.send(url)
    [message] = await desk.receive(url)
    desk.clock.move(99_999)
    assert await desk.receive(url) == []
    await desk.change(url, message, 100_000)
    desk.clock.move(99_999)
    assert await desk.receive(url) == []
    desk.clock.move(1)
    assert len(await desk.receive(url, VisibilityTimeout=50_000)) == 1


@everywhere(extended=True)
async def test_priority_key_and_type_are_orders_and_not_attributes(desk: Desk) -> None:
    url = await desk.queue()
    low = await send(desk, url, "low", Priority=number(-5))
    high = await send(desk, url, "high", Priority=number(7), Key=text("k"), Type=text("mail"))
    again = await send(desk, url, "again", Key=text("k"))
    assert again["MessageId"] == high["MessageId"] != low["MessageId"]
    message = await desk.core(url).get(key="k")
    assert message is not None
    assert (message.priority, message.type, message.headers) == (7, "mail", {})
    shown = await desk.receive(url, MessageAttributeNames=["All"])
    assert [one["Body"] for one in shown] == ["high", "low"]
    assert not any("MessageAttributes" in one for one in shown)


@everywhere(extended=True, backends=["sqlite"])
async def test_the_md5_is_over_what_was_sent_orders_included(desk: Desk) -> None:
    url = await desk.queue()
    sent = await send(desk, url, "x", Type=text("mail"))
    digest = hashlib.md5()
    for part, mark in ((b"Fairturn.Type", b""), (b"String", b""), (b"mail", b"\x01")):
        digest.update(mark + len(part).to_bytes(4, "big") + part)
    assert sent["MD5OfMessageAttributes"] == digest.hexdigest()


@everywhere(extended=True, backends=["sqlite"])
async def test_orders_that_make_no_sense_are_refused(desk: Desk) -> None:
    url, fifo = await desk.queue(), await desk.queue(fifo=True)
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "1"}
    for to, name, value, more in [
        (url, "Priority", text("7"), {}),
        (url, "Priority", number("1.5"), {}),
        (url, "Priority", number(2**31), {}),
        (url, "Key", number(7), {}),
        (url, "Key", text("x" * 256), {}),
        (url, "Type", {"DataType": "Binary", "BinaryValue": b"x"}, {}),
        (url, "Typ", text("welcome"), {}),
        (fifo, "Key", text("k"), ids),
    ]:
        given = {"MessageBody": "x", "MessageAttributes": {f"Fairturn.{name}": value}, **more}
        refused = await desk.refused("SendMessage", QueueUrl=to, **given)
        assert refused.code == "InvalidParameterValue"
        assert f"Fairturn.{name}" in refused.message


@everywhere()
async def test_strict_by_default(desk: Desk) -> None:
    url = await desk.queue()
    for given in ({"DelaySeconds": 901}, {"DelaySeconds": YEAR}):
        refused = await desk.refused("SendMessage", QueueUrl=url, MessageBody="x", **given)
        assert refused.code == "InvalidParameterValue"
    refused = await desk.refused("ReceiveMessage", QueueUrl=url, VisibilityTimeout=43_201)
    assert refused.code == "InvalidParameterValue"
    await send(desk, url, "x", Priority=number(7), Key=text("k"), Type=text("mail"))
    message = (await desk.core(url).peek(1))[0]
    assert (message.priority, message.key, message.type) == (0, None, None)
    [shown] = await desk.receive(url, MessageAttributeNames=["Fairturn.*"])
    assert set(shown["MessageAttributes"]) == {
        "Fairturn.Priority",
        "Fairturn.Key",
        "Fairturn.Type",
    }


@everywhere(extended=True)
async def test_a_client_calls_a_task_by_its_name(desk: Desk) -> None:
    url = await desk.queue()
    app = App(desk.url)
    greeted = asyncio.Event()

    @app.task(queue=name_of(url), name="greet")
    async def greet(name: str) -> None:
        assert name == "ann"
        greeted.set()

    await send(desk, url, '{"name": "ann"}', Type=text("greet"))
    async with app.worker(concurrency=1):
        await asyncio.wait_for(greeted.wait(), 30)
    await app.close_async()
    assert await desk.counts(url) == (0, 0, 0)
