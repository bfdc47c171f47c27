"""Which group of a FIFO queue is next, and how far a group is given.

Here Fairturn differs from what SQS.md derives of AWS, and says so in docs/sqs.md: channels take
turns by name, and in a channel what is not due yet holds up nothing. A change of either must be
seen.
"""

from __future__ import annotations

from tests.server.sqs_desk import Desk, everywhere


async def drained(desk: Desk, url: str) -> list[str]:
    """Received and deleted one at a time."""
    order: list[str] = []
    while messages := await desk.receive(url, 1):
        order.append(messages[0]["Body"])
        await desk.delete(url, messages[0])
    return order


@everywhere()
async def test_a_run_of_a_group_ends_where_something_is_in_flight(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    await desk.send_to(url, "g", *"12345")
    first = await desk.receive(url, 3)
    assert [message["Body"] for message in first] == ["1", "2", "3"]
    await desk.delete(url, first[0])
    await desk.delete(url, first[2])
    assert await desk.receive(url) == []  # the second is still out
    await desk.change(url, first[1], 0)
    assert await desk.bodies(url) == ["2", "4", "5"]


@everywhere()
async def test_groups_take_turns_by_name_ten_of_each(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    await desk.send_to(url, "b", *(f"b{n}" for n in range(2)))
    await desk.send_to(url, "a", *(f"a{n}" for n in range(12)))
    of_a = [f"a{n}" for n in range(12)]
    assert await drained(desk, url) == [*of_a[:10], "b0", "b1", *of_a[10:]]


@everywhere(clock=True)
async def test_what_is_delayed_is_overtaken_by_what_is_ready(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    # A FIFO message has no delay of its own, but the queue's may change.
    for body, delay in (("1", 0), ("2", 10), ("3", 0)):
        attributes = {"DelaySeconds": str(delay)}
        await desk.ask("SetQueueAttributes", QueueUrl=url, Attributes=attributes)
        await desk.send_to(url, "g", body)
    assert await drained(desk, url) == ["1", "3"]
    desk.clock.move(10)
    assert await drained(desk, url) == ["2"]


@everywhere(clock=True)
async def test_with_one_delay_for_all_a_group_keeps_its_order(desk: Desk) -> None:
    url = await desk.queue(fifo=True, DelaySeconds=10)
    await desk.send_to(url, "g", "1")
    desk.clock.move(5)
    await desk.send_to(url, "g", "2")
    desk.clock.move(5)
    assert await drained(desk, url) == ["1"]  # and stops at the first that is delayed
    desk.clock.move(5)
    assert await drained(desk, url) == ["2"]
