"""Long polls: they wake for everything that makes a message visible, and cost next to nothing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from unittest.mock import patch

import fairturn
from fairturn.server.sqs.traffic import receive_attempts
from tests.server.sqs_desk import Desk, everywhere, name_of


def poll(desk: Desk, url: str, n: int = 10, **given: Any) -> asyncio.Task[list[str]]:
    given = {"WaitTimeSeconds": 20, **given}
    return asyncio.create_task(desk.bodies(url, n, **given))


# --- what ends a poll ---


@everywhere()
async def test_a_poll_returns_at_once_when_there_is_something(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url, "here")
    assert await poll(desk, url) == ["here"]  # and does not wait to fill ten
    assert len(desk.sqs.traffic.polls) == 0


@everywhere()
async def test_a_poll_wakes_for_a_new_message(desk: Desk) -> None:
    url = await desk.queue()
    waiting = poll(desk, url)
    await desk.polling(url, 1)
    await desk.send(url, "new")
    assert await waiting == ["new"]


@everywhere()
async def test_a_poll_wakes_for_a_message_of_another_process(desk: Desk) -> None:
    url = await desk.queue()
    waiting = poll(desk, url)
    await desk.polling(url, 1)
    async with fairturn.connect_async(desk.url) as other:
        await other.queue(name_of(url)).send("from the library")
    assert await waiting == ["from the library"]


@everywhere()
async def test_a_poll_wakes_when_a_delay_has_elapsed(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url, "later", DelaySeconds=1)
    assert await poll(desk, url) == ["later"]


@everywhere()
async def test_a_poll_wakes_when_a_visibility_has_expired(desk: Desk) -> None:
    url = await desk.queue(VisibilityTimeout=1)
    await desk.send(url, "again")
    await desk.receive(url)
    assert await poll(desk, url) == ["again"]


@everywhere()
async def test_a_poll_wakes_when_a_visibility_was_made_0(desk: Desk) -> None:
    url = await desk.queue()
    await desk.send(url, "again")
    [message] = await desk.receive(url)
    waiting = poll(desk, url)
    await desk.polling(url, 1)
    await desk.change(url, message, 0)
    assert await waiting == ["again"]


@everywhere()
async def test_a_poll_wakes_when_a_group_is_unblocked_by_a_delete(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    await desk.send_to(url, "g", "1", "2")
    [message] = await desk.receive(url, 1)
    waiting = poll(desk, url)
    await desk.polling(url, 1)
    await desk.delete(url, message)
    assert await waiting == ["2"]


@everywhere()
async def test_a_poll_wakes_when_a_group_is_unblocked_by_another_process(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    await desk.send_to(url, "g", "1", "2")
    async with fairturn.connect_async(desk.url) as other:
        [message] = await other.queue(name_of(url)).receive(1)
        waiting = poll(desk, url)
        await desk.polling(url, 1)
        await message.ack()
        assert await waiting == ["2"]


@everywhere()
async def test_a_poll_ends_empty_when_its_time_is_over(desk: Desk) -> None:
    url = await desk.queue()
    assert await desk.ask("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=1) == {}


@everywhere()
async def test_the_queue_says_how_long_and_0_overrides_it(desk: Desk) -> None:
    url = await desk.queue(ReceiveMessageWaitTimeSeconds=20)
    assert await desk.receive(url, WaitTimeSeconds=0) == []
    waiting = asyncio.create_task(desk.bodies(url))
    await desk.polling(url, 1)
    await desk.send(url, "new")
    assert await waiting == ["new"]


@everywhere()
async def test_a_poll_on_a_queue_that_is_deleted_is_told(desk: Desk) -> None:
    url = await desk.queue()
    waiting = asyncio.create_task(desk.refused("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20))
    await desk.polling(url, 1)
    await desk.ask("DeleteQueue", QueueUrl=url)
    assert (await waiting).code == "AWS.SimpleQueueService.NonExistentQueue"
    assert len(desk.sqs.traffic.polls) == 0


@everywhere()
async def test_open_polls_are_answered_when_the_server_closes(desk: Desk) -> None:
    url, other = await desk.queue(), await desk.queue()
    polls = [poll(desk, one) for one in (url, url, other)]
    await desk.polling(url, 3)
    await desk.sqs.close()
    assert await asyncio.gather(*polls) == [[], [], []]
    assert await poll(desk, url) == []  # and none begins to wait


# --- many ---


@everywhere()
async def test_a_thousand_polls_take_no_thread_and_no_connection(desk: Desk) -> None:
    urls = [await desk.queue() for _ in range(4)]
    for url in urls:
        await desk.receive(url)
    threads = threading.active_count()
    tasks = len(asyncio.all_tasks())
    polls = [poll(desk, urls[n % 4], 1) for n in range(1000)]
    await desk.polling(urls[0], 1000)
    assert threading.active_count() <= threads + 1  # SQLite's one, if it was not there
    # Each poll here is a request's task; besides those there is one a queue, and perhaps its look.
    assert len(asyncio.all_tasks()) - tasks - 1000 <= 4 * 2 + 2
    await asyncio.gather(*(desk.send(urls[n % 4], str(n)) for n in range(1000)))
    got = await asyncio.gather(*polls)
    assert sorted(int(body) for [body] in got) == list(range(1000))


@everywhere()
async def test_one_message_goes_to_the_first_in_line(desk: Desk) -> None:
    url = await desk.queue()
    polls = []
    for n in range(3):
        polls.append(poll(desk, url))
        await desk.polling(url, n + 1)
    for text in "abc":
        await desk.send(url, text)
        await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        assert await polls.pop(0) == [text]
        assert not any(one.done() for one in polls)


@everywhere()
async def test_polls_with_different_visibility_each_have_their_own(desk: Desk) -> None:
    url = await desk.queue()
    short = poll(desk, url, VisibilityTimeout=0)
    await desk.polling(url, 1)
    long = poll(desk, url, VisibilityTimeout=1000)
    await desk.polling(url, 2)
    await desk.send(url, "x")
    assert await short == ["x"]
    assert await long == ["x"]
    assert await desk.counts(url) == (0, 1, 0)


# --- clients that go ---


@everywhere()
async def test_a_client_that_goes_leaves_the_line(desk: Desk) -> None:
    url = await desk.queue()
    first, second = poll(desk, url), poll(desk, url)
    await desk.polling(url, 2)
    first.cancel()
    await asyncio.wait([first])
    assert len(desk.sqs.traffic.polls) == 1
    await desk.send(url, "x")
    assert await second == ["x"]


@everywhere()
async def test_what_a_client_that_has_gone_was_given_goes_to_the_next(desk: Desk) -> None:
    url = await desk.queue()
    leaving = _leaving_when_given(desk)
    first, second = poll(desk, url), poll(desk, url)
    leaving.set_result(first)
    await desk.polling(url, 2)
    await desk.send(url, "x")
    assert await second == ["x"]
    assert first.cancelled()
    assert await desk.counts(url) == (0, 1, 0)


@everywhere()
async def test_or_it_is_released_and_that_is_no_attempt(desk: Desk) -> None:
    url = await desk.queue()
    leaving = _leaving_when_given(desk)
    client = poll(desk, url)
    leaving.set_result(client)
    await desk.polling(url, 1)
    await desk.send(url, "x")
    await asyncio.wait([client])
    assert client.cancelled()
    while await desk.counts(url) != (1, 0, 0):
        await asyncio.sleep(0.001)
    [message] = await desk.core(url).receive(1)
    assert message.attempts == 1


@everywhere()
async def test_an_attempt_that_could_not_be_remembered_holds_nothing(desk: Desk) -> None:
    url = await desk.queue(fifo=True)
    await desk.send_to(url, "g", "x")
    remembering = asyncio.Event()

    async def remember(*_: Any) -> None:
        remembering.set()
        await asyncio.Event().wait()

    with patch.object(receive_attempts, "remember", remember):
        client = poll(desk, url, ReceiveRequestAttemptId="a")
        await remembering.wait()
        client.cancel()
        await asyncio.wait([client])
    assert await poll(desk, url) == ["x"]


def _leaving_when_given(desk: Desk) -> asyncio.Future[asyncio.Task[Any]]:
    """The client to be put in here goes when a message is leased for it, before it is told."""
    polls = desk.sqs.traffic.polls
    receive = polls._receive
    client: asyncio.Future[asyncio.Task[Any]] = asyncio.get_running_loop().create_future()

    async def receiving(*args: Any) -> Any:
        messages = await receive(*args)
        if messages and not client.result().done():
            client.result().cancel()
            await asyncio.wait([client.result()])
        return messages

    polls._receive = receiving
    return client
