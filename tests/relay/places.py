"""Destinations whose answers a test decides, and queues that go there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from fairturn.relay.destination import Outcome, Parcel
from fairturn.relay.runner import Relay
from tests.worker.bench import Bench


class Place:
    """Takes everything and remembers it, unless ``answer`` says otherwise."""

    shown = "a place"
    most = 100

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead
        self.came: list[Parcel] = []  # all that was brought, in order
        self.kept: list[Parcel] = []  # and what was taken
        self.waves: list[int] = []
        self.remaining: list[float] = []
        self.closed = False
        self.answer: Callable[[Parcel], Outcome] = lambda parcel: None
        self.gate = asyncio.Event()  # nobody comes in while it is shut
        self.gate.set()

    async def hand_over(self, parcels: Sequence[Parcel], now_us: int) -> Sequence[Outcome]:
        self.came += parcels
        await self.gate.wait()
        self.waves.append(len(parcels))
        outcomes = [self.answer(parcel) for parcel in parcels]
        for parcel, outcome in zip(parcels, outcomes, strict=True):
            if outcome is None:
                self.kept.append(parcel)
                self.remaining.append(parcel.remaining(now_us))
        return outcomes

    async def close(self) -> None:
        self.closed = True

    @property
    def bodies(self) -> list[Any]:
        return [parcel.message.body for parcel in self.kept]


@contextlib.asynccontextmanager
async def relayed(bench: Bench, place: Any, **options: Any) -> AsyncIterator[Relay]:
    """The test's queue goes to a place."""
    options.setdefault("schedules", False)
    async with Relay(bench.app.async_db, {bench.name: place}, **options) as relay:
        yield relay
