"""The slots of a worker: deliveries that wait for a slot, and handlers that run in one.

Everything here happens in the event loop. Handlers run as tasks of the loop, in threads, or in
processes. Each executor passes its verdict to ``finished``, which starts the next delivery.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from fairturn import internal
from fairturn.aio.leased import AsyncLeasedMessage
from fairturn.core.errors import FairturnError
from fairturn.core.settings import Backoff
from fairturn.observe import logs
from fairturn.tasks.middleware import overriding
from fairturn.tasks.task import Executor
from fairturn.tasks.verdicts import Verdict, delay_of
from fairturn.worker.delivery import LOST, Delivery
from fairturn.worker.executors.processes import ProcessDied, Processes
from fairturn.worker.executors.threads import Threads
from fairturn.worker.witness.journal import OWN_PROCESS, RUNNING
from fairturn.worker.witness.witness import DIED, SUSPECTED

if TYPE_CHECKING:
    from fairturn.worker.heartbeat import HeldPermit
    from fairturn.worker.runtime import Worker

log = logging.getLogger("fairturn.worker")
# From this attempt on, a message that may have killed its worker runs in a process of its own.
SUSPECT = 3
# Seconds until a message without a task is retried, four times as many each time: a deploy that
# brings the task may take minutes or hours.
NO_TASK_DELAY = 30.0


class Slots:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._plan = worker.plan
        self._loop = worker.loop
        self._context = contextvars.copy_context()
        self.around = overriding(worker.app.middleware, "handling")
        self._after = overriding(worker.app.middleware, "finished")
        self._slot_requests: deque[Callable[[], Any]] = deque()  # of handlers that released theirs
        self._hooks: set[asyncio.Task[Any]] = set()  # the event loop keeps weak references only
        self._executor_checks: set[asyncio.Task[None]] = set()
        self.running: set[Delivery] = set()
        self.buffer: deque[Delivery] = deque()  # deliveries that wait for a slot, oldest first
        # By ordered channel: deliveries that wait for the one before them to end.
        self.ordered_waiting: dict[tuple[str, str], deque[Delivery]] = {}
        self.moved_at = 0.0  # when the buffer last changed
        self.threads = Threads(self._loop, self.finished, self._close_connections)
        self.processes = Processes(self._loop, self.finished)

    # --- in --------------------------------------------------------------------------------------
    def take(self, messages: Sequence[AsyncLeasedMessage], held_permit: HeldPermit) -> None:
        """Take messages that were received."""
        if not self.buffer:
            self.moved_at = time.monotonic()
        worker = self._worker
        journal = worker.journal
        tasks = worker.tasks[messages[0].queue]
        stuck: dict[str, list[AsyncLeasedMessage]] = {}  # by channel: behind one without task
        for message in messages:
            if stuck and message.channel in stuck:
                stuck[message.channel].append(message)
                continue
            task = tasks.get(message.type) or worker.app.tasks.get(message.type or "")
            if task is None:
                self._fail_without_task(message)
                if message.ordered:
                    stuck[message.channel] = []
                continue
            delivery = Delivery(worker, task, message, held_permit)
            held_permit.deliveries += 1
            if journal is not None:
                id, token, attempts = message.id, message.token, message.attempts
                journal.hold(message.queue, id, token, attempts, delivery.max_attempts)
            if not message.ordered or self._is_first(delivery):
                self.buffer.append(delivery)
        # The others wait behind an ordered message: no worker could start them.
        self._plan.buffered = len(self.buffer)
        for behind in stuck.values():
            worker.settler.release_later(behind)
        self.fill()

    # A receive may return several messages of an ordered channel: they run one after the other.
    def _is_first(self, delivery: Delivery) -> bool:
        if delivery.channel_key in self.ordered_waiting:
            self.ordered_waiting[delivery.channel_key].append(delivery)
            return False
        self.ordered_waiting[delivery.channel_key] = deque()
        return True

    def _continue_channel(self, delivery: Delivery, ended: bool) -> None:
        """Buffer the next delivery of an ordered channel. If the message will be retried, no later
        message may overtake it, so release those behind it."""
        waiting = self.ordered_waiting[delivery.channel_key]
        if ended and waiting:
            self._plan.buffered += 1
            self.buffer.appendleft(waiting.popleft())
            return
        del self.ordered_waiting[delivery.channel_key]
        for other in waiting:
            other.held_permit.deliveries -= 1
        self._worker.settler.release_later([other.message for other in waiting])

    def _fail_without_task(self, message: AsyncLeasedMessage) -> None:
        known = ", ".join(sorted(self._worker.app.tasks))
        error = f"no task is named {message.type!r}; this worker has {known}"
        if message.type is None:
            error = f"the message has no type, and its queue has several tasks: {known}"
            if "Fairturn.Type" in message.headers:
                error += ". Only fairturn serve --extended reads the attribute Fairturn.Type"
        delay = NO_TASK_DELAY * 4 ** (message.attempts - 1)
        text = f"message {message.id} of {message.queue}: {error}; again in {delay:.0f} s"
        log.error("%s", text, extra=logs.fields_of(message))
        self._worker.settler.settle(message, Verdict("fail", error=error, delay=delay))

    def fill(self) -> None:
        """Start waiting deliveries while there are free slots."""
        plan = self._plan
        while plan.running < plan.concurrency:
            if self._slot_requests:
                plan.running += 1
                self._slot_requests.popleft()()
            elif self.buffer:
                delivery = self.buffer.popleft()
                plan.started()
                self._start(delivery)
            else:
                return
        self.moved_at = time.monotonic()

    def drop(self, held_permit: HeldPermit | None = None) -> list[AsyncLeasedMessage]:
        """Remove the deliveries that wait, or those of one permit, and return their messages."""
        waiting = [*self.buffer, *chain.from_iterable(self.ordered_waiting.values())]
        dropped = {d for d in waiting if held_permit is None or d.held_permit is held_permit}
        for delivery in dropped:
            delivery.held_permit.deliveries -= 1
        self.buffer = deque(d for d in self.buffer if d not in dropped)
        self._plan.buffered = len(self.buffer)
        active = {delivery.channel_key for delivery in (*self.running, *self.buffer)}
        self.ordered_waiting = {
            key: deque(d for d in behind if d not in dropped)
            for key, behind in self.ordered_waiting.items()
            if key in active
        }
        return [delivery.message for delivery in waiting if delivery in dropped]

    def _start(self, delivery: Delivery) -> None:
        self.running.add(delivery)
        delivery.since = time.monotonic()
        if delivery.task.timeout is not None:
            delivery.deadline = delivery.since + delivery.task.timeout
        executor = self._executor(delivery)
        if executor is not None:
            self._run_in(executor, delivery)
        else:
            check = self._loop.create_task(self._choose_executor(delivery))
            self._executor_checks.add(check)
            check.add_done_callback(self._executor_checks.discard)

    def _executor(self, delivery: Delivery) -> Executor | None:
        """Return where to run the handler; None if the database has to be asked."""
        task, message = delivery.task, delivery.message
        if task.executor == "process" or not task.importable:
            return task.executor
        if message.recovered and message.attempts >= min(SUSPECT, delivery.max_attempts or SUSPECT):
            return "process"  # its worker may have died of it
        if message.attempts > (SUSPECT if self._worker.journal is None else 1):
            return None
        return task.executor

    async def _choose_executor(self, delivery: Delivery) -> None:
        """Use a process of its own if the last process died of this message, or may have."""
        message, executor = delivery.message, delivery.task.executor
        queue = self._worker.db.queue(message.queue)
        try:
            failures = await queue.failures(1, id=message.id)
            died = failures and failures[0].error.startswith((ProcessDied.__name__, DIED))
            if died or await queue.recall(f"{SUSPECTED}{message.id}"):
                executor = "process"
        except FairturnError as error:
            log.debug("message %d: %s", message.id, error)
            executor = "process"
        if delivery.cancelled is None:
            self._run_in(executor, delivery)
        else:
            self.finished(delivery, delivery.verdict_on_error(asyncio.CancelledError()))

    def _run_in(self, executor: Executor, delivery: Delivery) -> None:
        if self._worker.journal is not None:
            state = OWN_PROCESS if executor == "process" else RUNNING
            self._worker.journal.mark(delivery.message.id, state)
        if executor == "async":
            # The end of another handler often starts this one, which must not inherit its context.
            context = self._context.copy()
            running = self._loop.create_task(self._run(delivery), context=context)
            # Cancel one step later: a coroutine that is cancelled before its first step never runs,
            # and would not call ``finished``.
            delivery.interrupt = lambda: self._loop.call_soon(running.cancel)
        elif executor == "thread":
            self.threads.start(delivery)
        else:
            self.processes.start(delivery)
            return  # it watches the deadline itself
        if delivery.deadline is not None:
            delivery.watch(self._loop)

    async def _run(self, delivery: Delivery) -> None:
        self.finished(delivery, await delivery.call_async())

    def _close_connections(self, thread: int) -> None:
        internal.abort(self._worker.app.db, thread)

    # --- out -------------------------------------------------------------------------------------
    def finished(self, delivery: Delivery, verdict: Verdict) -> None:
        """A handler has ended."""
        if delivery not in self.running:
            return  # the shutdown has released it already
        self.running.discard(delivery)
        took = time.monotonic() - delivery.since
        delivery.deadline = None
        delivery.held_permit.deliveries -= 1
        if delivery.holds_slot:
            self._plan.finished(took)
        if delivery.cancelled == LOST:
            verdict = Verdict("lost")
        worker = self._worker
        kind = verdict.kind
        if kind == "fail" and verdict.delay is None:
            verdict = self._with_backoff(delivery, verdict)
        worker.settler.settle(delivery.message, verdict)
        if delivery.message.ordered:
            self._continue_channel(
                delivery, verdict.final or kind in ("ack", "complete", "settled")
            )
        numbers = worker.metrics.tasks[delivery.message.queue, delivery.task.name]
        numbers.add(kind, verdict.final, took)
        if kind != "ack":
            self._report(delivery, verdict)
        for hook in self._after:
            self.run_hook(hook, delivery.context, verdict, took)
        if self.buffer or self._slot_requests:
            self.fill()
        worker.wake()

    def _with_backoff(self, delivery: Delivery, verdict: Verdict) -> Verdict:
        """Add the default back-off if neither task nor queue has one: else all attempts would be
        used up within milliseconds."""
        if self._worker.has_backoff.get(delivery.message.queue):
            return verdict
        return replace(verdict, delay=delay_of(Backoff(), delivery.message.attempts))

    def _report(self, delivery: Delivery, verdict: Verdict) -> None:
        """Log every outcome other than an ack; call ``on_give_up`` for a dead message."""
        task, error = delivery.task, verdict.error
        name, tries = task.name, delivery.message.attempts
        extra = logs.fields_of(delivery.message, name)
        details: dict[str, str] = verdict.details or {}
        trace = details.get("traceback", "")
        if verdict.final:
            text = f"{name} failed in attempt {tries}, its message is dead: {error}"
            logs.log_with_trace(log, logging.ERROR, text, extra, trace)
            if task.options.on_give_up is not None:
                self.run_hook(task.options.on_give_up, delivery.context, error)
        elif verdict.kind == "fail":
            again = "" if verdict.delay is None else f", again in {verdict.delay:.1f} s"
            text = f"{name} failed in attempt {tries}{again}: {error}"
            logs.log_with_trace(log, logging.WARNING, text, extra, trace)
        elif verdict.kind == "lost":
            log.warning("%s lost the lease of its message", name, extra=extra)
        elif verdict.kind == "settled" and error:
            text = "%s failed after its transaction; its message is acked: %s"
            log.error(text, name, error, extra=extra)

    def run_hook(self, hook: Callable[..., Any], *args: Any) -> None:
        """Call a hook of the application. Its errors are logged and have no other effect."""
        try:
            value: Any = hook(*args)
            if asyncio.iscoroutine(value):
                running: asyncio.Task[Any] = self._loop.create_task(value)
                self._hooks.add(running)
                running.add_done_callback(functools.partial(self._hook_ended, hook))
        except Exception as error:
            self._hook_failed(hook, error)

    def _hook_ended(self, hook: Callable[..., Any], task: asyncio.Task[Any]) -> None:
        self._hooks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._hook_failed(hook, error)

    def _hook_failed(self, hook: Callable[..., Any], error: BaseException) -> None:
        log.error("hook %r failed", hook, exc_info=error)

    async def end_hooks(self, seconds: float | None) -> None:
        """Wait for hooks that are coroutines, so many seconds at most (None: without a limit), and
        cancel the rest."""
        if self._hooks:
            _, late = await asyncio.wait(self._hooks, timeout=seconds)
            for task in late:
                task.cancel()

    # --- handlers that release their slot while they wait ----------------------------------------
    def slot_released(self) -> None:
        self._plan.running -= 1
        self.fill()
        self._worker.wake()

    def request_slot(self, free: Callable[[], Any]) -> None:
        self._slot_requests.append(free)
        self.fill()

    def cancel_slot_request(self, free: Callable[[], Any]) -> None:
        self._slot_requests.remove(free)

    def close(self) -> None:
        self.threads.close()
        self.processes.close()
