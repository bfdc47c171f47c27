"""One delivery that a worker holds: it runs its handler, and turns the result into a verdict."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fairturn.aio.leased import AsyncLeasedMessage
from fairturn.core.errors import LeaseLost, TaskTimeout
from fairturn.operations.receives import row_of
from fairturn.sync.leased import LeasedMessage
from fairturn.tasks.context import AnyContext, AsyncContext, Context, Run, current
from fairturn.tasks.middleware import entered
from fairturn.tasks.task import MAX_ATTEMPTS, Task
from fairturn.tasks.verdicts import ACK, RELEASE, SETTLED, Verdict

if TYPE_CHECKING:
    from fairturn.worker.heartbeat import HeldPermit
    from fairturn.worker.runtime import Worker

TIMEOUT, LOST, STOP = "timeout", "lost", "stop"  # why a handler is cancelled


class Delivery(Run):
    """A message, the task that handles it, and the slot it runs in."""

    __slots__ = (
        "_context",
        "error",
        "held_permit",
        "holds_slot",
        "interrupt",
        "message",
        "since",
        "task",
        "worker",
    )

    def __init__(
        self,
        worker: Worker,
        task: Task[..., Any],
        message: AsyncLeasedMessage,
        held_permit: HeldPermit,
    ) -> None:
        super().__init__()
        self.worker = worker
        self.task = task
        self.message = message
        self.held_permit = held_permit  # the permit under which it was received
        self.since = 0.0  # when its handler started
        self.interrupt: Callable[[], Any] | None = None  # makes its handler stop
        self.error: BaseException | None = None  # what its handler raised
        self.holds_slot = True
        self._context: AnyContext | None = None

    @property
    def task_name(self) -> str:
        return self.task.name

    @property
    def context(self) -> AnyContext:
        if self._context is None:
            db = self.worker.app.db
            if self.task.is_async:
                # Not the worker's own connections: handlers in transactions may hold all of them,
                # and the heartbeat must not wait for one.
                own = self.worker.app.async_db.queue(self.message.queue)
                leased = AsyncLeasedMessage(own, row_of(self.message))
                self._context = AsyncContext(self.task.name, leased, self, db)
            else:
                queue = db.queue(self.message.queue)
                message = LeasedMessage(queue, row_of(self.message))
                self._context = Context(self.task.name, message, self, db)
        return self._context

    @property
    def channel_key(self) -> tuple[str, str]:
        """Identifies the channel, for the order of messages in ordered channels."""
        return self.message.queue, self.message.channel

    @property
    def max_attempts(self) -> int:
        """After this many attempts the message is dead, whatever the error; 0: never."""
        most = self.task.retry.max_attempts
        if most is None or MAX_ATTEMPTS in self.message.headers:
            return self.default_max_attempts
        return most

    @property
    def default_max_attempts(self) -> int:
        """The same for errors without a rule in the task: the sender's value, else the queue's."""
        override = self.message.headers.get(MAX_ATTEMPTS)
        return (
            override if isinstance(override, int) else self.worker.max_attempts[self.message.queue]
        )

    # --- running the handler -------------------------------------------------------------------
    def call(self) -> Verdict:
        """Run a plain function in this thread. ``Interrupted`` is not caught."""
        current.set(self)
        try:
            args, kwargs = self._arguments()
            hooks = self.worker.slots.around
            if not hooks:
                return self.verdict_on_result(self.task.function(*args, **kwargs))
            with entered(hooks, self.context):
                value = self.task.function(*args, **kwargs)
            return self.verdict_on_result(value)
        except (Exception, SystemExit) as error:
            return self.verdict_on_error(error)

    async def call_async(self) -> Verdict:
        """Run a coroutine function in this asyncio task."""
        current.set(self)
        try:
            args, kwargs = self._arguments()
            hooks = self.worker.slots.around
            if not hooks:
                return self.verdict_on_result(await self.task.function(*args, **kwargs))
            with entered(hooks, self.context):
                value = await self.task.function(*args, **kwargs)
            return self.verdict_on_result(value)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            return self.verdict_on_error(error)

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the handler's arguments: the message's body, checked, and the context."""
        task = self.task
        args, kwargs = task.payload.read(self.message.body)
        if task.context is not None:
            kwargs[task.context] = self.context
        return args, kwargs

    # --- cancelling ----------------------------------------------------------------------------
    def cancel(self, why: str) -> None:
        """Make the handler stop. Called in the event loop."""
        if self.cancelled is None:
            self.cancelled = why
            if self.interrupt is not None:
                self.interrupt()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the handler at its deadline, which the handler may have extended meanwhile."""
        if self.deadline is None:
            return
        left = self.deadline - time.monotonic()
        if left <= 0:
            self.cancel(TIMEOUT)
        else:
            loop.call_later(left, self.watch, loop)

    def verdict_on_error(self, error: BaseException) -> Verdict:
        """Return the verdict on the message after its handler raised this error."""
        self.error = error
        if self.cancelled == LOST or self._is_lost(error):
            return Verdict("lost", error=str(error))
        if self.settled:
            return Verdict("settled", error=f"{type(error).__name__}: {error}")
        if self.cancelled == STOP:
            return RELEASE
        if self.cancelled == TIMEOUT:
            text = f"{self.task.name} took longer than {self.task.timeout:g} s"
            error = self.error = TaskTimeout(text)
        return self.task.retry.judge(
            error, self.message.attempts, self.max_attempts, self.default_max_attempts
        )

    def _is_lost(self, error: BaseException) -> bool:
        """Whether the error concerns the lease of our message: a handler may hold others."""
        message = self.message
        return (
            isinstance(error, LeaseLost)
            and error.queue == message.queue
            and message.id in error.ids
        )

    def verdict_on_result(self, value: Any) -> Verdict:
        """Return the verdict on the message after its handler returned this value."""
        if self.settled:
            return SETTLED
        if self.acked:
            return Verdict("ack", acked=True)
        if self.task.returns is None:
            return ACK
        where = f"the result of {self.task.name}"
        return Verdict("complete", result=self.task.returns.write(value, where))

    # --- the slot ------------------------------------------------------------------------------
    def release_slot(self) -> None:
        if self.holds_slot:
            self.holds_slot = False
            self.worker.call_soon(self.worker.slots.slot_released)

    def regain_slot(self) -> None:
        if self.cancelled == STOP:
            return  # the handler only has to end
        free = threading.Event()
        self.worker.call_soon(
            self.worker.slots.request_slot, functools.partial(self._regained, free)
        )
        free.wait()

    async def regain_slot_async(self) -> None:
        free = asyncio.Event()
        regained = functools.partial(self._regained, free)
        self.worker.slots.request_slot(regained)
        try:
            await free.wait()
        except asyncio.CancelledError:
            if not self.holds_slot:
                self.worker.slots.cancel_slot_request(regained)
            raise

    def _regained(self, free: threading.Event | asyncio.Event) -> None:
        # Set here and not by the handler, which may be cancelled before it runs again.
        self.holds_slot = True
        free.set()
