"""How move tasks are listed, cancelled and fail. Each test is named after the sentence of SQS.md,
or of the issue, that it proves. The steps are done one by one, on a clock that is moved."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

import pytest

from fairturn import AsyncQueue
from fairturn.server.sqs import message_mover, move_tasks
from fairturn.server.sqs.queue_cache import INTERNAL
from tests.conformance.door import Clock
from tests.server.sqs_bench import Bench, arn_of, name_of
from tests.server.sqs_moving import bodies, finish, ready, start, tasks


@pytest.fixture
def clock() -> Clock:
    return Clock()


# --- listing ----------------------------------------------------------------------------------


async def test_a_task_handle_is_base64_of_the_task_and_its_source(bench: Bench) -> None:
    _, dead = await bench.dead_letters()
    handle = json.loads(b64decode(await start(bench, dead)))
    assert handle.keys() == {"taskId", "sourceArn"}
    assert handle["sourceArn"] == arn_of(dead)


async def test_the_last_10_tasks_are_listed_newest_first(bench: Bench, clock: Clock) -> None:
    bench.on(clock)
    _, dead = await bench.dead_letters()
    assert await tasks(bench, dead) == []
    for _ in range(12):
        clock.tick(1)
        await start(bench, dead)
        await finish(bench, dead, clock)
    clock.tick(1)
    await start(bench, dead)
    kept = await bench.sqs.db.queue(INTERNAL).recall(f"ended:{name_of(dead)}")
    assert len(kept) == 10
    found = await tasks(bench, dead)
    assert [one["Status"] for one in found] == ["RUNNING"] + 9 * ["COMPLETED"]
    assert ["TaskHandle" in one for one in found] == [True] + 9 * [False]
    started = [one["StartedTimestamp"] for one in found]
    assert started == sorted(started, reverse=True)
    assert started[0] == clock.seconds * 1_000
    [latest] = (await bench("ListMessageMoveTasks", SourceArn=arn_of(dead)))["Results"]
    assert latest["Status"] == "RUNNING"  # one, unless more are asked for
    for most in (0, 11):
        error = await bench.refusal("ListMessageMoveTasks", SourceArn=arn_of(dead), MaxResults=most)
        assert error.code == "InvalidParameterValue"
        assert "MaxResults must be between 1 and 10." in error.message


async def test_tasks_of_a_deleted_queue_are_not_those_of_a_new_one(
    bench: Bench, clock: Clock
) -> None:
    bench.on(clock)
    _, dead = await bench.dead_letters()
    await start(bench, dead)
    await finish(bench, dead, clock)
    await bench("DeleteQueue", QueueUrl=dead)
    clock.tick(1)
    await bench.queue(name=name_of(dead))
    assert await tasks(bench, dead) == []


# --- cancelling -------------------------------------------------------------------------------


async def test_a_running_task_can_be_cancelled(bench: Bench, clock: Clock) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, *range(5))
    handle = await start(bench, dead, rate=10)
    await bench.sqs.mover.run_due_step()
    assert await bench("CancelMessageMoveTask", TaskHandle=handle) == {
        "ApproximateNumberOfMessagesMoved": 1
    }
    [task] = await tasks(bench, dead)
    assert task["Status"] == "CANCELLING"
    assert "TaskHandle" not in task
    again = {"SourceArn": arn_of(dead)}
    assert (
        "already a task running" in (await bench.refusal("StartMessageMoveTask", **again)).message
    )
    error = await bench.refusal("CancelMessageMoveTask", TaskHandle=handle)
    assert error.code == "AWS.SimpleQueueService.UnsupportedOperation"
    task = await finish(bench, dead, clock)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("CANCELLED", 1)
    assert await ready(bench, url, dead) == [1, 4]
    error = await bench.refusal("CancelMessageMoveTask", TaskHandle=handle)
    assert error.code == "AWS.SimpleQueueService.UnsupportedOperation"
    await start(bench, dead)
    assert (await finish(bench, dead, clock))["Status"] == "COMPLETED"
    assert await ready(bench, url, dead) == [5, 0]


async def test_what_is_no_task_cannot_be_cancelled(bench: Bench) -> None:
    _, dead = await bench.dead_letters()
    unknown = json.dumps({"taskId": "x", "sourceArn": arn_of(dead)}).encode()
    error = await bench.refusal("CancelMessageMoveTask", TaskHandle=b64encode(unknown).decode())
    assert (error.code, error.status) == ("ResourceNotFoundException", 404)
    assert error.message == "Task does not exist."
    for handle in ("x", "ü", b64encode(b"{}").decode(), b64encode(b"[1]").decode()):
        error = await bench.refusal("CancelMessageMoveTask", TaskHandle=handle)
        assert error.code == "InvalidParameterValue"
        assert error.message == "Value for parameter TaskHandle is invalid."


# --- failing ----------------------------------------------------------------------------------


async def test_a_task_fails_when_its_destination_vanishes(bench: Bench, clock: Clock) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    other = await bench.queue()
    await bench.die(url, *range(5))
    await start(bench, dead, other, rate=10)
    await bench.sqs.mover.run_due_step()
    await bench("DeleteQueue", QueueUrl=other)
    task = await finish(bench, dead, clock)
    assert task["Status"] == "FAILED"
    assert task["FailureReason"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert task["ApproximateNumberOfMessagesMoved"] == 1
    assert "TaskHandle" not in task
    assert await ready(bench, dead) == [4]


async def test_a_task_fails_where_a_message_has_no_source_to_go_back_to(
    bench: Bench, clock: Clock
) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, "a")
    await bench.core(dead).send("sent here")
    await start(bench, dead)
    task = await finish(bench, dead, clock)
    assert task["Status"] == "FAILED"
    assert task["FailureReason"] == "CouldNotDetermineMessageSource"
    assert [await bodies(bench, one) for one in (url, dead)] == [["a"], ["sent here"]]


async def test_a_step_that_never_ends_fails_the_task(
    bench: Bench, clock: Clock, monkeypatch: Any
) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, "a")
    await start(bench, dead)

    async def broken(*_: Any, **__: Any) -> int:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(AsyncQueue, "move", broken)
        for _ in range(message_mover.TRIES):
            with pytest.raises(RuntimeError):
                await bench.sqs.mover.run_due_step()
            clock.tick(move_tasks.LEASE)
    task = await finish(bench, dead, clock)
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "InternalError")
    assert await ready(bench, url, dead) == [0, 1]
