"""One heartbeat for all leases of a worker.

New messages are received under the newest permit that the worker holds. If a receive fails with an
unknown outcome, the database may have leased messages to us that we never saw; no other worker
could get them while their permit lives. So the worker takes a new permit, and extends the old one
only until the deliveries it knows of are finished.

We measure a permit's life on our monotonic clock, from the moment before the call that took or
extended it. So we never believe that it lives longer than it does. If a permit is about to end and
could not be extended, its handlers are cancelled, because other workers may soon get the messages.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from fairturn.aio.database import AsyncDatabase
from fairturn.aio.queue import AsyncPermit
from fairturn.core.errors import DatabaseError, PermitLost
from fairturn.execution.aio.waker import sleep
from fairturn.execution.retries import absence

log = logging.getLogger("fairturn.worker")
BEATS = 3  # heartbeats per life of a permit


class HeldPermit:
    """A permit and the number of deliveries under it."""

    def __init__(self, permit: AsyncPermit, until: float) -> None:
        self.permit = permit
        self.until = until  # it is valid until then, on the monotonic clock
        self.deliveries = 0


class Heartbeat:
    def __init__(
        self,
        db: AsyncDatabase,
        name: str,
        ttl: float,
        lost: Callable[[HeldPermit], None],
        alive: Callable[[bool], None],
    ) -> None:
        self._db = db
        self._name = name
        self._ttl = ttl
        self._lost = lost
        self._alive = alive
        self._renew = asyncio.Event()
        self._replace = False
        self.margin = ttl / 10  # seconds before a permit's end at which handlers are cancelled
        self.held_permits: list[HeldPermit] = []
        self.last = 0.0  # time of the last heartbeat

    @property
    def held_permit(self) -> HeldPermit:
        return self.held_permits[-1]

    async def start(self) -> None:
        asked = time.monotonic()
        permit = await self._db.permit(self._name, ttl=self._ttl)
        self.held_permits.append(HeldPermit(permit, asked + self._ttl))
        self.last = time.monotonic()
        self._alive(True)

    def replace_permit(self) -> None:
        """Take a new permit: the database may have leased messages to us that we never saw."""
        self._replace = True
        self._alive(False)
        self._renew.set()

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        failures = 0
        while True:
            if failures:
                await asyncio.sleep(absence(failures))
            else:
                await sleep(self._renew, self._ttl / BEATS)
            try:
                await self._beat()
            except DatabaseError as error:
                failures = min(failures + 1, 8)
                self._alive(False)
                level = logging.WARNING if failures == 1 else logging.DEBUG
                log.log(level, "the heartbeat fails; nothing is received meanwhile: %s", error)
            else:
                if failures:
                    log.info("the heartbeat succeeds again")
                failures = 0

    async def _beat(self) -> None:
        for held_permit in list(self.held_permits):
            if held_permit not in self.held_permits:
                continue  # it was dropped while another was extended
            if held_permit is not self.held_permit and not held_permit.deliveries:
                self.held_permits.remove(held_permit)
                await held_permit.permit.close()
                continue
            asked = time.monotonic()
            try:
                await held_permit.permit.extend()
            except PermitLost:
                self._drop(held_permit, "their permit expired")
            else:
                held_permit.until = asked + self._ttl
        if self._replace or not self.held_permits:
            await self.start()
            self._replace = False  # only now: start() may have failed
        self.last = time.monotonic()
        self._alive(True)

    def drop_expiring(self) -> None:
        """Drop permits shortly before they end. Called regularly, since a heartbeat may hang."""
        soon = time.monotonic() + self.margin
        for held_permit in [p for p in self.held_permits if p.until <= soon]:
            self._drop(held_permit, "their permit could not be extended in time")

    def _drop(self, held_permit: HeldPermit, why: str) -> None:
        if held_permit.deliveries:
            log.error(
                "%d leases are lost: %s; their handlers are cancelled", held_permit.deliveries, why
            )
        if held_permit in self.held_permits:
            self.held_permits.remove(held_permit)
        if not self.held_permits:
            self._alive(False)  # without a permit nothing can be received until the next heartbeat
        self._lost(held_permit)
        self._renew.set()

    async def close(self) -> None:
        for held_permit in self.held_permits:
            await held_permit.permit.close()
        self.held_permits.clear()
