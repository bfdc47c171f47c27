"""One delivery that a worker holds, from its receive to its verdict."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fairlead.aio.leased import AsyncLeasedMessage
from fairlead.errors import LeaseLost, TaskTimeout
from fairlead.operations.receiving import row_of
from fairlead.sync.leased import LeasedMessage
from fairlead.tasks.context import AnyContext, AsyncContext, Context, Run
from fairlead.tasks.task import MAX_ATTEMPTS, Task
from fairlead.tasks.verdicts import ACK, RELEASE, SETTLED, Verdict

if TYPE_CHECKING:
    from fairlead.worker.heart import Pulse
    from fairlead.worker.runtime import Worker

TIMEOUT, LOST, STOP = "timeout", "lost", "stop"  # why a handler is cancelled


class Work(Run):
    """A message, the task that handles it, and the slot it runs in."""

    __slots__ = ("_context", "_slot", "halt", "message", "pulse", "since", "task", "worker")

    def __init__(
        self, worker: Worker, task: Task[..., Any], message: AsyncLeasedMessage, pulse: Pulse
    ) -> None:
        super().__init__()
        self.worker = worker
        self.task = task
        self.message = message
        self.pulse = pulse  # of the permit under which it was received
        self.since = 0.0  # when its handler started
        self.halt: Callable[[], Any] | None = None  # makes its handler leave
        self._context: AnyContext | None = None
        self._slot = True

    @property
    def context(self) -> AnyContext:
        if self._context is None:
            db = self.worker.app.db
            if self.task.is_async:
                # The app's connections, not the worker's own: handlers in transactions may hold all
                # of them, and the heartbeat must not wait for one.
                own = self.worker.app.async_db.queue(self.message.queue)
                leased = AsyncLeasedMessage(own, row_of(self.message))
                self._context = AsyncContext(self.task.name, leased, self, db)
            else:
                queue = db.queue(self.message.queue)
                message = LeasedMessage(queue, row_of(self.message))
                self._context = Context(self.task.name, message, self, db)
        return self._context

    @property
    def line(self) -> tuple[str, str]:
        """Where it stands in line, if its channel is ordered."""
        return self.message.queue, self.message.channel

    def know(self, context: AnyContext) -> None:
        self._context = context

    @property
    def most(self) -> int:
        """After how many attempts it is dead whatever the error; 0: never."""
        most = self.task.retry.max_attempts
        return self.usual if most is None or MAX_ATTEMPTS in self.message.headers else most

    @property
    def usual(self) -> int:
        """The same for errors about which the task says nothing: what its sender said, else its
        queue."""
        override = self.message.headers.get(MAX_ATTEMPTS)
        usual = self.worker.max_attempts[self.message.queue]
        return override if isinstance(override, int) else usual

    # --- cancelling ----------------------------------------------------------------------------
    def cancel(self, why: str) -> None:
        """Tell the handler to leave. Called in the event loop."""
        if self.cancelled is None:
            self.cancelled = why
            if self.halt is not None:
                self.halt()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """End it when its time is over; a handler may have asked for more meanwhile."""
        if self.deadline is None:
            return
        left = self.deadline - time.monotonic()
        if left <= 0:
            self.cancel(TIMEOUT)
        else:
            loop.call_later(left, self.watch, loop)

    def verdict_of(self, error: BaseException) -> Verdict:
        """What becomes of the message, after its handler ended with this error."""
        if self.cancelled == LOST or self._is_lost(error):
            return Verdict("lost", error=str(error))
        if self.settled:
            return Verdict("settled", error=f"{type(error).__name__}: {error}")
        if self.cancelled == STOP:
            return RELEASE
        if self.cancelled == TIMEOUT:
            error = TaskTimeout(f"{self.task.name} took longer than {self.task.timeout:g} s")
        return self.task.retry.judge(error, self.message.attempts, self.most, self.usual)

    def _is_lost(self, error: BaseException) -> bool:
        """Is this our own lease? A handler may have lost that of another message, too."""
        message = self.message
        return (
            isinstance(error, LeaseLost)
            and error.queue == message.queue
            and message.id in error.ids
        )

    def verdict_for(self, value: Any) -> Verdict:
        """What becomes of the message, after its handler returned this."""
        if self.settled:
            return SETTLED
        if self.acked:
            return Verdict("ack", acked=True)
        if self.task.returns is None:
            return ACK
        where = f"what {self.task.name} returns"
        return Verdict("complete", result=self.task.returns.write(value, where))

    # --- the slot ------------------------------------------------------------------------------
    def give_slot(self) -> None:
        if self._slot:
            self._slot = False
            self.worker.soon(self.worker.slots.given)

    def regain_slot(self) -> None:
        free = threading.Event()
        self.worker.soon(self.worker.slots.wanted, functools.partial(self._regained, free))
        free.wait()

    async def regain_slot_async(self) -> None:
        free = asyncio.Event()
        regained = functools.partial(self._regained, free)
        self.worker.slots.wanted(regained)
        try:
            await free.wait()
        except asyncio.CancelledError:
            if not self._slot:
                self.worker.slots.unwanted(regained)
            raise

    def _regained(self, free: threading.Event | asyncio.Event) -> None:
        # Noted here and not by the handler, which may be cancelled before it comes to that.
        self._slot = True
        free.set()

    @property
    def holds_slot(self) -> bool:
        return self._slot
