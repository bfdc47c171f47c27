"""Coalescing: concurrent calls become one statement.

    calls        a b c d e f g
    batches      [a]  [b c d e]   [f g]

A call that finds no running batch starts one immediately, so a single caller never waits. Calls
that come while a batch runs go into the next one. Batches have a key (a queue); those of different
keys do not wait for each other.

If outcomes must not be lost (received messages), every batch runs in a task of its own: if a batch
ran in a caller's task and that task were cancelled, the outcomes of all its calls would be lost.

A batch fails as a whole. If a single call may be the cause (a UsageError), each call is run again
alone, so that only the bad call fails.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fairturn.core.errors import UsageError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class _Call(Generic[T, R]):
    """One caller's items, which stay together and in their order."""

    items: Sequence[T]
    weight: int
    outcomes: asyncio.Future[Sequence[R]]


class Coalescer(Generic[K, T, R]):
    """``run_batch(key, items)`` does the work and returns one outcome for each item."""

    def __init__(
        self,
        run_batch: Callable[[K, Sequence[T]], Awaitable[Sequence[R]]],
        *,
        max_items: int,
        max_weight: int | None = None,
        unclaimed: Callable[[K, Sequence[R]], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """A batch has at most ``max_items`` items and ``max_weight`` weight, unless it is a single
        call. ``unclaimed`` gets the outcomes of a call that was cancelled meanwhile."""
        self._run_batch = run_batch
        self._max_items = max_items
        self._max_weight = max_weight
        self._unclaimed = unclaimed
        # Waiting calls, by key. A key is present exactly while a batch of it runs.
        self._waiting: dict[K, deque[_Call[T, R]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, key: K, items: Sequence[T], weight: int = 0) -> Sequence[R]:
        """Run these items in a batch; return their outcomes, in their order."""
        waiting = self._waiting.get(key)
        first = waiting is None
        if waiting is None:
            waiting = self._waiting[key] = deque()
            if self._unclaimed is None:
                try:
                    return await self._run_batch(key, items)
                finally:
                    if waiting:
                        self._start(self._run(key))
                    else:
                        del self._waiting[key]
        outcomes: asyncio.Future[Sequence[R]] = asyncio.get_running_loop().create_future()
        waiting.append(_Call(items, weight, outcomes))
        if first:
            self._start(self._run(key))
        try:
            return await outcomes
        except asyncio.CancelledError:
            if self._unclaimed is not None and _succeeded(outcomes):
                # The caller was cancelled just when its outcomes came.
                self._start(self._unclaimed(key, outcomes.result()))
            raise

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="fairturn-coalescing")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, key: K) -> None:
        waiting = self._waiting[key]
        try:
            while waiting:
                calls = self._take(waiting)
                if calls:
                    await self._serve(key, calls)
        finally:
            # Empty, unless this task was cancelled: then no other task would serve these calls.
            for call in waiting:
                call.outcomes.cancel()
            del self._waiting[key]

    def _take(self, waiting: deque[_Call[T, R]]) -> list[_Call[T, R]]:
        batch: list[_Call[T, R]] = []
        count = weight = 0
        while waiting:
            call = waiting[0]
            if call.outcomes.done():  # its caller was cancelled
                waiting.popleft()
                continue
            count += len(call.items)
            weight += call.weight
            full = count > self._max_items or (
                self._max_weight is not None and weight > self._max_weight
            )
            if batch and full:
                break
            batch.append(waiting.popleft())
        return batch

    async def _serve(self, key: K, calls: list[_Call[T, R]]) -> None:
        items = [item for call in calls for item in call.items]
        try:
            outcomes = await self._run_batch(key, items)
        except BaseException as error:
            if isinstance(error, UsageError) and len(calls) > 1:
                for call in calls:
                    await self._serve(key, [call])
                return
            self._fail(calls, error)
            if not isinstance(error, Exception):
                raise
            return
        start = 0
        for call in calls:
            part = outcomes[start : start + len(call.items)]
            start += len(call.items)
            if not call.outcomes.done():
                call.outcomes.set_result(part)
            elif self._unclaimed is not None:
                await self._unclaimed(key, part)

    def _fail(self, calls: list[_Call[T, R]], error: BaseException) -> None:
        for call in calls:
            if call.outcomes.done():
                continue
            if isinstance(error, Exception):
                call.outcomes.set_exception(error)
            else:
                call.outcomes.cancel()

    async def close(self) -> None:
        """Wait for the running batches."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))


def _succeeded(outcomes: asyncio.Future[Any]) -> bool:
    return outcomes.done() and not outcomes.cancelled() and outcomes.exception() is None
