"""``Relay``: all queues of a database that have a destination, each with its own route.

Any number of relays may run on one database: they share the messages, as consumers do. A
destination that is down, or whose address is wrong, stops only its own queue.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from fairturn import internal
from fairturn.aio.database import AsyncDatabase
from fairturn.aio.upkeep import Upkeep
from fairturn.core.errors import DatabaseError, InvalidArgument, QueueNotFound
from fairturn.relay.addresses import (
    address_of,
    check,
    check_other,
    expanded,
    open_destination,
)
from fairturn.relay.destination import Destination, DestinationError
from fairturn.relay.registration import show_presence
from fairturn.relay.route import Counts, Route, pause, remember

log = logging.getLogger("fairturn.relay")
ANSWER_TIMEOUT = 10.0  # seconds for an answer of the database, or more if leases are long
CHECK = 5.0  # seconds between two checks for new queues and changed destinations
CHECKED = 50  # queues without a destination that one check reads
GRACE = 40.0  # seconds for the current hand-overs after stop(); later ones happen again
SET = 60.0  # seconds after which the database's clock is read again


class Relay:
    """Hands the due messages of queues over to their destinations.

    Without ``destinations``, the address in the ``meta`` of each queue is used, and its changes are
    noticed; ``queues`` limits it to some of them. ``schedules``: also run schedules and
    maintenance, as a worker does. ``ahead``: hand over at most so many seconds early. A connection
    of ``db`` that does not answer within 10 s, or half a lease, is given up: use another ``db`` for
    calls that take longer."""

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
            raise InvalidArgument("a Relay runs in an event loop: use fairturn.connect_async(…)")
        for destination in (destinations or {}).values():
            if isinstance(destination, str):
                check(destination)
        self.db = db
        self.routes: dict[str, Route] = {}
        self.ready = False  # it has checked every queue once
        self._given = destinations
        self._only = None if queues is None else frozenset(queues)
        self._lease = lease
        self._ahead = ahead
        self._schedules = schedules
        self._running: dict[str, asyncio.Task[None]] = {}
        self._where: dict[str, str] = {}  # the address of each route, with its variables
        self._seen: dict[str, None] = {}  # queues without a destination, the longest ago first
        self._wrong: dict[str, str] = {}  # by queue, the error of an address that cannot be used
        self._past: list[Counts] = []  # of routes that have ended
        self._clock = (0, 0.0)  # the same moment by the database's clock and by ours
        self._stopping = asyncio.Event()
        self._background: asyncio.Task[None] | None = None

    # --- life -----------------------------------------------------------------------------------
    def stop(self) -> None:
        """Receive no more; ``run`` ends when the current hand-overs have ended."""
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
        """Hand over until ``stop``. If the database is away, it waits for it."""
        # A connection that does not answer is given up before our leases end.
        internal.set_answer_timeout(self.db, max(ANSWER_TIMEOUT, self._lease / 2))
        beside = [asyncio.create_task(show_presence(self.db))]
        if self._schedules:
            beside.append(asyncio.create_task(Upkeep(self.db).run()))
        try:
            while not self._stopping.is_set():
                try:
                    await self._check_queues()
                    self.ready = True
                except DatabaseError as error:
                    log.warning("the relay waits for its database: %s", str(error))
                await pause(self._stopping, CHECK if self.ready else 1.0)
        finally:
            self.stop()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self._await_routes(self._running.values())

    async def _await_routes(self, routes: Collection[asyncio.Task[None]]) -> None:
        """Wait for routes to end, and cancel those that take too long."""
        if not routes:
            return
        _, late = await asyncio.wait(routes, timeout=GRACE)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    # --- which queues ---------------------------------------------------------------------------
    async def _check_queues(self) -> None:
        await self._set_clock()
        if self._given is not None:
            for queue, destination in self._given.items():
                if queue not in self.routes:
                    await self._start(queue, destination)
            return
        names = [n for n in await self.db.queues() if self._only is None or n in self._only]
        self._seen = {name: None for name in self._seen if name in names}
        unseen = [n for n in names if n not in self._seen and n not in self._where]
        for name in [*self._where, *unseen, *list(self._seen)[:CHECKED]]:
            self._seen.pop(name, None)
            await self._check_queue(name)

    async def _check_queue(self, name: str) -> None:
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
        """End a route whose address has changed, after its current hand-overs."""
        route, task = self.routes.pop(name, None), self._running.pop(name, None)
        self._where.pop(name, None)
        if route is not None and task is not None:
            route.stop()
            await self._await_routes([task])
            self._past.append(route.counts)
            log.info("queue %s no longer goes to %s", name, route.destination.shown)

    async def _start(self, name: str, destination: Destination | str) -> None:
        if isinstance(destination, str):
            try:
                check_other(expanded(destination, os.environ), name, self.db.target.shown)
                destination = open_destination(destination, name)
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

    # --- the clock ------------------------------------------------------------------------------
    def now(self) -> int:
        """Microseconds by the database's clock, which due times refer to."""
        theirs, ours = self._clock
        return theirs + int((time.monotonic() - ours) * 1_000_000)

    async def _set_clock(self) -> None:
        theirs, ours = self._clock
        if time.monotonic() - ours > SET or not theirs:
            before = time.monotonic()
            theirs = await self.db.clock()
            self._clock = (theirs, (before + time.monotonic()) / 2)

    # --- counts ---------------------------------------------------------------------------------
    def totals(self) -> Counts:
        """The counts of all queues since it started."""
        every = [*self._past, *(route.counts for route in self.routes.values())]
        return Counts(*(sum(getattr(one, f.name) for one in every) for f in fields(Counts)))

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """By queue: its destination, why that is down, and its counts."""
        return {
            name: {
                "destination": route.destination.shown,
                "down": route.down,
                **asdict(route.counts),
            }
            for name, route in self.routes.items()
        }
