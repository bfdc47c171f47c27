"""Concurrent calls become one statement: who comes during a flight goes with the next.

    callers      a b c d e f g
    flights      [a]  [b c d e]   [f g]

A call that finds nobody on the way starts at once, by itself: being alone costs nothing. Flights
have a key (a queue); those of different keys do not wait for each other.

A flight fails as a whole. Where that may be the fault of one of its calls (a UsageError), each is
flown again alone, so that only the one at fault is refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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
        unclaimed: Callable[[K, Sequence[R]], Awaitable[None]] | None = None,
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
        if waiting is None:
            self._waiting[key] = deque()
            try:
                return await self._fly(key, items)
            finally:
                self._go_on(key)
        outcomes: asyncio.Future[Sequence[R]] = asyncio.get_running_loop().create_future()
        waiting.append(_Parcel(items, weight, outcomes))
        return await outcomes

    def _go_on(self, key: K) -> None:
        """The flight is over: the next one takes who waits."""
        if not self._waiting[key]:
            del self._waiting[key]
            return
        task = asyncio.create_task(self._run(key), name="fairlead-gathering")
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
