"""The worker: one asyncio loop that carries out the plan's decisions.

Its parts: ``plan`` decides, ``claimer`` receives, ``slots`` run handlers, ``settler`` acks,
``heartbeat`` keeps the leases alive, ``shutdown`` stops. A message passes
``claimer``, ``slots``, ``delivery`` and ``settler``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from fairturn import internal
from fairturn.aio.database import AsyncDatabase
from fairturn.aio.upkeep import Upkeep
from fairturn.core.errors import DatabaseError, InvalidArgument, SchemaOutdated
from fairturn.core.values import Duration
from fairturn.observe.worker_metrics import Metrics
from fairturn.tasks.databases import Databases
from fairturn.tasks.middleware import overriding
from fairturn.tasks.task import Task, TaskApp
from fairturn.tasks.verdicts import seconds
from fairturn.worker.claimer import Claimer
from fairturn.worker.delivery import LOST
from fairturn.worker.heartbeat import Heartbeat, HeldPermit
from fairturn.worker.plan import Plan
from fairturn.worker.reserve import Reserve
from fairturn.worker.settler import Settler
from fairturn.worker.shutdown import shut_down
from fairturn.worker.slots import Slots
from fairturn.worker.witness.journal import Journal
from fairturn.worker.witness.witness import Witness

log = logging.getLogger("fairturn.worker")
PERMIT = 30.0  # longest life of a permit without a heartbeat, in seconds
ANSWER_TIMEOUT = 5.0  # shortest time limit for an answer of the database, in seconds


class WorkerApp(TaskApp, Protocol):
    """The interface that a worker needs of its App, in addition to what a task needs."""

    tasks: dict[str, Task[..., Any]]
    databases: Databases

    @property
    def connection(self) -> tuple[str, dict[str, Any]]:
        """The URL and the options of ``connect``."""
        ...

    async def declare(self, db: AsyncDatabase) -> None:
        """Store the schedules that the code declares."""
        ...


class Worker:
    """Created by ``app.worker()``. Run it with ``await worker.run()`` or ``async with worker:``."""

    loop: asyncio.AbstractEventLoop
    db: AsyncDatabase
    claimer: Claimer
    heartbeat: Heartbeat
    settler: Settler
    slots: Slots

    def __init__(
        self,
        app: WorkerApp,
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
        reserved = None if reserve is None else Reserve(reserve)
        self.plan = Plan(concurrency, weights, prefetch=prefetch, reserve=reserved)
        self.metrics = Metrics()
        self.max_attempts: dict[str, int] = {}  # of each queue
        self.has_backoff: dict[str, bool] = {}  # whether the queue has a back-off of its own
        self.witnessed = False  # start a witness process, in case this process dies
        self.journal: Journal | None = None
        self.ready = False  # it holds a permit and receives
        self.aborted = False
        self._wake = asyncio.Event()
        self._start_attempted = asyncio.Event()  # with or without success
        self._background: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Worker:
        """Run the worker in the background during the block. An error that waiting cannot cure,
        such as a missing schema, is raised here; an unreachable database is not."""
        self._background = asyncio.create_task(self.run())
        attempted = asyncio.create_task(self._start_attempted.wait())
        await asyncio.wait((attempted, self._background), return_when=asyncio.FIRST_COMPLETED)
        attempted.cancel()
        if self._background.done():
            await self._background
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._background is not None
        self.stop()
        await self._background

    def stop(self) -> None:
        """Receive nothing more, let handlers finish within the grace time, release the rest."""
        self.plan.stop()
        self.wake()

    def abort(self) -> None:
        """Release all messages now and stop."""
        self.aborted = True
        self.stop()

    def snapshot(self) -> dict[str, Any]:
        """Return the worker's counters and gauges, ready for JSON. Call it in its event loop."""
        reason = self._not_ready_reason()
        alive = self.ready  # only then are there a heartbeat and a settler
        return {
            **self.metrics.snapshot(),
            "name": self.name,
            "running": self.plan.running,
            "buffered": self.plan.buffered,
            "concurrency": self.plan.concurrency,
            "pending": self.settler.pending if alive else 0,
            "heartbeat_age": time.monotonic() - self.heartbeat.last if alive else None,
            "ready": not reason,
            "reason": reason,
        }

    def _not_ready_reason(self) -> str:
        """Return why the worker is not ready; empty if it is."""
        if self.plan.stopping:
            return "it is stopping"
        if not self.ready:
            return "it has no permit yet: it is starting, or it cannot reach the database"
        now = time.monotonic()
        if not any(held_permit.until > now for held_permit in self.heartbeat.held_permits):
            return (
                f"its permit is lost: the last heartbeat was {now - self.heartbeat.last:.1f} s "
                "ago; check that it can reach the database"
            )
        return ""

    async def run(self) -> None:
        """Work until stopped. If the database becomes unreachable, wait for it without limit."""
        self.loop = asyncio.get_running_loop()
        self.db = self.app.databases.connect_async()  # the worker's own connections
        internal.set_answer_timeout(self.db, PERMIT / 2)
        self.settler = Settler(self)
        self.slots = Slots(self)
        self.claimer = Claimer(self)
        side_tasks: list[asyncio.Task[None]] = []
        witness = None
        try:
            if not await self._start():
                return
            if self.witnessed and (witness := Witness.start(self)) is not None:
                self.journal = witness.journal
            jobs = (self.heartbeat.run, self._watch, Upkeep(self.db).run)
            side_tasks = [asyncio.create_task(self._run_forever(job)) for job in jobs]
            self.ready = True
            log.info("worker %s is ready: %s", self.name, ", ".join(self.tasks))
            self._call_hooks("worker_started")
            await self.claimer.until_stopped()
            await shut_down(self)
            patience = 0.0 if self.aborted else max(self.grace, 1.0)
            await self.slots.end_hooks(patience)
            self._call_hooks("worker_stopped")
            log.info("worker %s has stopped", self.name)
            await self.slots.end_hooks(patience)
        finally:
            self.ready = False
            for task in side_tasks:
                task.cancel()
            await asyncio.gather(*side_tasks, return_exceptions=True)
            self.slots.close()
            if witness is not None:
                self.journal = None
                await asyncio.to_thread(witness.end)
            await self.db.close()

    async def _start(self) -> bool:
        """Create the queues of our tasks, read their settings, take a permit. Return False if the
        worker was stopped before the database answered."""
        while not self.plan.stopping:
            try:
                lease = await self._prepare_queues()
                ttl = min(PERMIT, max(lease, 1.0))
                await self.app.declare(self.db)
                internal.set_answer_timeout(self.db, max(ANSWER_TIMEOUT, ttl / 2))
                self.heartbeat = Heartbeat(self.db, self.name, ttl, self._permit_lost, self._alive)
                await self.heartbeat.start()
                self._start_attempted.set()
                return True
            except SchemaOutdated:
                raise  # waiting does not help
            except DatabaseError as error:
                self._start_attempted.set()
                await self.sleep(self.database_failed(error))
        return False

    async def _prepare_queues(self) -> float:
        """Create the queues of our tasks and read their settings; return the shortest lease."""
        leases: list[float] = []
        for name in self.tasks:
            queue = self.db.queue(name)
            if await queue.create():
                log.info("created queue %s", name)
            settings = await queue.settings()
            self.max_attempts[name] = settings.max_attempts
            self.has_backoff[name] = settings.backoff is not None
            leases.append(settings.lease)
        return min(leases)

    def _call_hooks(self, name: str) -> None:
        for hook in overriding(self.app.middleware, name):
            self.slots.run_hook(hook, self)

    # --- sleeping --------------------------------------------------------------------------------
    def wake(self) -> None:
        self._wake.set()

    async def sleep(self, pause: float | None) -> None:
        """Sleep until ``wake`` is called, or for ``pause`` seconds."""
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def call_soon(self, what: Callable[..., Any], *args: Any) -> None:
        """Call a function in the event loop, from any thread."""
        self.loop.call_soon_threadsafe(what, *args)

    # --- failures --------------------------------------------------------------------------------
    def database_failed(self, error: DatabaseError) -> float:
        """Log a failed call to the database; return the seconds until the next attempt."""
        self.metrics.database_errors += 1
        first = not self.plan.is_outage
        pause = self.plan.database_failed(time.monotonic())
        level = logging.WARNING if first else logging.DEBUG
        log.log(level, "the database cannot be reached: %s", error)
        return pause

    def _alive(self, alive: bool) -> None:
        self.plan.heartbeat(alive)
        self.wake()

    def _permit_lost(self, held_permit: HeldPermit) -> None:
        """Cancel what was received under this permit: other workers may have it now."""
        dropped = self.slots.drop(held_permit)
        if self.journal is not None:
            self.journal.forget(message.id for message in dropped)
        for delivery in [*self.slots.running]:
            if delivery.held_permit is held_permit:
                delivery.cancel(LOST)

    async def _run_forever(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a job until cancelled. A bug in it is logged, and must not end the heartbeat."""
        while True:
            try:
                await job()
            except Exception:
                log.exception("%s failed; it is started again", job.__qualname__)
                await asyncio.sleep(1.0)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(0.5, self.heartbeat.margin / 2))
            self.heartbeat.drop_expiring()


def _by_queue(
    app: WorkerApp, queues: Mapping[str, int] | Sequence[str] | None
) -> dict[str, dict[str | None, Task[..., Any]]]:
    """Return the tasks of each queue by name; a message's type is the name of its task. A message
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
