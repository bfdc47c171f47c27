"""The slots of a worker: what waits for one, what runs in one, and what happens when it has ended.

Everything here happens in the event loop. Handlers run as tasks of the loop, in threads, or in
processes; whatever ran one tells ``finished`` its verdict, which makes room for the next.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairlead.aio.leased import AsyncLeasedMessage
from fairlead.errors import FairleadError
from fairlead.tasks.middleware import overriding
from fairlead.tasks.verdicts import Verdict, delay_of
from fairlead.values import Backoff
from fairlead.worker import handling, logs
from fairlead.worker.journal import ALONE, RUNNING
from fairlead.worker.processes import ProcessDied, Processes
from fairlead.worker.threads import Threads
from fairlead.worker.witness import DIED, SUSPECTED
from fairlead.worker.work import LOST, Work

if TYPE_CHECKING:
    from fairlead.worker.heart import Pulse
    from fairlead.worker.runtime import Worker

log = logging.getLogger("fairlead.worker")
SUSPECT = 3  # from this attempt on, a message that took its worker down runs in its own process
# Seconds until a message without a task is tried again, four times as many each time: a deploy may
# be on its way, or stand still for lunch.
REFUSED = 30.0


class Slots:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._plan = worker.plan
        self._loop = worker.loop
        self._context = contextvars.copy_context()
        self._around = overriding(worker.app.middleware, "handling")
        self._after = overriding(worker.app.middleware, "finished")
        self._wanting: deque[Callable[[], Any]] = deque()  # handlers that want their slot back
        self._hooks: set[asyncio.Task[Any]] = set()  # the event loop itself would forget them
        self._looking: set[asyncio.Task[None]] = set()
        self.running: set[Work] = set()
        self.buffer: deque[Work] = deque()  # what waits for a slot, oldest first
        self.lines: dict[tuple[str, str], deque[Work]] = {}  # what waits for the one before it
        self.moved_at = 0.0  # when the buffer last moved, or was empty
        self.threads = Threads(self._loop, self._call, self.finished, self._hang_up)
        self.processes = Processes(self._loop, self.finished)

    # --- in --------------------------------------------------------------------------------------
    def take(self, messages: Sequence[AsyncLeasedMessage], pulse: Pulse) -> None:
        """Messages have come."""
        if not self.buffer:
            self.moved_at = time.monotonic()
        worker = self._worker
        journal = worker.journal
        tasks = worker.tasks[messages[0].queue]
        stuck: dict[str, list[AsyncLeasedMessage]] = {}  # channels whose next one has no task
        for message in messages:
            task = tasks.get(message.type) or worker.app.tasks.get(message.type or "")
            if task is None or message.channel in stuck:
                self._plan.buffered -= 1
                if message.channel in stuck:
                    stuck[message.channel].append(message)
                    continue
                self._refuse(message)
                if message.ordered:
                    stuck[message.channel] = []
                continue
            work = Work(worker, task, message, pulse)
            pulse.works += 1
            if journal is not None:
                id, delivery, attempts = message.id, message.deliveries, message.attempts
                journal.hold(message.queue, id, delivery, attempts, work.most)
            if message.ordered and not self._is_first(work):
                self._plan.buffered -= 1  # it cannot use a slot yet, nor can any other worker
            else:
                self.buffer.append(work)
        for behind in stuck.values():
            worker.settler.give_back(behind)
        self.fill()

    # A receive may give a run of an ordered channel: they go one after the other.
    def _is_first(self, work: Work) -> bool:
        if work.line in self.lines:
            self.lines[work.line].append(work)
            return False
        self.lines[work.line] = deque()
        return True

    def _next_in_line(self, work: Work, ended: bool) -> None:
        """The one before has ended, or has to be tried again: then nothing may overtake it."""
        line = self.lines[work.line]
        if ended and line:
            self._plan.buffered += 1
            self.buffer.appendleft(line.popleft())
            return
        del self.lines[work.line]
        for other in line:
            other.pulse.works -= 1
        self._worker.settler.give_back([other.message for other in line])

    def _refuse(self, message: AsyncLeasedMessage) -> None:
        known = ", ".join(sorted(self._worker.app.tasks))
        error = f"no task is called {message.type!r}; this worker knows {known}"
        if message.type is None:
            error = f"it has no type, and several tasks use its queue: say which, {known}"
            if "Fairlead.Type" in message.headers:
                error += ". Its attribute Fairlead.Type is heeded by fairlead serve --extended only"
        delay = REFUSED * 4 ** (message.attempts - 1)
        about = {"queue": message.queue, "message_id": message.id, "attempt": message.attempts}
        text = f"message {message.id} of {message.queue}: {error}; again in {delay:.0f} s"
        log.error("%s", text, extra=about)
        self._worker.settler.begin(message, Verdict("fail", error=error, delay=delay))

    def fill(self) -> None:
        """Start what has a slot."""
        plan = self._plan
        while plan.running < plan.concurrency:
            if self._wanting:
                plan.running += 1
                self._wanting.popleft()()
            elif self.buffer:
                work = self.buffer.popleft()
                plan.started()
                self._start(work)
            else:
                return
        self.moved_at = time.monotonic()

    def drop(self, fits: Callable[[Work], bool]) -> list[Work]:
        """What waits for a slot, or in a line, goes unworked."""
        dropped = [work for work in self.buffer if fits(work)]
        self.buffer = deque(work for work in self.buffer if not fits(work))
        self._plan.buffered -= len(dropped)
        for line in self.lines.values():
            dropped += [work for work in line if fits(work)]
            kept = [work for work in line if not fits(work)]
            line.clear()
            line.extend(kept)
        for work in dropped:
            work.pulse.works -= 1
        headed = {work.line for work in (*self.running, *self.buffer)}
        self.lines = {key: line for key, line in self.lines.items() if key in headed}
        return dropped

    def _start(self, work: Work) -> None:
        task, message = work.task, work.message
        self.running.add(work)
        work.since = time.monotonic()
        if task.executor == "process" or not task.importable:
            self._run_in(task.executor, work)
        elif message.recovered and message.attempts >= min(SUSPECT, work.most or SUSPECT):
            # It may have taken its worker down: let it do that to a process of its own.
            self._run_in("process", work)
        elif message.attempts > (SUSPECT if self._worker.journal is None else 1):
            looking = self._loop.create_task(self._look_back(work))
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)
        else:
            self._run_in(task.executor, work)

    async def _look_back(self, work: Work) -> None:
        """Did it take down its process the last time, or is it suspected to have done so?"""
        message, executor = work.message, work.task.executor
        queue = self._worker.db.queue(message.queue)
        try:
            last = await queue.failures(1, id=message.id)
            died = last and last[0].error.startswith((ProcessDied.__name__, DIED))
            if died or await queue.recall(f"{SUSPECTED}{message.id}"):
                executor = "process"
        except FairleadError as error:
            log.debug("message %d: %s", message.id, error)
            executor = "process"
        if work.cancelled is None:
            self._run_in(executor, work)
        else:
            self.finished(work, work.verdict_of(asyncio.CancelledError()))

    def _run_in(self, executor: str, work: Work) -> None:
        task = work.task
        if self._worker.journal is not None:
            state = ALONE if executor == "process" else RUNNING
            self._worker.journal.mark(work.message.id, state)
        if task.timeout is not None and executor != "process":
            work.deadline = work.since + task.timeout
            self._loop.call_later(task.timeout, work.watch, self._loop)
        if executor == "async":
            # Often it is started by the end of another handler, whose context it must not inherit.
            context = self._context.copy()
            running = self._loop.create_task(self._run(work), context=context)
            # Not at once: a coroutine that is cancelled before its first step never runs at all,
            # and nobody would hear of its end.
            work.halt = lambda: self._loop.call_soon(running.cancel)
        elif executor == "thread":
            self.threads.start(work)
        else:
            self.processes.start(work)

    async def _run(self, work: Work) -> None:
        self.finished(work, await handling.acall(work, self._around))

    def _call(self, work: Work) -> Verdict:
        return handling.call(work, self._around)

    def _hang_up(self, thread: int) -> None:
        self._worker.app.db.runner.abort(thread)

    # --- out -------------------------------------------------------------------------------------
    def finished(self, work: Work, verdict: Verdict) -> None:
        """A handler has ended."""
        if work not in self.running:
            return  # it was given up: the worker stops
        self.running.discard(work)
        took = time.monotonic() - work.since
        work.deadline = None
        work.pulse.works -= 1
        if work.holds_slot:
            self._plan.finished(took)
        if work.cancelled == LOST:
            verdict = Verdict("lost")
        worker = self._worker
        kind = verdict.kind
        if kind == "fail" and verdict.delay is None:
            verdict = self._backed_off(work, verdict)
        worker.settler.settle(work, verdict)
        if work.message.ordered:
            self._next_in_line(work, verdict.final or kind in ("ack", "complete", "settled"))
        worker.metrics.task(work.message.queue, work.task.name).add(kind, verdict.final, took)
        if kind != "ack":
            self._tell(work, verdict)
        for hook in self._after:
            self.guard(hook, work.context, verdict, took)
        if self.buffer or self._wanting:
            self.fill()
        worker.wake()

    def _backed_off(self, work: Work, verdict: Verdict) -> Verdict:
        """Where neither task nor queue says when, five tries must not be over in an instant."""
        if self._worker.backs_off.get(work.message.queue):
            return verdict
        return replace(verdict, delay=delay_of(Backoff(), work.message.attempts))

    def _tell(self, work: Work, verdict: Verdict) -> None:
        message, task = work.message, work.task
        about = {"queue": message.queue, "message_id": message.id, "attempt": message.attempts}
        extra = {**about, "task": task.name, "channel": message.channel}
        name, tries, error = task.name, message.attempts, verdict.error
        details: dict[str, str] = verdict.details or {}
        trace = details.get("traceback", "")
        if verdict.final:
            text = f"{name} is dead after attempt {tries}: {error}"
            logs.say(log, logging.ERROR, text, extra, trace)
            if task.options.on_give_up is not None:
                self.guard(task.options.on_give_up, work.context, error)
        elif verdict.kind == "fail":
            again = "" if verdict.delay is None else f", again in {verdict.delay:.1f} s"
            text = f"{name} failed in attempt {tries}{again}: {error}"
            logs.say(log, logging.WARNING, text, extra, trace)
        elif verdict.kind == "lost":
            log.warning("%s lost the lease of its message", name, extra=extra)
        elif verdict.kind == "settled" and error:
            log.error("%s failed after its transaction, and is done: %s", name, error, extra=extra)

    def guard(self, hook: Callable[..., Any], *args: Any) -> None:
        """Run somebody's hook; an error in it is logged and harms nobody else."""
        try:
            value: Any = hook(*args)
            if asyncio.iscoroutine(value):
                running: asyncio.Task[Any] = self._loop.create_task(value)
                self._hooks.add(running)
                running.add_done_callback(self._hook_ended)
        except Exception:
            log.exception("%r failed", hook)

    def _hook_ended(self, task: asyncio.Task[Any]) -> None:
        self._hooks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a hook failed", exc_info=task.exception())

    async def end_hooks(self, seconds: float) -> None:
        """Let hooks that are coroutines end; those that do not in this time are cancelled."""
        if self._hooks:
            _, late = await asyncio.wait(self._hooks, timeout=seconds)
            for task in late:
                task.cancel()

    # --- handlers that wait for other work -------------------------------------------------------
    def given(self) -> None:
        self._plan.running -= 1
        self.fill()
        self._worker.wake()

    def wanted(self, free: Callable[[], Any]) -> None:
        self._wanting.append(free)
        self.fill()

    def unwanted(self, free: Callable[[], Any]) -> None:
        self._wanting.remove(free)

    def close(self) -> None:
        self.threads.close()
        self.processes.close()
