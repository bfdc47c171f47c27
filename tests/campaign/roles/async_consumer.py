"""A consumer on the async API: several receives and verbs in one event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import fairturn
from tests.campaign.roles.consumers import answer, leases, seen, value_of, ways_for, work
from tests.campaign.roles.role import Stage
from tests.campaign.world import CONSUMED, LEASE

LINES = 3  # receive at the same time


class AsyncConsumer:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._loop = asyncio.new_event_loop()
        self._db = fairturn.connect_async(stage.spec.url, pool_size=3)

    def step(self) -> None:
        self._loop.run_until_complete(self._lines())

    async def _lines(self) -> None:
        await asyncio.gather(*(self._line() for _ in range(LINES)))

    async def _line(self) -> None:
        dice = self._stage.dice
        queue = dice.choice(CONSUMED)
        messages: Any = []
        n, wait = dice.randint(1, 4), dice.choice([0, 0.1])
        with self._stage.history.call("receive", queue=queue, n=n, lease=LEASE) as call:
            messages = await self._db.queue(queue).receive(n, wait=wait, lease=LEASE)
            call.ok(deliveries=seen(messages))
        if messages and dice.random() < 0.2 and queue != "asks":
            about = {"verb": "ack", "leases": leases(messages), "queue": queue}
            with self._stage.history.call("verb", **about) as call:
                call.ok(lost=leases((await self._db.queue(queue).ack(messages)).lost))
            return
        ways = {way: w for way, w in ways_for(queue).items() if way not in ("carry", "transaction")}
        for message in messages:
            await asyncio.sleep(dice.uniform(*work(message, dice)))
            await self._settle(queue, message, dice.choices(list(ways), list(ways.values()))[0])
        if not messages:
            await asyncio.sleep(dice.uniform(0.005, 0.03))

    async def _settle(self, queue: str, message: Any, way: str) -> None:
        if way == "late":
            await asyncio.sleep(self._stage.dice.uniform(LEASE, LEASE * 1.3))
        verb = "ack" if way in ("late", "many") else way
        about = {"verb": verb, "leases": leases([message]), "queue": queue, "lease": LEASE}
        with self._stage.history.call("verb", **about):
            if verb == "defer":
                await message.defer(0.3)
            elif verb == "complete":
                await message.complete(answer(value_of(message)))
            elif verb == "extend":
                await message.extend(LEASE)
            else:
                await getattr(message, verb)()
        if verb == "extend":
            await self._settle(queue, message, "ack")

    def close(self) -> None:
        self._loop.run_until_complete(self._db.close())
        self._loop.close()


ROLES = {"async": AsyncConsumer}
