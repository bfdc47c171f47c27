"""The worker: one asyncio loop that does what the plan says.

Its parts: ``plan`` decides, ``claimer`` receives, ``slots`` run handlers, ``settler`` acks,
``heart`` keeps the leases alive, ``leaving`` stops. A message walks claimer, slots, settler.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from fairlead.aio.database import AsyncDatabase
from fairlead.aio.running import be_patient
from fairlead.errors import DatabaseError, InvalidArgument, SchemaOutdated
from fairlead.tasks.middleware import overriding
from fairlead.tasks.task import Task
from fairlead.tasks.verdicts import seconds
from fairlead.values import Duration
from fairlead.worker.claiming import Claimer
from fairlead.worker.health import snapshot
from fairlead.worker.heart import Heart, Pulse
from fairlead.worker.home import Home
from fairlead.worker.journal import Journal
from fairlead.worker.leaving import leave
from fairlead.worker.metrics import Metrics
from fairlead.worker.plan import Plan
from fairlead.worker.reserve import Reserve
from fairlead.worker.settling import Settler
from fairlead.worker.slots import Slots
from fairlead.worker.upkeep import Upkeep
from fairlead.worker.witness import Witness
from fairlead.worker.work import LOST

log = logging.getLogger("fairlead.worker")
PERMIT = 30.0  # seconds a permit lives without a heartbeat, at most
PATIENCE = 5.0  # seconds that the database may take to answer, at least


class Worker:
    """Made by ``app.worker()``: run it with ``await worker.run()`` or ``async with worker:``."""

    loop: asyncio.AbstractEventLoop
    db: AsyncDatabase
    claimer: Claimer
    heart: Heart
    settler: Settler
    slots: Slots

    def __init__(
        self,
        app: Home,
        *,
        concurrency: int = 10,
        queues: Mapping[str, int] | Sequence[str] | None = None,
        prefetch: int = 1000,
        reserve: Mapping[int, int] | None = None,
        grace: Duration = 30,
        name: str | None = None,
    ) -> None:
        self.app = app
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self.grace = seconds(grace)
        self.tasks = _by_queue(app, queues)
        weights = queues if isinstance(queues, Mapping) else dict.fromkeys(self.tasks, 1)
        kept = None if reserve is None else Reserve(reserve)
        self.plan = Plan(concurrency, weights, prefetch=prefetch, reserve=kept)
        self.metrics = Metrics()
        self.max_attempts: dict[str, int] = {}  # of each queue
        self.backs_off: dict[str, bool] = {}  # has it a back-off of its own?
        self.witnessed = False  # the program is ours: should somebody see us die?
        self.journal: Journal | None = None
        self.ready = False  # it holds a permit and receives
        self.aborted = False
        self._wake = asyncio.Event()
        self._tried = asyncio.Event()  # to start, with or without success
        self._background: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Worker:
        """Runs it beside the block. What waiting would not help against is raised here: a schema
        that is missing, say. A database that is away is not."""
        self._background = asyncio.create_task(self.run())
        tried = asyncio.create_task(self._tried.wait())
        await asyncio.wait((tried, self._background), return_when=asyncio.FIRST_COMPLETED)
        tried.cancel()
        if self._background.done():
            await self._background
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._background is not None
        self.stop()
        await self._background

    def stop(self) -> None:
        """Claim nothing more; finish what runs within the grace time, give back the rest."""
        self.plan.stop()
        self.wake()

    def abort(self) -> None:
        """Give back everything now and leave."""
        self.aborted = True
        self.stop()

    def snapshot(self) -> dict[str, Any]:
        """Its counters and gauges, as JSON can carry them. Call it in the worker's event loop."""
        return snapshot(self)

    async def run(self) -> None:
        """Work until stopped. A database that goes away is waited for, however long it takes."""
        self.loop = asyncio.get_running_loop()
        self.db = self.app.connect_worker()
        be_patient(self.db.runner, PERMIT / 2)
        self.settler = Settler(self.db, self.metrics.add_lost)
        self.slots = Slots(self)
        self.claimer = Claimer(self)
        aside: list[asyncio.Task[None]] = []
        witness = None
        try:
            if not await self._start():
                return
            if self.witnessed and (witness := Witness.start(self)) is not None:
                self.journal = self.settler.journal = witness.journal
            jobs = (self.heart.run, self._watch, Upkeep(self.db).run)
            aside = [asyncio.create_task(self._keep(job)) for job in jobs]
            self.ready = True
            log.info("worker %s is ready: %s", self.name, ", ".join(self.tasks))
            self._tell("worker_started")
            await self.claimer.until_stopped()
            await leave(self)
            patience = 0.0 if self.aborted else max(self.grace, 1.0)
            await self.slots.end_hooks(patience)
            self._tell("worker_stopped")
            log.info("worker %s has stopped", self.name)
            await self.slots.end_hooks(patience)
        finally:
            self.ready = False
            for task in aside:
                task.cancel()
            await asyncio.gather(*aside, return_exceptions=True)
            self.slots.close()
            if witness is not None:
                self.journal = self.settler.journal = None
                await asyncio.to_thread(witness.end)
            await self.db.close()

    async def _start(self) -> bool:
        """Make the queues of our tasks, learn their settings, take a permit. False: stopped before
        the database answered."""
        while not self.plan.stopping:
            try:
                ttl = PERMIT
                for queue in self.tasks:
                    if await self.db.queue(queue).create():
                        log.info("created queue %s", queue)
                    settings = await self.db.queue(queue).settings()
                    self.max_attempts[queue] = settings.max_attempts
                    self.backs_off[queue] = settings.backoff is not None
                    ttl = min(ttl, max(settings.lease, 1.0))
                await self.app.declare(self.db)
                be_patient(self.db.runner, max(PATIENCE, ttl / 2))
                self.heart = Heart(self.db, self.name, ttl, self._lost, self._alive)
                await self.heart.start()
                self._tried.set()
                return True
            except SchemaOutdated:
                raise  # waiting would not help; its text says what does
            except DatabaseError as error:
                self._tried.set()
                await self.sleep(self.trouble(error))
        return False

    def _tell(self, hook: str) -> None:
        for one in overriding(self.app.middleware, hook):
            self.slots.guard(one, self)

    # --- sleeping --------------------------------------------------------------------------------
    def wake(self) -> None:
        self._wake.set()

    async def sleep(self, pause: float | None) -> None:
        """Until something happens, or the time is over."""
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def soon(self, what: Callable[..., Any], *args: Any) -> None:
        """In the event loop, from any thread."""
        self.loop.call_soon_threadsafe(what, *args)

    # --- trouble ---------------------------------------------------------------------------------
    def trouble(self, error: DatabaseError) -> float:
        """The database could not be asked; how long to leave it alone."""
        self.metrics.database_errors += 1
        first = not self.plan.troubled
        pause = self.plan.trouble(time.monotonic())
        log.log(logging.WARNING if first else logging.DEBUG, "the database is away: %s", error)
        return pause

    def _alive(self, alive: bool) -> None:
        self.plan.heartbeat(alive)
        self.wake()

    def _lost(self, pulse: Pulse) -> None:
        """Others may have what was received under this permit."""
        dropped = self.slots.drop(lambda work: work.pulse is pulse)
        if self.journal is not None:
            self.journal.forget(work.message.id for work in dropped)
        for work in [work for work in self.slots.running if work.pulse is pulse]:
            work.cancel(LOST)

    async def _keep(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Until cancelled. A bug in it is told, and does not leave us without a heartbeat."""
        while True:
            try:
                await job()
            except Exception:
                log.exception("%s failed; it goes on", job.__qualname__)
                await asyncio.sleep(1.0)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(0.5, self.heart.margin / 2))
            self.heart.distrust()


def _by_queue(
    app: Home, queues: Mapping[str, int] | Sequence[str] | None
) -> dict[str, dict[str | None, Task[..., Any]]]:
    """The tasks of each queue by their name, under which a message's type finds them. A message
    without a type goes to the only task of its queue."""
    found: dict[str, dict[str | None, Task[..., Any]]] = {}
    for task in app.tasks.values():
        found.setdefault(task.queue, {})[task.name] = task
    for tasks in found.values():
        if len(tasks) == 1:
            tasks[None] = next(iter(tasks.values()))
    if queues is not None:
        unknown = set(queues) - set(found)
        if unknown:
            raise InvalidArgument(
                f"no task uses queue {min(unknown)!r}; the app's tasks use {sorted(found)}"
            )
        found = {name: found[name] for name in queues}
    if not found:
        raise InvalidArgument("the app has no tasks: decorate a function with @app.task")
    return found
