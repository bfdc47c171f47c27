"""``Relay``: all queues of a database that have a destination, each on its own route.

Any number of relays may run on one database: they share the messages as consumers do. A destination
that is down, or that cannot be used as it is written, stops nothing but its own queue.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from fairlead.aio.database import AsyncDatabase
from fairlead.aio.running import be_patient
from fairlead.errors import DatabaseError, InvalidArgument, QueueNotFound
from fairlead.relay.addresses import (
    address_of,
    check,
    check_other,
    expanded,
    open_destination,
)
from fairlead.relay.destination import Destination, DestinationError
from fairlead.relay.presence import show_presence
from fairlead.relay.route import Counts, Route, remember
from fairlead.worker.upkeep import Upkeep

log = logging.getLogger("fairlead.relay")
PATIENCE = 10.0  # seconds for an answer of the database, or more if leases are long
LOOK = 5.0  # seconds after which a new queue, or a changed destination, is noticed …
GLANCE = 50  # … among the queues without one: so many of them at a time
GRACE = 40.0  # seconds for what is on its way when we are stopped: what takes longer comes again
SET = 60.0  # seconds after which the database's clock is read again


class Relay:
    """Hand the due messages of queues over to their destinations.

    Without ``destinations`` each queue's own ``meta`` says where its messages go, and changes are
    noticed; ``queues`` picks some of them. ``schedules``: also send what schedules have due, and
    keep the database tidy, as a worker does. ``ahead``: hand over at most so many seconds early.
    A connection of ``db`` that does not answer in 10 s, or half a lease, is given up: do not share
    it with calls that take longer."""

    def __init__(
        self,
        db: AsyncDatabase,
        destinations: Mapping[str, Destination | str] | None = None,
        *,
        queues: Sequence[str] | None = None,
        lease: float = 30.0,
        ahead: float | None = None,
        schedules: bool = True,
    ) -> None:
        if not isinstance(db, AsyncDatabase):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(
                "a Relay runs in an event loop: give it fairlead.connect_async(…)"
            )
        for destination in (destinations or {}).values():
            if isinstance(destination, str):
                check(destination)
        self.db = db
        self.routes: dict[str, Route] = {}
        self.ready = False  # it has looked at every queue once
        self._given = destinations
        self._only = None if queues is None else frozenset(queues)
        self._lease = lease
        self._ahead = ahead
        self._schedules = schedules
        self._running: dict[str, asyncio.Task[None]] = {}
        self._where: dict[str, str] = {}  # the address of each route, as it is written
        self._seen: dict[str, None] = {}  # queues without a destination, least lately seen first
        self._wrong: dict[str, str] = {}  # what was said of addresses that cannot be used
        self._past: list[Counts] = []  # of routes that have ended
        self._clock = (0, 0.0)  # the database's, ours
        self._stopping = asyncio.Event()
        self._background: asyncio.Task[None] | None = None

    # --- life -----------------------------------------------------------------------------------
    def stop(self) -> None:
        """Claim nothing more; ``run`` ends when what is on its way has arrived."""
        self._stopping.set()
        for route in self.routes.values():
            route.stop()

    async def __aenter__(self) -> Relay:
        self._background = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._background is not None
        self.stop()
        await self._background

    async def run(self) -> None:
        """Until ``stop``. A database that is away is waited for."""
        # One that says nothing is given up before our leases end.
        be_patient(self.db.runner, max(PATIENCE, self._lease / 2))
        beside = [asyncio.create_task(show_presence(self.db))]
        if self._schedules:
            beside.append(asyncio.create_task(Upkeep(self.db).run()))
        try:
            while not self._stopping.is_set():
                try:
                    await self._look()
                    self.ready = True
                except DatabaseError as error:
                    log.warning("the relay has to wait for its database: %s", str(error))
                await self._sleep(LOOK if self.ready else 1.0)
        finally:
            self.stop()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self._land(self._running.values())

    async def _land(self, routes: Collection[asyncio.Task[None]]) -> None:
        if not routes:
            return
        _, late = await asyncio.wait(routes, timeout=GRACE)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    # --- which queues ---------------------------------------------------------------------------
    async def _look(self) -> None:
        await self._set_clock()
        if self._given is not None:
            for queue, destination in self._given.items():
                if queue not in self.routes:
                    await self._start(queue, destination)
            return
        names = [n for n in await self.db.queues() if self._only is None or n in self._only]
        self._seen = {name: None for name in self._seen if name in names}
        unseen = [n for n in names if n not in self._seen and n not in self._where]
        for name in [*self._where, *unseen, *list(self._seen)[:GLANCE]]:
            self._seen.pop(name, None)
            await self._direct(name)

    async def _direct(self, name: str) -> None:
        try:
            where = address_of((await self.db.queue(name).settings()).meta)
        except QueueNotFound:
            where = None
        before = self._where.get(name)
        if before is not None and where != before:
            await self._end(name)
        if where is None:
            self._seen[name] = None
        elif where != before:
            self._where[name] = where
            await self._start(name, where)

    async def _end(self, name: str) -> None:
        """Its address has changed: let what is on its way arrive first."""
        route, task = self.routes.pop(name, None), self._running.pop(name, None)
        self._where.pop(name, None)
        if route is not None and task is not None:
            route.stop()
            await self._land([task])
            self._past.append(route.counts)
            log.info("queue %s no longer goes to %s", name, route.destination.shown)

    async def _start(self, name: str, destination: Destination | str) -> None:
        if isinstance(destination, str):
            try:
                destination = self._open(destination, name)
            except DestinationError as error:
                if self._wrong.get(name) != str(error):
                    self._wrong[name] = str(error)
                    log.error("queue %s is not relayed: %s", name, error)
                    await remember(self.db.queue(name), str(error), self.now())
                self._where.pop(name, None)
                return
        if self._wrong.pop(name, None) is not None:
            await remember(self.db.queue(name), None)
        route = Route(
            self.db.queue(name), destination, self.now, lease=self._lease, ahead=self._ahead
        )
        log.info("queue %s goes to %s", name, destination.shown)
        self.routes[name] = route
        self._running[name] = asyncio.create_task(route.run())

    def _open(self, address: str, queue: str) -> Destination:
        check_other(expanded(address, os.environ), queue, self.db.target.shown)
        return open_destination(address, queue)

    # --- the clock ------------------------------------------------------------------------------
    def now(self) -> int:
        """Microseconds, by the database's clock: that is what due times are measured by."""
        theirs, ours = self._clock
        return theirs + int((time.monotonic() - ours) * 1_000_000)

    async def _set_clock(self) -> None:
        if time.monotonic() - self._clock[1] > SET or not self._clock[0]:
            before = time.monotonic()
            theirs = await self.db.clock()
            self._clock = (theirs, (before + time.monotonic()) / 2)

    # --- what it does ---------------------------------------------------------------------------
    def totals(self) -> Counts:
        """What was done since it started, over all queues."""
        every = [*self._past, *(route.counts for route in self.routes.values())]
        return Counts(*(sum(getattr(one, f.name) for one in every) for f in fields(Counts)))

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """By queue: where it goes, why it is down, what was done."""
        return {
            name: {
                "destination": route.destination.shown,
                "down": route.down,
                **asdict(route.counts),
            }
            for name, route in self.routes.items()
        }
