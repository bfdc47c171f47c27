"""Concurrent calls become one: what comes while a flight is on its way goes with the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest

from fairlead.errors import DatabaseUnavailable, InvalidArgument
from fairlead.server.sqs.gathering import Gathering


class Airport:
    """Flights wait until they are let go; each item's outcome is its double."""

    def __init__(self, **options: Any) -> None:
        self.flights: list[list[int]] = []
        self.gate = asyncio.Event()
        self.bad: dict[int, BaseException] = {}
        self.gathering: Gathering[str, int, int] = Gathering(self.fly, **({"most": 100} | options))

    async def fly(self, key: str, items: Sequence[int]) -> Sequence[int]:
        self.flights.append(list(items))
        await self.gate.wait()
        for item in items:
            if item in self.bad:
                raise self.bad[item]
        return [item * 2 for item in items]

    def add(self, *items: int, weight: int = 0, key: str = "q") -> asyncio.Task[Sequence[int]]:
        return asyncio.create_task(self.gathering.add(key, items, weight))


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
    airport = Airport()
    calls = [airport.add(1)]
    await turn()
    calls += [airport.add(2), airport.add(3, 4), airport.add(5)]
    await turn()
    airport.gate.set()
    assert [list(await call) for call in calls] == [[2], [4], [6, 8], [10]]
    assert airport.flights == [[1], [2, 3, 4, 5]]


@in_a_loop
async def test_being_alone_makes_no_task() -> None:
    airport = Airport()
    airport.gate.set()
    before = asyncio.all_tasks()
    for item in range(3):
        assert list(await airport.gathering.add("q", [item])) == [item * 2]
        assert asyncio.all_tasks() == before
    assert airport.flights == [[0], [1], [2]]


@in_a_loop
async def test_different_keys_do_not_wait_for_each_other() -> None:
    airport = Airport()
    calls = [airport.add(1, key="a"), airport.add(2, key="b")]
    await turn()
    assert airport.flights == [[1], [2]]
    airport.gate.set()
    await asyncio.gather(*calls)


@in_a_loop
async def test_a_flight_has_its_bounds_and_a_parcel_stays_whole() -> None:
    airport = Airport(most=3, heaviest=10)
    calls = [airport.add(0)]
    await turn()
    calls += [airport.add(1, 2), airport.add(3, 4), airport.add(5), airport.add(6, 7, 8, 9)]
    calls += [airport.add(10, weight=6), airport.add(11, weight=6), airport.add(12, weight=99)]
    await turn()
    airport.gate.set()
    await asyncio.gather(*calls)
    assert airport.flights == [[0], [1, 2], [3, 4, 5], [6, 7, 8, 9], [10], [11], [12]]


@in_a_loop
async def test_only_the_one_at_fault_is_refused() -> None:
    airport = Airport()
    airport.bad = {3: InvalidArgument("three")}
    calls = [airport.add(1)]
    await turn()
    calls += [airport.add(2), airport.add(3), airport.add(4)]
    await turn()
    airport.gate.set()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert done[0] == [2]
    assert done[1] == [4]
    assert isinstance(done[2], InvalidArgument)
    assert done[3] == [8]
    assert airport.flights == [[1], [2, 3, 4], [2], [3], [4]]


@in_a_loop
async def test_what_nobody_is_at_fault_for_is_not_repeated() -> None:
    airport = Airport()
    airport.bad = {3: DatabaseUnavailable("gone")}
    calls = [airport.add(1)]
    await turn()
    calls += [airport.add(2), airport.add(3)]
    await turn()
    airport.gate.set()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in done] == [list, DatabaseUnavailable, DatabaseUnavailable]
    assert airport.flights == [[1], [2, 3]]
    assert list(await airport.add(4)) == [8]  # and it goes on


@in_a_loop
async def test_a_caller_who_goes_before_the_flight_is_not_on_it() -> None:
    airport = Airport()
    calls = [airport.add(1)]
    await turn()
    gone, stays = airport.add(2), airport.add(3)
    await turn()
    gone.cancel()
    await turn()
    airport.gate.set()
    assert list(await stays) == [6]
    assert list(await calls[0]) == [2]
    assert airport.flights == [[1], [3]]


@in_a_loop
async def test_what_a_caller_who_has_gone_was_to_get_is_handed_over() -> None:
    left: list[tuple[str, list[int]]] = []

    async def unclaimed(key: str, outcomes: Sequence[int]) -> None:
        left.append((key, list(outcomes)))

    airport = Airport(unclaimed=unclaimed)
    first = airport.add(1)
    await turn()
    gone, stays = airport.add(2), airport.add(3)
    await turn()
    opened, airport.gate = airport.gate, asyncio.Event()  # the next flight has a gate of its own
    opened.set()
    await first
    while len(airport.flights) < 2:
        await asyncio.sleep(0)
    gone.cancel()
    await turn()
    airport.gate.set()
    assert list(await stays) == [6]
    assert left == [("q", [4])]


@in_a_loop
async def test_also_what_the_first_one_was_to_get() -> None:
    left: list[int] = []

    async def unclaimed(key: str, outcomes: Sequence[int]) -> None:
        left.extend(outcomes)

    airport = Airport(unclaimed=unclaimed)
    gone = airport.add(1)
    await turn()
    gone.cancel()  # the flight is on its way, and arrives
    await turn()
    assert gone.cancelled()
    airport.gate.set()
    assert list(await airport.add(2)) == [4]
    assert left == [2]
    assert airport.flights == [[1], [2]]


@in_a_loop
async def test_also_what_comes_in_the_moment_its_caller_goes() -> None:
    left: list[int] = []
    callers: list[asyncio.Task[Sequence[int]]] = []

    async def unclaimed(key: str, outcomes: Sequence[int]) -> None:
        left.extend(outcomes)

    async def fly(key: str, items: Sequence[int]) -> Sequence[int]:
        # The outcome is told before this runs, and its caller has not yet been resumed.
        asyncio.get_running_loop().call_soon(callers[0].cancel)
        return [item * 2 for item in items]

    gathering: Gathering[str, int, int] = Gathering(fly, most=100, unclaimed=unclaimed)
    callers.append(asyncio.create_task(gathering.add("q", [1])))
    await asyncio.wait(callers)
    await gathering.close()
    assert callers[0].cancelled()
    assert left == [2]


@in_a_loop
async def test_the_first_callers_going_does_not_hold_up_the_others() -> None:
    airport = Airport()
    first = airport.add(1)
    await turn()
    second = airport.add(2)
    await turn()
    first.cancel()
    await turn()
    airport.gate.set()
    assert list(await second) == [4]


@in_a_loop
async def test_close_waits_for_what_is_on_its_way() -> None:
    airport = Airport()
    calls = [airport.add(1)]
    await turn()
    calls.append(airport.add(2))
    await turn()
    airport.gate.set()
    await calls[0]
    await airport.gathering.close()
    await turn()
    assert calls[1].done()
    assert not airport.gathering._waiting


@pytest.mark.parametrize("calls", [1, 50])
def test_nothing_is_kept_of_a_key_when_its_calls_are_over(calls: int) -> None:
    async def test() -> None:
        airport = Airport()
        airport.gate.set()
        work: list[Awaitable[Any]] = [airport.add(n, key=f"k{n % 5}") for n in range(calls)]
        await asyncio.gather(*work)
        await airport.gathering.close()
        assert airport.gathering._waiting == {}
        assert airport.gathering._tasks == set()

    asyncio.run(test())
