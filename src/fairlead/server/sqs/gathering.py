"""Concurrent calls become one statement: who comes during a flight goes with the next.

    callers      a b c d e f g
    flights      [a]  [b c d e]   [f g]

A call that finds nobody on the way starts at once, by itself: being alone costs nothing. Flights
have a key (a queue); those of different keys do not wait for each other.

Where outcomes must not get lost (received messages) no caller flies itself: a flight that is
cancelled in the middle may have done its work, and nobody would know what it brought.

A flight fails as a whole. Where that may be the fault of one of its calls (a UsageError), each is
flown again alone, so that only the one at fault is refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fairlead.errors import UsageError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class _Parcel(Generic[T, R]):
    """One caller's items, which stay together and in their order."""

    items: Sequence[T]
    weight: int
    outcomes: asyncio.Future[Sequence[R]]


class Gathering(Generic[K, T, R]):
    """``fly(key, items)`` does the work for all and returns an outcome for each item."""

    def __init__(
        self,
        fly: Callable[[K, Sequence[T]], Awaitable[Sequence[R]]],
        *,
        most: int,
        heaviest: int | None = None,
        unclaimed: Callable[[K, Sequence[R]], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """A flight has at most ``most`` items and ``heaviest`` weight, or is one caller's.
        ``unclaimed`` takes the outcomes of a caller who has gone meanwhile."""
        self._fly = fly
        self._most = most
        self._heaviest = heaviest
        self._unclaimed = unclaimed
        # Those who wait, by key. A key is here exactly while a flight of it is on its way.
        self._waiting: dict[K, deque[_Parcel[T, R]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, key: K, items: Sequence[T], weight: int = 0) -> Sequence[R]:
        """The outcomes of these items, in their order."""
        waiting = self._waiting.get(key)
        first = waiting is None
        if waiting is None:
            waiting = self._waiting[key] = deque()
            if self._unclaimed is None:
                try:
                    return await self._fly(key, items)
                finally:
                    self._go_on(key)
        outcomes: asyncio.Future[Sequence[R]] = asyncio.get_running_loop().create_future()
        waiting.append(_Parcel(items, weight, outcomes))
        if first:
            self._go_on(key)
        try:
            return await outcomes
        except asyncio.CancelledError:
            if self._unclaimed is not None and _arrived(outcomes):
                # They came in the moment their caller went.
                self._start(self._unclaimed(key, outcomes.result()))
            raise

    def _go_on(self, key: K) -> None:
        """The flight is over: the next one takes who waits."""
        if not self._waiting[key]:
            del self._waiting[key]
            return
        self._start(self._run(key))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="fairlead-gathering")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, key: K) -> None:
        waiting = self._waiting[key]
        try:
            while waiting:
                parcels = self._take(waiting)
                if parcels:
                    await self._serve(key, parcels)
        finally:
            # Empty, unless this task was cancelled: then nobody is left to serve them.
            for parcel in waiting:
                parcel.outcomes.cancel()
            del self._waiting[key]

    def _take(self, waiting: deque[_Parcel[T, R]]) -> list[_Parcel[T, R]]:
        taken: list[_Parcel[T, R]] = []
        count = weight = 0
        while waiting:
            parcel = waiting[0]
            if parcel.outcomes.done():  # its caller has gone
                waiting.popleft()
                continue
            count += len(parcel.items)
            weight += parcel.weight
            full = count > self._most or (self._heaviest is not None and weight > self._heaviest)
            if taken and full:
                break
            taken.append(waiting.popleft())
        return taken

    async def _serve(self, key: K, parcels: list[_Parcel[T, R]]) -> None:
        items = [item for parcel in parcels for item in parcel.items]
        try:
            outcomes = await self._fly(key, items)
        except BaseException as error:
            if isinstance(error, UsageError) and len(parcels) > 1:
                for parcel in parcels:
                    await self._serve(key, [parcel])
                return
            self._fail(parcels, error)
            if not isinstance(error, Exception):
                raise
            return
        start = 0
        for parcel in parcels:
            part = outcomes[start : start + len(parcel.items)]
            start += len(parcel.items)
            if not parcel.outcomes.done():
                parcel.outcomes.set_result(part)
            elif self._unclaimed is not None:
                await self._unclaimed(key, part)

    def _fail(self, parcels: list[_Parcel[T, R]], error: BaseException) -> None:
        for parcel in parcels:
            if parcel.outcomes.done():
                continue
            if isinstance(error, Exception):
                parcel.outcomes.set_exception(error)
            else:
                parcel.outcomes.cancel()

    async def close(self) -> None:
        """Wait for the flights that are on their way."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))


def _arrived(outcomes: asyncio.Future[Any]) -> bool:
    return outcomes.done() and not outcomes.cancelled() and outcomes.exception() is None
