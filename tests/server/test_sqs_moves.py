"""Message move tasks, through Sqs.answer. Each test is named after the sentence of SQS.md, or of
the issue, that it proves. The steps are done one by one, on a clock that is moved."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from fairturn import AsyncQueue
from fairturn.server.sqs import message_mover
from tests.conformance.door import Clock
from tests.server.sqs_bench import Bench, arn_of, name_of
from tests.server.sqs_moving import bodies, finish, ready, start, status, tasks


@pytest.fixture
def clock() -> Clock:
    return Clock()


# --- what is refused --------------------------------------------------------------------------


async def test_the_source_must_be_a_dead_letter_queue_of_something(bench: Bench) -> None:
    url, dead = await bench.dead_letters()
    error = await bench.refusal("StartMessageMoveTask", SourceArn=arn_of(url))
    assert error.code == "InvalidParameterValue"
    assert error.message == "Source queue must be configured as a Dead Letter Queue."
    await bench.set(url, RedrivePolicy="")
    error = await bench.refusal("StartMessageMoveTask", SourceArn=arn_of(dead))
    assert error.message == "Source queue must be configured as a Dead Letter Queue."


async def test_a_missing_arn_is_resource_not_found(bench: Bench) -> None:
    _, dead = await bench.dead_letters()
    gone = arn_of("gone")
    handle = b64encode(json.dumps({"taskId": "x", "sourceArn": gone}).encode()).decode()
    for action, given, parameter in (
        ("StartMessageMoveTask", {"SourceArn": gone}, "SourceArn"),
        ("ListMessageMoveTasks", {"SourceArn": gone}, "SourceArn"),
        ("CancelMessageMoveTask", {"TaskHandle": handle}, "SourceArn"),
        (
            "StartMessageMoveTask",
            {"SourceArn": arn_of(dead), "DestinationArn": gone},
            "DestinationArn",
        ),
    ):
        error = await bench.refusal(action, **given)
        assert (error.code, error.status) == ("ResourceNotFoundException", 404)
        assert error.message == (
            f"The resource that you specified for the {parameter} parameter doesn't exist."
        )


async def test_what_is_no_arn_is_refused(bench: Bench) -> None:
    _, dead = await bench.dead_letters()
    for action, given, parameter in (
        ("StartMessageMoveTask", {"SourceArn": "x"}, "SourceArn"),
        ("ListMessageMoveTasks", {"SourceArn": "arn:aws:sns:x:123456789012:y"}, "SourceArn"),
        ("StartMessageMoveTask", {"SourceArn": arn_of(dead), "DestinationArn": ""}, "Destination"),
    ):
        error = await bench.refusal(action, **given)
        assert error.code == "InvalidParameterValue"
        assert error.message.startswith(f"You must use this format to specify the {parameter}")


async def test_the_destination_is_another_queue_of_the_same_type(bench: Bench) -> None:
    _, dead = await bench.dead_letters()
    fifo = await bench.queue({"FifoQueue": "true"})
    for to, text in (
        (dead, "Source queue arn and destination queue arn cannot be the same."),
        (fifo, "The source queue and destination queue must be of the same queue type."),
    ):
        error = await bench.refusal(
            "StartMessageMoveTask", SourceArn=arn_of(dead), DestinationArn=arn_of(to)
        )
        assert (error.code, error.message) == ("InvalidParameterValue", text)


async def test_the_rate_is_between_1_and_500(bench: Bench) -> None:
    _, dead = await bench.dead_letters()
    for rate in (0, 501, -1):
        error = await bench.refusal(
            "StartMessageMoveTask", SourceArn=arn_of(dead), MaxNumberOfMessagesPerSecond=rate
        )
        assert error.code == "InvalidParameterValue"
    await start(bench, dead, rate=500)


async def test_one_running_task_per_source(bench: Bench, clock: Clock) -> None:
    bench.on(clock)
    (url, dead), (_, other) = await bench.dead_letters(), await bench.dead_letters()
    await start(bench, dead)
    await start(bench, other)
    for to in (None, url):
        given = {} if to is None else {"DestinationArn": arn_of(to)}
        error = await bench.refusal("StartMessageMoveTask", SourceArn=arn_of(dead), **given)
        assert error.code == "InvalidParameterValue"
        assert error.message == (
            "There is already a task running. Only one active task is allowed for a source queue "
            "arn at a given time."
        )
    assert (await finish(bench, dead, clock))["Status"] == "COMPLETED"
    await start(bench, dead)


async def test_a_key_moves_only_where_it_may_send(bench: Bench) -> None:
    url, dead = await bench.dead_letters()
    other = await bench.queue()

    def allows(action: str, queue: str | None) -> bool:
        return queue == name_of(dead) or (action, queue) == ("SendMessage", name_of(other))

    def ask(action: str, **given: Any) -> Any:
        return bench.sqs.answer(bench.ask(action, allows=allows, **given))

    for action, given in (
        ("StartMessageMoveTask", {"SourceArn": arn_of(dead)}),
        ("StartMessageMoveTask", {"SourceArn": arn_of(dead), "DestinationArn": arn_of(url)}),
        ("StartMessageMoveTask", {"SourceArn": arn_of(other)}),
        ("StartMessageMoveTask", {"SourceArn": arn_of("gone")}),
        ("ListMessageMoveTasks", {"SourceArn": arn_of(url)}),
    ):
        with pytest.raises(Exception, match="AccessDenied") as caught:
            await ask(action, **given)
        assert caught.value.status == 403  # type: ignore[attr-defined]
    await ask("StartMessageMoveTask", SourceArn=arn_of(dead), DestinationArn=arn_of(other))
    [task] = (await ask("ListMessageMoveTasks", SourceArn=arn_of(dead)))["Results"]
    handle = json.dumps({"taskId": "x", "sourceArn": arn_of(url)})
    with pytest.raises(Exception, match="AccessDenied"):
        await ask("CancelMessageMoveTask", TaskHandle=b64encode(handle.encode()).decode())
    await ask("CancelMessageMoveTask", TaskHandle=task["TaskHandle"])


# --- moving -----------------------------------------------------------------------------------


async def test_without_a_destination_each_message_goes_back_to_its_own_source(
    bench: Bench, clock: Clock
) -> None:
    bench.on(clock)
    first, dead = await bench.dead_letters()
    policy = (await bench.attributes(first, "RedrivePolicy"))["RedrivePolicy"]
    second = await bench.queue({"RedrivePolicy": policy})
    await bench.die(first, "a", "b")
    await bench.die(second, "c")
    handle = await start(bench, dead)
    assert await tasks(bench, dead) == [
        {
            "TaskHandle": handle,
            "Status": "RUNNING",
            "SourceArn": arn_of(dead),
            "ApproximateNumberOfMessagesMoved": 0,
            "ApproximateNumberOfMessagesToMove": 3,
            "StartedTimestamp": int(clock.seconds * 1_000),
        }
    ]
    assert await finish(bench, dead, clock) == {
        "Status": "COMPLETED",
        "SourceArn": arn_of(dead),
        "ApproximateNumberOfMessagesMoved": 3,
        "ApproximateNumberOfMessagesToMove": 3,
        "StartedTimestamp": int(Clock().seconds * 1_000),
    }
    assert [await bodies(bench, url) for url in (first, second, dead)] == [["a", "b"], ["c"], []]


async def test_with_a_destination_all_go_there(bench: Bench, clock: Clock) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    other = await bench.queue()
    await bench.die(url, "a")
    await bench.core(dead).send("sent here")
    await start(bench, dead, other, rate=7)
    [task] = await tasks(bench, dead)
    assert task["DestinationArn"] == arn_of(other)
    assert task["MaxNumberOfMessagesPerSecond"] == 7
    task = await finish(bench, dead, clock)
    assert (task["Status"], task["DestinationArn"]) == ("COMPLETED", arn_of(other))
    assert await bodies(bench, other) == ["a", "sent here"]
    assert await ready(bench, url, dead) == [0, 0]


async def test_the_order_within_a_group_is_kept(bench: Bench, clock: Clock) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters(FifoQueue="true")
    for group in ("x", "y"):
        await bench.die(url, 1, 2, 3, channel=group)
    await start(bench, dead, rate=20)  # in several batches
    assert (await finish(bench, dead, clock))["Status"] == "COMPLETED"
    moved = await bench.core(url).peek(100)
    assert [one.body for one in moved if one.channel == "x"] == [1, 2, 3]
    assert [one.body for one in moved if one.channel == "y"] == [1, 2, 3]


async def test_a_moved_message_is_new_and_its_receive_count_restarts(
    bench: Bench, clock: Clock
) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, "a")
    [old] = await bench.core(dead).peek()
    clock.tick(60)
    await start(bench, dead)
    await finish(bench, dead, clock)
    [new] = await bench.core(url).receive()
    assert new.id != old.id
    assert (new.attempts, new.deliveries) == (1, 1)
    assert new.created_at == clock.moment()


async def test_messages_in_flight_stay(bench: Bench, clock: Clock) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, "a", "b")
    [held] = await bench.core(dead).receive()
    await start(bench, dead)
    task = await finish(bench, dead, clock)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 1)
    await held.ack()
    assert await bodies(bench, url) == ["b"]


async def test_a_task_moves_no_more_than_there_was_when_it_started(
    bench: Bench, clock: Clock
) -> None:
    """Else a message that dies again at once would keep it running for ever."""
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, *range(4))
    await start(bench, dead, rate=10)
    for _ in range(4):
        assert await status(bench, dead) == "RUNNING"
        assert await bench.sqs.mover.run_due_step() == 0
        [again] = await bench.core(url).receive()
        await again.kill()
        clock.tick(0.1)
    assert await status(bench, dead) == "COMPLETED"
    assert await ready(bench, url, dead) == [0, 4]
    await start(bench, dead)
    await bench.die(url, "late")
    await finish(bench, dead, clock)
    assert await ready(bench, url, dead) == [4, 1]


async def test_an_empty_source_is_completed(bench: Bench, clock: Clock) -> None:
    bench.on(clock)
    _, dead = await bench.dead_letters()
    await start(bench, dead)
    await bench.sqs.mover.run_due_step()
    assert await status(bench, dead) == "COMPLETED"


async def test_a_source_that_seems_empty_is_looked_at_twice(
    bench: Bench, clock: Clock, monkeypatch: Any
) -> None:
    """What a consumer has locked just then is not seen by a move."""
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, "a")
    await start(bench, dead)

    async def blind(*_: Any, **__: Any) -> int:
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(AsyncQueue, "move", blind)
        await bench.sqs.mover.run_due_step()
    assert await bench.sqs.mover.run_due_step() == pytest.approx(message_mover.SECOND_CHECK)
    assert (await finish(bench, dead, clock))["Status"] == "COMPLETED"
    assert await bodies(bench, url) == ["a"]


async def test_what_others_take_meanwhile_is_not_waited_for(bench: Bench, clock: Clock) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, "a", "b")
    await start(bench, dead)
    await bench.core(dead).purge()
    task = await finish(bench, dead, clock)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 0)


async def test_the_rate_is_honoured(bench: Bench, clock: Clock) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, *range(10))
    await start(bench, dead, rate=20)  # two every tenth of a second
    for moved in (2, 4, 6, 8):
        assert await bench.sqs.mover.run_due_step() == 0
        assert await ready(bench, url) == [moved]
        [task] = await tasks(bench, dead)
        assert task["ApproximateNumberOfMessagesMoved"] == moved
        assert await bench.sqs.mover.run_due_step() == pytest.approx(0.1)
        clock.tick(0.09)
        assert await bench.sqs.mover.run_due_step() == pytest.approx(0.01)
        assert await ready(bench, url) == [moved]
        clock.tick(0.01)
    await bench.sqs.mover.run_due_step()
    assert await status(bench, dead) == "COMPLETED"


async def test_the_slowest_rate_is_one_a_second(bench: Bench, clock: Clock) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, *range(3))
    await start(bench, dead, rate=1)
    for moved in (1, 2):
        await bench.sqs.mover.run_due_step()
        assert await ready(bench, url) == [moved]
        assert await bench.sqs.mover.run_due_step() == pytest.approx(1)
        clock.tick(1)


async def test_tasks_take_turns(bench: Bench, clock: Clock, monkeypatch: Any) -> None:
    monkeypatch.setattr(message_mover, "BATCH", 1)
    bench.on(clock)
    pairs = [await bench.dead_letters() for _ in range(2)]
    for url, dead in pairs:
        await bench.die(url, *range(3))
        await start(bench, dead)
    for round in (1, 2, 3):
        clock.tick(0.001)
        for _ in pairs:
            await bench.sqs.mover.run_due_step()
        assert [await ready(bench, url) for url, _ in pairs] == [[round], [round]]
