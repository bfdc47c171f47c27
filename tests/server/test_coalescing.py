"""Concurrent calls become one: what comes while a batch is on its way goes with the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest

from fairturn.core.errors import DatabaseUnavailable, InvalidArgument
from fairturn.server.sqs.traffic.coalescing import Coalescer


class Recorder:
    """Flights wait until they are let go; each item's outcome is its double."""

    def __init__(self, **options: Any) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.bad: dict[int, BaseException] = {}
        self.coalescer: Coalescer[str, int, int] = Coalescer(
            self.run, **({"max_items": 100} | options)
        )

    async def run(self, key: str, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        await self.gate.wait()
        for item in items:
            if item in self.bad:
                raise self.bad[item]
        return [item * 2 for item in items]

    def add(self, *items: int, weight: int = 0, key: str = "q") -> asyncio.Task[Sequence[int]]:
        return asyncio.create_task(self.coalescer.add(key, items, weight))


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@in_a_loop
async def test_who_comes_meanwhile_goes_with_the_next() -> None:
    recorder = Recorder()
    calls = [recorder.add(1)]
    await turn()
    calls += [recorder.add(2), recorder.add(3, 4), recorder.add(5)]
    await turn()
    recorder.gate.set()
    assert [list(await call) for call in calls] == [[2], [4], [6, 8], [10]]
    assert recorder.batches == [[1], [2, 3, 4, 5]]


@in_a_loop
async def test_being_alone_makes_no_task() -> None:
    recorder = Recorder()
    recorder.gate.set()
    before = asyncio.all_tasks()
    for item in range(3):
        assert list(await recorder.coalescer.add("q", [item])) == [item * 2]
        assert asyncio.all_tasks() == before
    assert recorder.batches == [[0], [1], [2]]


@in_a_loop
async def test_different_keys_do_not_wait_for_each_other() -> None:
    recorder = Recorder()
    calls = [recorder.add(1, key="a"), recorder.add(2, key="b")]
    await turn()
    assert recorder.batches == [[1], [2]]
    recorder.gate.set()
    await asyncio.gather(*calls)


@in_a_loop
async def test_a_flight_has_its_bounds_and_a_parcel_stays_whole() -> None:
    recorder = Recorder(max_items=3, max_weight=10)
    calls = [recorder.add(0)]
    await turn()
    calls += [recorder.add(1, 2), recorder.add(3, 4), recorder.add(5), recorder.add(6, 7, 8, 9)]
    calls += [recorder.add(10, weight=6), recorder.add(11, weight=6), recorder.add(12, weight=99)]
    await turn()
    recorder.gate.set()
    await asyncio.gather(*calls)
    assert recorder.batches == [[0], [1, 2], [3, 4, 5], [6, 7, 8, 9], [10], [11], [12]]


@in_a_loop
async def test_only_the_one_at_fault_is_refused() -> None:
    recorder = Recorder()
    recorder.bad = {3: InvalidArgument("three")}
    calls = [recorder.add(1)]
    await turn()
    calls += [recorder.add(2), recorder.add(3), recorder.add(4)]
    await turn()
    recorder.gate.set()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert done[0] == [2]
    assert done[1] == [4]
    assert isinstance(done[2], InvalidArgument)
    assert done[3] == [8]
    assert recorder.batches == [[1], [2, 3, 4], [2], [3], [4]]


@in_a_loop
async def test_what_nobody_is_at_fault_for_is_not_repeated() -> None:
    recorder = Recorder()
    recorder.bad = {3: DatabaseUnavailable("gone")}
    calls = [recorder.add(1)]
    await turn()
    calls += [recorder.add(2), recorder.add(3)]
    await turn()
    recorder.gate.set()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in done] == [list, DatabaseUnavailable, DatabaseUnavailable]
    assert recorder.batches == [[1], [2, 3]]
    assert list(await recorder.add(4)) == [8]  # and it goes on


@in_a_loop
async def test_a_caller_who_goes_before_the_flight_is_not_on_it() -> None:
    recorder = Recorder()
    calls = [recorder.add(1)]
    await turn()
    gone, stays = recorder.add(2), recorder.add(3)
    await turn()
    gone.cancel()
    await turn()
    recorder.gate.set()
    assert list(await stays) == [6]
    assert list(await calls[0]) == [2]
    assert recorder.batches == [[1], [3]]


@in_a_loop
async def test_what_a_caller_who_has_gone_was_to_get_is_handed_over() -> None:
    left: list[tuple[str, list[int]]] = []

    async def unclaimed(key: str, outcomes: Sequence[int]) -> None:
        left.append((key, list(outcomes)))

    recorder = Recorder(unclaimed=unclaimed)
    first = recorder.add(1)
    await turn()
    gone, stays = recorder.add(2), recorder.add(3)
    await turn()
    opened, recorder.gate = recorder.gate, asyncio.Event()  # the next batch has a gate of its own
    opened.set()
    await first
    while len(recorder.batches) < 2:
        await asyncio.sleep(0)
    gone.cancel()
    await turn()
    recorder.gate.set()
    assert list(await stays) == [6]
    assert left == [("q", [4])]


@in_a_loop
async def test_also_what_the_first_one_was_to_get() -> None:
    left: list[int] = []

    async def unclaimed(key: str, outcomes: Sequence[int]) -> None:
        left.extend(outcomes)

    recorder = Recorder(unclaimed=unclaimed)
    gone = recorder.add(1)
    await turn()
    gone.cancel()  # the batch is on its way, and arrives
    await turn()
    assert gone.cancelled()
    recorder.gate.set()
    assert list(await recorder.add(2)) == [4]
    assert left == [2]
    assert recorder.batches == [[1], [2]]


@in_a_loop
async def test_also_what_comes_in_the_moment_its_caller_goes() -> None:
    left: list[int] = []
    callers: list[asyncio.Task[Sequence[int]]] = []

    async def unclaimed(key: str, outcomes: Sequence[int]) -> None:
        left.extend(outcomes)

    async def run(key: str, items: Sequence[int]) -> Sequence[int]:
        # The outcome is told before this runs, and its caller has not yet been resumed.
        asyncio.get_running_loop().call_soon(callers[0].cancel)
        return [item * 2 for item in items]

    coalescer: Coalescer[str, int, int] = Coalescer(run, max_items=100, unclaimed=unclaimed)
    callers.append(asyncio.create_task(coalescer.add("q", [1])))
    await asyncio.wait(callers)
    await coalescer.close()
    assert callers[0].cancelled()
    assert left == [2]


@in_a_loop
async def test_the_first_callers_going_does_not_hold_up_the_others() -> None:
    recorder = Recorder()
    first = recorder.add(1)
    await turn()
    second = recorder.add(2)
    await turn()
    first.cancel()
    await turn()
    recorder.gate.set()
    assert list(await second) == [4]


@in_a_loop
async def test_close_waits_for_what_is_on_its_way() -> None:
    recorder = Recorder()
    calls = [recorder.add(1)]
    await turn()
    calls.append(recorder.add(2))
    await turn()
    recorder.gate.set()
    await calls[0]
    await recorder.coalescer.close()
    await turn()
    assert calls[1].done()
    assert not recorder.coalescer._waiting


@pytest.mark.parametrize("calls", [1, 50])
def test_nothing_is_kept_of_a_key_when_its_calls_are_over(calls: int) -> None:
    async def test() -> None:
        recorder = Recorder()
        recorder.gate.set()
        work: list[Awaitable[Any]] = [recorder.add(n, key=f"k{n % 5}") for n in range(calls)]
        await asyncio.gather(*work)
        await recorder.coalescer.close()
        assert recorder.coalescer._waiting == {}
        assert recorder.coalescer._tasks == set()

    asyncio.run(test())
