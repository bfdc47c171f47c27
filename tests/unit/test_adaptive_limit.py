"""How many calls may be on their way at once."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from fairturn.relay.sqs.adaptive_limit import AdaptiveLimit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def called(turns: AdaptiveLimit, clock: Clock, seconds: float, well: bool = True) -> int:
    began = clock.now
    clock.now += seconds
    turns.ended(began, well)
    return turns.limit


def turns_of(most: int = 8) -> tuple[AdaptiveLimit, Clock]:
    clock = Clock()
    return AdaptiveLimit(most, 2.0, clock), clock


def test_a_server_that_answers_in_time_gets_more_and_more() -> None:
    turns, clock = turns_of()
    assert turns.limit == 1
    assert [called(turns, clock, 0.1) for _ in range(9)] == [2, 3, 4, 5, 6, 7, 8, 8, 8]


def test_a_slow_one_gets_half_and_then_more_one_by_one() -> None:
    turns, clock = turns_of()
    for _ in range(7):
        called(turns, clock, 0.1)
    assert called(turns, clock, 2.1) == 4
    assert [called(turns, clock, 0.1) for _ in range(5)] == [4, 4, 4, 4, 5]
    assert called(turns, clock, 0.1, well=False) == 2  # turned away
    for _ in range(5):
        called(turns, clock, 9)
    assert turns.limit == 1


def test_calls_that_were_on_their_way_together_say_it_once() -> None:
    turns, clock = turns_of()
    for _ in range(7):
        called(turns, clock, 0.1)
    began = clock.now
    clock.now += 5
    for _ in range(8):
        turns.ended(began, well=False)
    assert turns.limit == 4


@given(st.integers(0, 2**32))
def test_never_more_at_once_than_allowed_and_all_get_their_turn(seed: int) -> None:
    dice = random.Random(seed)
    busy = 0

    async def main() -> None:
        turns = AdaptiveLimit(8, 2.0)

        async def call(n: int) -> None:
            nonlocal busy
            async with turns.one():
                assert busy < turns.limit
                busy += 1
                try:
                    for _ in range(dice.randrange(3)):
                        await asyncio.sleep(0)
                finally:
                    busy -= 1
                    turns.ended(float("inf"), dice.random() < 0.7)

        tasks = [asyncio.create_task(call(n)) for n in range(60)]
        for task in tasks:
            if dice.random() < 0.2:
                await asyncio.sleep(0)
                task.cancel()
        await asyncio.wait(tasks, timeout=60)
        assert all(task.done() for task in tasks)
        for task in tasks:
            assert task.cancelled() or task.exception() is None
        assert busy == 0

    asyncio.run(main())
