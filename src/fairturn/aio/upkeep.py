"""What a worker or relay does beside its work: run due schedules, and maintenance."""

from __future__ import annotations

import asyncio
import logging
import random

from fairturn.aio.database import AsyncDatabase
from fairturn.core.errors import DatabaseError

log = logging.getLogger("fairturn.worker")
CHECK = 5.0  # seconds after which a new schedule is noticed
REPEAT = 600.0  # seconds after which the same error of a schedule is logged again
MAINTAIN = 60.0  # seconds between two rounds of maintenance, of each worker


class Upkeep:
    """The upkeep of one worker or relay."""

    def __init__(self, db: AsyncDatabase) -> None:
        self._db = db
        self._loop = asyncio.get_running_loop()
        self._said: dict[
            str, tuple[str, float]
        ] = {}  # the last logged error of a schedule, and when

    async def run(self) -> None:
        """Run until cancelled. If the database is away, try again: the worker reports it."""
        tidy = self._loop.time() + random.uniform(0.5, 1) * MAINTAIN
        while True:
            wait = CHECK
            try:
                wait = await self._schedules()
                if self._loop.time() >= tidy:
                    await self._maintain()
                    tidy = self._loop.time() + random.uniform(0.5, 1) * MAINTAIN
            except DatabaseError as error:
                log.debug("upkeep will try again: %s", error)
            await asyncio.sleep(wait)

    async def _schedules(self) -> float:
        done = await self._db.run_schedules()
        for name, error in done.errors:
            # The schedule is tried again every few seconds, but not logged each time.
            said, at = self._said.get(name, ("", 0.0))
            if said != error or self._loop.time() - at > REPEAT:
                self._said[name] = (error, self._loop.time())
                log.error("schedule %s: %s", name, error)
        return CHECK if done.next_in is None else min(CHECK, max(done.next_in, 0.001))

    async def _maintain(self) -> None:
        while (await self._db.maintain()).more:
            await asyncio.sleep(0.1)  # let others use the database
