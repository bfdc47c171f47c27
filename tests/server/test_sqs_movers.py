"""Move tasks in the background, on several servers, and after the death of one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairturn import AsyncLeasedMessage, AsyncQueue, DatabaseBusy, LeaseLost
from fairturn.server.sqs import message_mover, move_tasks
from fairturn.server.sqs.service import Sqs
from tests.conformance.door import Clock
from tests.server.sqs_bench import Bench
from tests.server.sqs_moving import bodies, finish, ready, start, status, tasks
from tests.worker.bench import eventually


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_a_started_server_moves_in_the_background(bench: Bench) -> None:
    await bench.sqs.start()
    url, dead = await bench.dead_letters()
    await bench.die(url, *range(20))
    await start(bench, dead, rate=100)

    async def ended() -> bool:
        return await status(bench, dead) != "RUNNING"

    await eventually(ended)
    assert await status(bench, dead) == "COMPLETED"
    assert await bodies(bench, url) == list(range(20))


async def test_two_servers_move_each_message_once(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr(message_mover, "BATCH", 7)
    monkeypatch.setattr(message_mover, "IDLE", 0.01)
    pairs = [await bench.dead_letters() for _ in range(3)]
    for url, _ in pairs:
        queue = bench.core(url)
        await queue.send_many(range(100))
        await queue.kill(await queue.receive(100))
    for sqs in (bench.sqs, bench.another()):
        await sqs.start()
    for _, dead in pairs:
        await start(bench, dead)

    async def ended() -> bool:
        return all([await status(bench, dead) != "RUNNING" for _, dead in pairs])

    await eventually(ended)
    for url, dead in pairs:
        [task] = await tasks(bench, dead)
        assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 100)
        assert sorted(await bodies(bench, url)) == list(range(100))  # standard: in any order


async def test_a_server_that_stops_leaves_the_rest_to_others_at_once(
    bench: Bench, clock: Clock
) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, *range(5))
    first = bench.another(clock=clock)
    await first.start()
    await start(bench, dead, rate=10)
    first.mover.wake()

    async def begun() -> bool:
        return await ready(bench, url) == [1]

    await eventually(begun)
    await first.close()
    clock.tick(0.1)  # the next step is due, and no lease is in its way
    assert (await finish(bench, dead, clock))["Status"] == "COMPLETED"
    assert await bodies(bench, url) == list(range(5))


async def kill(sqs: Sqs, patch: Any, owner: type, verb: str, after: bool) -> None:
    """Kill the mover of a server where it calls `verb`, before or after that is done: it is
    cancelled there and does nothing more, as with kill -9."""
    reached = asyncio.Event()
    real = getattr(owner, verb)

    async def stuck(*args: Any, **kwargs: Any) -> None:
        if after:
            await real(*args, **kwargs)
        reached.set()
        await asyncio.get_running_loop().create_future()

    with patch.context() as patched:
        patched.setattr(owner, verb, stuck)
        mover = asyncio.create_task(sqs.mover.run_due_step())
        async with asyncio.timeout(30):
            await reached.wait()
        mover.cancel()
        await asyncio.wait({mover})


@pytest.mark.parametrize(
    ("owner", "verb", "after"),
    [
        (AsyncQueue, "move", False),
        (AsyncQueue, "move", True),  # moved, and not counted
        (AsyncLeasedMessage, "defer", True),  # counted
    ],
)
async def test_a_task_survives_the_death_of_its_server(
    bench: Bench, clock: Clock, monkeypatch: Any, owner: type, verb: str, after: bool
) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, *range(5))
    await start(bench, dead, rate=20)
    await bench.sqs.mover.run_due_step()
    clock.tick(0.1)
    await kill(bench.sqs, monkeypatch, owner, verb, after)
    bench.on(clock)  # another server
    if verb == "move":  # not before the dead one's lease is over
        assert await bench.sqs.mover.run_due_step() == pytest.approx(move_tasks.LEASE)
        assert await status(bench, dead) == "RUNNING"
        clock.tick(move_tasks.LEASE)
    task = await finish(bench, dead, clock)
    assert task["Status"] == "COMPLETED"
    assert task["ApproximateNumberOfMessagesMoved"] == (3 if verb == "move" and after else 5)
    assert await bodies(bench, url) == list(range(5))
    assert await ready(bench, dead) == [0]


async def test_a_task_that_died_at_its_end_is_ended_once(
    bench: Bench, clock: Clock, monkeypatch: Any
) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, "a")
    await start(bench, dead)
    await kill(bench.sqs, monkeypatch, AsyncLeasedMessage, "ack", after=False)
    assert [one["Status"] for one in await tasks(bench, dead)] == ["COMPLETED"]
    bench.on(clock)
    clock.tick(move_tasks.LEASE)
    await bench.sqs.mover.run_due_step()
    assert [one["Status"] for one in await tasks(bench, dead)] == ["COMPLETED"]
    await start(bench, dead)
    assert (await finish(bench, dead, clock))["Status"] == "COMPLETED"
    assert await bodies(bench, url) == ["a"]


async def test_a_cancelled_task_is_cancelled_by_another_server_too(
    bench: Bench, clock: Clock, monkeypatch: Any
) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, "a", "b")
    handle = await start(bench, dead)
    await kill(bench.sqs, monkeypatch, AsyncQueue, "move", after=False)
    bench.on(clock)
    await bench("CancelMessageMoveTask", TaskHandle=handle)
    clock.tick(move_tasks.LEASE)
    assert (await finish(bench, dead, clock))["Status"] == "CANCELLED"
    assert await ready(bench, url, dead) == [0, 2]


async def test_who_has_lost_the_lease_ends_nothing(bench: Bench, clock: Clock) -> None:
    bench.on(clock)
    url, dead = await bench.dead_letters()
    await bench.die(url, "a")
    await start(bench, dead)
    [slow] = await bench.sqs.moves.claim()
    clock.tick(move_tasks.LEASE)
    assert (await finish(bench, dead, clock))["Status"] == "COMPLETED"
    late = move_tasks.Report(move_tasks.Task(**slow.body), "FAILED", 0, "late")
    with pytest.raises(LeaseLost):
        await bench.sqs.moves.end(slow, late)
    assert [one["Status"] for one in await tasks(bench, dead)] == ["COMPLETED"]


async def test_trouble_with_the_database_is_waited_out(
    bench: Bench, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(message_mover, "ERROR_PAUSE", 0.01)
    url, dead = await bench.dead_letters()
    await bench.die(url, "a")
    real = move_tasks.Moves.claim
    failures = [OSError("odd"), LeaseLost("q", [1]), DatabaseBusy("busy")]

    async def troubled(self: move_tasks.Moves) -> Any:
        if failures:
            raise failures.pop()
        return await real(self)

    monkeypatch.setattr(move_tasks.Moves, "claim", troubled)
    await bench.sqs.start()
    await start(bench, dead)

    async def ended() -> bool:
        return await status(bench, dead) == "COMPLETED"

    await eventually(ended)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
