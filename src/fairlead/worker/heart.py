"""One heartbeat for all leases of a worker.

A *pulse* is a permit of ours that is still needed. New messages are received under the newest one.
When a receive breaks at an unknown moment, the database may have given us messages that we know
nothing of, and under a living permit nobody would ever get them: so from then on we use a new
permit, and the old one is kept alive only until the work we know of is finished.

We trust a permit from the moment before we asked for it, on our own monotonic clock. If it could
not be extended until shortly before its end, its work is cancelled: others may have it now.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from fairlead.aio.database import AsyncDatabase
from fairlead.aio.queue import AsyncPermit
from fairlead.aio.waking import sleep
from fairlead.errors import DatabaseError, PermitLost
from fairlead.retrying import absence

log = logging.getLogger("fairlead.worker")
BEATS = 3  # heartbeats per life of a permit


class Pulse:
    """One permit and how much work hangs on it."""

    def __init__(self, permit: AsyncPermit, until: float) -> None:
        self.permit = permit
        self.until = until  # as far as we may trust it
        self.works = 0


class Heart:
    def __init__(
        self,
        db: AsyncDatabase,
        name: str,
        ttl: float,
        lost: Callable[[Pulse], None],
        alive: Callable[[bool], None],
    ) -> None:
        self._db = db
        self._name = name
        self._ttl = ttl
        self._lost = lost
        self._alive = alive
        self._renew = asyncio.Event()
        self._doubt = False
        self.margin = ttl / 10  # so long before the end of its trust work is cancelled
        self.pulses: list[Pulse] = []
        self.last = 0.0  # when it last beat

    @property
    def pulse(self) -> Pulse:
        return self.pulses[-1]

    async def start(self) -> None:
        asked = time.monotonic()
        permit = await self._db.permit(self._name, ttl=self._ttl)
        self.pulses.append(Pulse(permit, asked + self._ttl))
        self.last = time.monotonic()
        self._alive(True)

    def doubt(self) -> None:
        """The database may have given us what we do not know of: take a new permit."""
        self._doubt = True
        self._alive(False)
        self._renew.set()

    async def run(self) -> None:
        """Beat until cancelled."""
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
                log.log(level, "the heartbeat fails, nothing is claimed meanwhile: %s", error)
            else:
                if failures:
                    log.info("the heartbeat is back")
                failures = 0

    async def _beat(self) -> None:
        for pulse in list(self.pulses):
            if pulse not in self.pulses:
                continue  # it was given up while another was extended
            if pulse is not self.pulse and not pulse.works:
                self.pulses.remove(pulse)
                await pulse.permit.close()
                continue
            asked = time.monotonic()
            try:
                await pulse.permit.extend()
            except PermitLost:
                self._drop(pulse, "its permit expired")
            else:
                pulse.until = asked + self._ttl
        if self._doubt or not self.pulses:
            await self.start()
            self._doubt = False  # not before: it may have failed
        self.last = time.monotonic()
        self._alive(True)

    def distrust(self) -> None:
        """Cancel what can no longer be trusted, a little before its time. Called now and then,
        since the beat itself may hang."""
        soon = time.monotonic() + self.margin
        for pulse in [p for p in self.pulses if p.until <= soon]:
            self._drop(pulse, "it could not be extended in time")

    def _drop(self, pulse: Pulse, why: str) -> None:
        if pulse.works:
            log.error("%d leases are lost: %s; their handlers are cancelled", pulse.works, why)
        if pulse in self.pulses:
            self.pulses.remove(pulse)
        if not self.pulses:
            self._alive(False)  # there is nothing to receive under, until the next beat
        self._lost(pulse)
        self._renew.set()

    async def close(self) -> None:
        for pulse in self.pulses:
            await pulse.permit.close()
        self.pulses.clear()
