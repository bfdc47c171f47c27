"""The worker: receives, runs handlers, settles. One asyncio loop that does what the plan says.

``claim`` is the heart of it: one task that asks the database, so that there is never more than one
receive on its way, and acks ride on it. Handlers run as tasks of the loop, in threads, or in
processes; each tells ``_finished`` its verdict, which makes room for the next.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairlead.aio.leased import AsyncLeasedMessage
from fairlead.aio.waking import AsyncTicket
from fairlead.errors import (
    DatabaseError,
    InvalidArgument,
    OutcomeUnknown,
    PermitLost,
    SchemaOutdated,
)
from fairlead.tasks.middleware import overriding
from fairlead.tasks.task import Task
from fairlead.tasks.verdicts import RELEASE, Verdict, seconds
from fairlead.values import Duration
from fairlead.worker import handling
from fairlead.worker.heart import Heart, Pulse
from fairlead.worker.home import Home
from fairlead.worker.metrics import Metrics
from fairlead.worker.plan import STALE, Claim, Plan
from fairlead.worker.processes import Processes
from fairlead.worker.reserve import Reserve
from fairlead.worker.settling import Settler
from fairlead.worker.threads import Threads
from fairlead.worker.upkeep import Upkeep
from fairlead.worker.work import LOST, STOP, Work

log = logging.getLogger("fairlead.worker")
SUSPECT = 3  # from this attempt on, a message that took its worker down runs in its own process
PERMIT = 30.0  # seconds a permit lives without a heartbeat, at most
REFUSED = 30.0  # seconds until a message without a task is tried again: a deploy may be on its way
UNWIND = 2.0  # seconds that cancelled handlers have to leave


class Wakes(asyncio.Event):
    """Set by the waker when something happens in a queue."""

    def __init__(self, told: Callable[[], None]) -> None:
        super().__init__()
        self._tell = told

    def set(self) -> None:
        self._tell()


class Worker:
    """Made by ``app.worker()``: run it with ``await worker.run()`` or ``async with worker:``."""

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
        self.tasks: dict[str, dict[str | None, Task[..., Any]]] = _by_queue(app, queues)
        weights = queues if isinstance(queues, Mapping) else dict.fromkeys(self.tasks, 1)
        self.plan = Plan(
            concurrency,
            weights,
            prefetch=prefetch,
            reserve=None if reserve is None else Reserve(reserve),
        )
        self.metrics = Metrics()
        self.max_attempts: dict[str, int] = {}
        self.ready = False  # it holds a permit and receives
        self.works: set[Work] = set()  # that run
        self.buffer: deque[Work] = deque()  # that wait for a slot, oldest first
        self._buffered_at = 0.0
        self._wanting: deque[Callable[[], Any]] = deque()  # handlers that want their slot back
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._abort = asyncio.Event()
        self._tickets: dict[str, AsyncTicket] = {}
        self._around = overriding(app.middleware, "handling")
        self._after = overriding(app.middleware, "finished")
        self._background: asyncio.Task[None] | None = None

    # --- running -------------------------------------------------------------------------------
    async def __aenter__(self) -> Worker:
        self._background = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._background is not None
        self.stop()
        await self._background

    def stop(self) -> None:
        """Claim nothing more; finish what runs within the grace time, give back the rest."""
        self._stop.set()
        self.plan.stop()
        self._wake.set()

    def abort(self) -> None:
        """Give back everything now and leave."""
        self.stop()
        self._abort.set()

    async def run(self) -> None:
        """Work until stopped. A database that goes away is waited for, however long it takes."""
        self.loop = asyncio.get_running_loop()
        self.db = self.app.connect_worker()
        self.settler = Settler(self.db, self._count_lost)
        self.threads = Threads(self.loop, self._call, self._finished)
        self.processes = Processes(self.loop, self._finished)
        tasks: list[asyncio.Task[None]] = []
        try:
            if not await self._start():
                return
            tasks = [
                asyncio.create_task(job)
                for job in (self.heart.run(), self._watch(), Upkeep(self).run())
            ]
            self.ready = True
            for hook in overriding(self.app.middleware, "worker_started"):
                self._guard(hook, self)
            await self._claim_until_stopped()
            await self._finish()
            for hook in overriding(self.app.middleware, "worker_stopped"):
                self._guard(hook, self)
        finally:
            self.ready = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.threads.close()
            self.processes.close()
            await self.db.close()

    async def _start(self) -> bool:
        """Make the queues of our tasks, learn their settings, take a permit. False: stopped before
        the database answered."""
        while not self._stop.is_set():
            try:
                lease = PERMIT
                for queue in self.tasks:
                    if await self.db.queue(queue).create():
                        log.info("created queue %s", queue)
                    settings = await self.db.queue(queue).settings()
                    self.max_attempts[queue] = settings.max_attempts
                    lease = min(lease, max(settings.lease, 1.0))
                await self.app.declare(self.db)
                self.heart = Heart(self.db, self.name, lease, self._pulse_lost, self._alive)
                await self.heart.start()
                return True
            except DatabaseError as error:
                if isinstance(error, SchemaOutdated):
                    raise  # waiting would not help; its text says what does
                pause = self._trouble(error)
                await self._sleep(pause)
        return False

    # --- claiming ------------------------------------------------------------------------------
    async def _claim_until_stopped(self) -> None:
        plan, settler = self.plan, self.settler
        while not plan.stopping:
            now = time.monotonic()
            claim = plan.claim(now, settler.acks)
            try:
                if claim is not None:
                    await self._receive(claim)
                elif settler.acks and not plan.in_trouble(now):
                    await settler.flush()
                elif self.buffer and now - self._buffered_at > STALE:
                    await self._return()
                else:
                    pause = plan.pause(now)
                    if self.buffer:
                        pause = min(STALE if pause is None else pause, STALE)
                    await self._sleep(pause)
            except DatabaseError as error:
                self._trouble(error)

    async def _sleep(self, pause: float | None) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _receive(self, claim: Claim) -> None:
        queue = self.db.queue(claim.queue)
        acks = self.settler.take(claim.queue)
        pulse = self.heart.pulse
        try:
            messages = await queue.receive(
                claim.n, min_priority=claim.min_priority, permit=pulse.permit, ack=acks
            )
        except PermitLost:
            self.settler.put_back(claim.queue, acks, unsure=False)
            self.heart.doubt()
            return
        except BaseException as error:
            self.settler.put_back(claim.queue, acks, unsure=isinstance(error, DatabaseError))
            if isinstance(error, OutcomeUnknown):
                self.heart.doubt()
            raise
        if acks:
            self.settler.acked(acks, messages.lost)
        now = time.monotonic()
        given = len(messages)
        self.metrics.receives += 1
        self.metrics.received[claim.queue] = self.metrics.received.get(claim.queue, 0) + given
        self.plan.gave(claim, given, messages.retry_after, self._listens(claim.queue), now)
        if given:
            self._take(messages, pulse)
        await self._subscribe(claim.queue, given == claim.n)

    def _take(self, messages: Sequence[AsyncLeasedMessage], pulse: Pulse) -> None:
        if not self.buffer:
            self._buffered_at = time.monotonic()
        tasks = self.tasks[messages[0].queue]
        for message in messages:
            task = tasks.get(message.type) or self.app.tasks.get(message.type or "")
            if task is None:
                self.plan.buffered -= 1
                self._refuse(message)
            else:
                pulse.works += 1
                self.buffer.append(Work(self, task, message, pulse))
        self._fill()

    def _refuse(self, message: AsyncLeasedMessage) -> None:
        known = ", ".join(sorted(self.app.tasks))
        error = f"no task is called {message.type!r}; this worker knows {known}"
        log.error("message %d: %s", message.id, error)
        self.settler.begin(message, Verdict("fail", error=error, delay=REFUSED))

    async def _return(self) -> None:
        """The handlers take longer than was thought: give back what waits."""
        works = list(self.buffer)
        self.buffer.clear()
        self.plan.returned(len(works), time.monotonic())
        for work in works:
            work.pulse.works -= 1
        await self.settler.release([work.message for work in works])

    # --- being woken -----------------------------------------------------------------------------
    def _listens(self, queue: str) -> bool:
        ticket = self._tickets.get(queue)
        return ticket is not None and ticket.live

    async def _subscribe(self, queue: str, full: bool) -> None:
        """Be woken when something comes, unless there is so much that we ask all the time."""
        ticket = self._tickets.get(queue)
        if full:
            if ticket is not None:
                del self._tickets[queue]
                await ticket.leave()
        elif ticket is None:
            wakes = Wakes(functools.partial(self._woken, queue))
            self._tickets[queue] = ticket = await self.db.core.waker.ticket(queue, wakes)
            if ticket.live:
                self.plan.woken(queue)  # subscribed: look once more before sleeping
        else:
            await ticket.stay()

    def _woken(self, queue: str) -> None:
        self.plan.woken(queue)
        self._wake.set()

    # --- handlers --------------------------------------------------------------------------------
    def _fill(self) -> None:
        """Start what has a slot."""
        plan = self.plan
        while plan.running < plan.concurrency:
            if self._wanting:
                plan.running += 1
                self._wanting.popleft()()
            elif self.buffer:
                work = self.buffer.popleft()
                plan.started()
                self._run(work)
            else:
                return
        self._buffered_at = time.monotonic()

    def _run(self, work: Work) -> None:
        task, message = work.task, work.message
        self.works.add(work)
        work.since = time.monotonic()
        executor = task.executor
        if message.recovered and message.attempts >= min(SUSPECT, work.most or SUSPECT):
            # It may have taken its worker down: let it do that to a process of its own.
            executor = "process" if task.importable else executor
        if task.timeout is not None:
            work.deadline = work.since + task.timeout
            self.loop.call_later(task.timeout, work.watch, self.loop)
        if executor == "async":
            work.halt = self.loop.create_task(self._run_async(work)).cancel
        elif executor == "thread":
            self.threads.start(work)
        else:
            self.processes.start(work)

    async def _run_async(self, work: Work) -> None:
        self._finished(work, await handling.acall(work, self._around))

    def _call(self, work: Work) -> Verdict:
        return handling.call(work, self._around)

    def _finished(self, work: Work, verdict: Verdict) -> None:
        """A handler has ended: in the event loop, whatever ran it."""
        if work not in self.works:
            return  # it was given up: the worker stops, or its lease is lost
        self.works.discard(work)
        took = time.monotonic() - work.since
        work.deadline = None
        work.pulse.works -= 1
        if work.holds_slot:
            self.plan.finished(took)
        if work.cancelled == LOST:
            verdict = Verdict("lost")
        self.settler.settle(work, verdict)
        kind = verdict.kind
        self.metrics.task(work.message.queue, work.task.name).add(kind, verdict.final, took)
        if kind != "ack":
            self._tell(work, verdict)
        for hook in self._after:
            self._guard(hook, work.context, verdict, took)
        if self.buffer or self._wanting:
            self._fill()
        self._wake.set()

    def _tell(self, work: Work, verdict: Verdict) -> None:
        message, task = work.message, work.task
        about = {"queue": message.queue, "message_id": message.id, "attempt": message.attempts}
        extra = {**about, "task": task.name, "channel": message.channel}
        if verdict.final:
            log.error(
                "%s is dead after attempt %d: %s",
                task.name,
                message.attempts,
                verdict.error,
                extra=extra,
            )
            if task.options.on_give_up is not None:
                self._guard(task.options.on_give_up, work.context, verdict.error)
        elif verdict.kind == "fail":
            again = "" if verdict.delay is None else f", again in {verdict.delay:.1f} s"
            log.warning(
                "%s failed in attempt %d%s: %s",
                task.name,
                message.attempts,
                again,
                verdict.error,
                extra=extra,
            )
        elif verdict.kind == "lost":
            log.warning("%s lost the lease of its message", task.name, extra=extra)

    def _guard(self, hook: Callable[..., Any], *args: Any) -> None:
        """Run somebody's hook; an error in it is logged and harms nobody else."""
        try:
            value: Any = hook(*args)
            if asyncio.iscoroutine(value):
                running: asyncio.Task[Any] = self.loop.create_task(value)
                running.add_done_callback(_log_error)
        except Exception:
            log.exception("%r failed", hook)

    # --- slots, from handlers --------------------------------------------------------------------
    def soon(self, what: Callable[..., Any], *args: Any) -> None:
        """In the event loop, from any thread."""
        self.loop.call_soon_threadsafe(what, *args)

    def slot_given(self) -> None:
        self.plan.running -= 1
        self._fill()
        self._wake.set()

    def slot_wanted(self, free: Callable[[], Any]) -> None:
        self._wanting.append(free)
        self._fill()

    # --- trouble ---------------------------------------------------------------------------------
    def _trouble(self, error: DatabaseError) -> float:
        self.metrics.database_errors += 1
        first = not self.plan.in_trouble(time.monotonic())
        pause = self.plan.trouble(time.monotonic())
        log.log(logging.WARNING if first else logging.DEBUG, "the database is away: %s", error)
        return pause

    def _alive(self, alive: bool) -> None:
        self.plan.heartbeat(alive)
        self._wake.set()

    def _pulse_lost(self, pulse: Pulse) -> None:
        for work in [work for work in self.works if work.pulse is pulse]:
            work.cancel(LOST)
        stale = [work for work in self.buffer if work.pulse is pulse]
        for work in stale:
            self.buffer.remove(work)
        self.plan.buffered -= len(stale)

    def _count_lost(self, queue: str, count: int) -> None:
        self.metrics.lost_acks[queue] = self.metrics.lost_acks.get(queue, 0) + count

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.heart.distrust()

    # --- leaving ---------------------------------------------------------------------------------
    async def _finish(self) -> None:
        """Give back what has not started, let the rest finish, give back what does not."""
        waiting = [work.message for work in self.buffer]
        self.plan.buffered -= len(self.buffer)
        self.buffer.clear()
        end = time.monotonic() + self.grace
        releasing = asyncio.create_task(self._release(waiting, end))
        while self.works and not self._abort.is_set() and time.monotonic() < end:
            if self.settler.acks:
                await self._flush_quietly()
            await self._sleep(min(0.5, max(0.0, end - time.monotonic())))
        if self.works:
            log.warning("%d handlers have not finished in time and are released", len(self.works))
            for work in list(self.works):
                work.cancel(STOP)
            unwound = time.monotonic() + UNWIND
            while self.works and time.monotonic() < unwound:
                await self._sleep(0.05)
            for work in list(self.works):  # threads that do not listen; the process ends soon
                self.works.discard(work)
                self.settler.settle(work, RELEASE)
        await releasing
        try:
            async with asyncio.timeout(max(UNWIND, end - time.monotonic())):
                while self.settler.acks and not await self._flush_quietly():
                    await asyncio.sleep(0.1)
                await self.settler.idle()
                for ticket in self._tickets.values():
                    await ticket.leave()
                await self.heart.close()
        except (TimeoutError, DatabaseError) as error:
            log.warning("left without the database; leases will expire: %s", error)

    async def _release(self, messages: Sequence[AsyncLeasedMessage], end: float) -> None:
        while messages:
            try:
                await self.settler.release(messages)
                return
            except DatabaseError as error:
                if time.monotonic() >= end or self._abort.is_set():
                    log.warning("%d messages could not be released: %s", len(messages), error)
                    return
                await asyncio.sleep(0.25)

    async def _flush_quietly(self) -> bool:
        try:
            await self.settler.flush()
        except DatabaseError as error:
            log.debug("acks have to wait: %s", error)
            return False
        return True


def _log_error(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a hook failed", exc_info=task.exception())


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
