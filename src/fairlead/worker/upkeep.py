"""What a worker does on the side: send what schedules say is due, and keep the database tidy."""

from __future__ import annotations

import asyncio
import logging
import random

from fairlead.aio.database import AsyncDatabase
from fairlead.errors import DatabaseError

log = logging.getLogger("fairlead.worker")
LOOK = 5.0  # seconds after which a schedule that somebody added is noticed
REPEAT = 600.0  # seconds after which the same error of a schedule is logged again
TIDY = 60.0  # seconds between two rounds of maintenance, of each worker


class Upkeep:
    """Of a worker, or of a relay."""

    def __init__(self, db: AsyncDatabase) -> None:
        self._db = db
        self._loop = asyncio.get_running_loop()
        self._said: dict[str, tuple[str, float]] = {}  # errors of schedules: which, and when

    async def run(self) -> None:
        """Until cancelled. The database's absence is the worker's business."""
        tidy = self._loop.time() + random.uniform(0.5, 1) * TIDY
        while True:
            wait = LOOK
            try:
                wait = await self._schedules()
                if self._loop.time() >= tidy:
                    await self._maintain()
                    tidy = self._loop.time() + random.uniform(0.5, 1) * TIDY
            except DatabaseError as error:
                log.debug("upkeep has to wait: %s", error)
            await asyncio.sleep(wait)

    async def _schedules(self) -> float:
        done = await self._db.run_schedules()
        for name, error in done.errors:
            # It is tried again every few seconds; say so once in a while.
            said, at = self._said.get(name, ("", 0.0))
            if said != error or self._loop.time() - at > REPEAT:
                self._said[name] = (error, self._loop.time())
                log.error("schedule %s: %s", name, error)
        return LOOK if done.next_in is None else min(LOOK, max(done.next_in, 0.001))

    async def _maintain(self) -> None:
        while (await self._db.maintain()).more:
            await asyncio.sleep(0.1)  # others want the database, too
