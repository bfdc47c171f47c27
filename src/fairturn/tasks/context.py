"""The context of a handler: what it can read and do about its current delivery."""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import AsyncGenerator, Generator
from typing import Any, Protocol

from fairturn import internal
from fairturn.aio.leased import AsyncLeasedMessage
from fairturn.core.message import Message
from fairturn.core.values import Duration
from fairturn.sync.database import Database
from fairturn.sync.leased import LeasedMessage
from fairturn.tasks.verdicts import seconds


class Run:
    """One run of a handler, as its context sees it. In a worker a run also has a slot."""

    __slots__ = ("acked", "cancelled", "deadline", "settled")

    def __init__(self) -> None:
        self.acked = False  # by ack(connection); whether the handler commits is unknown
        self.cancelled: str | None = None  # why the handler should stop
        self.deadline: float | None = None  # on the monotonic clock
        self.settled = False  # acked and committed by transaction()

    def extend(self, more: float) -> None:
        """Move the deadline, if there is one, to that many seconds from now or later."""
        if self.deadline is not None:
            self.deadline = max(self.deadline, time.monotonic() + more)

    def release_slot(self) -> None:
        """The handler waits for other work: another handler may use its slot meanwhile."""

    def regain_slot(self) -> None:
        """Wait for a slot, in the handler's thread."""

    async def regain_slot_async(self) -> None:
        """Wait for a slot, in the handler's event loop."""


class AnyContext:
    """The common part of Context and AsyncContext."""

    __slots__ = ("_db", "_message", "run", "task")

    def __init__(self, task: str, message: Any, run: Run, db: Database) -> None:
        self.task = task  # the task's name
        self._message = message
        self.run = run
        self._db = db

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.task} message {self.message.id}>"

    @property
    def message(self) -> Message:
        return self._message

    @property
    def queue(self) -> str:
        return self.message.queue

    @property
    def attempt(self) -> int:
        """1 in the first delivery."""
        return self.message.attempts

    @property
    def memo(self) -> Any:
        """Work saved by an earlier delivery with ``Defer(memo=…)``."""
        return self.message.memo

    @property
    def cancelled(self) -> bool:
        """True if the handler should stop: its lease is lost, its time is over, or the worker
        stops."""
        return self.run.cancelled is not None

    @property
    def remaining(self) -> float | None:
        """Seconds until the task's timeout ends this run; None without a timeout."""
        deadline = self.run.deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    @property
    def deadline(self) -> float | None:
        """When the task's timeout ends this run, on the clock of ``time.time()``; or None."""
        left = self.remaining
        return None if left is None else time.time() + left


class Context(AnyContext):
    """The context of a plain function. Annotate a parameter with this class to get it."""

    __slots__ = ()

    @property
    def message(self) -> LeasedMessage:
        """The message and its lease."""
        return self._message

    def extend(self, more: Duration) -> None:
        """Extend the lease, and the timeout if there is one, to end ``more`` seconds from now or
        later. Raises LeaseLost if the lease is lost."""
        self.message.extend(more)
        self.run.extend(seconds(more))

    def progress(self, value: float | None = None, *, note: str | None = None) -> None:
        """Store progress (0.0 to 1.0) and a note, for those who wait for the message."""
        self.message.progress(value, note=note)

    @contextlib.contextmanager
    def transaction(self) -> Generator[Any]:
        """Open a transaction that also acks this message, and return its connection: what is
        written there happens exactly once. It commits when the block ends; if the lease was lost
        it rolls back and raises LeaseLost."""
        with internal.transaction(self._db) as connection:
            yield connection
            self.message.using(connection).ack()
        self.run.settled = True

    def ack(self, connection: Any) -> None:
        """Ack the message in your own transaction, on your connection. Commit it before the handler
        returns. Raises LeaseLost if the lease was lost; do not commit then."""
        self.message.using(connection).ack()
        self.run.acked = True

    @contextlib.contextmanager
    def yield_slot(self) -> Generator[None]:
        """Let the worker use this handler's slot while the handler waits for other work."""
        self.run.release_slot()
        try:
            yield
        finally:
            self.run.regain_slot()


class AsyncContext(AnyContext):
    """The context of a coroutine function. Annotate a parameter with this class to get it."""

    __slots__ = ()

    @property
    def message(self) -> AsyncLeasedMessage:
        """The message and its lease."""
        return self._message

    async def extend(self, more: Duration) -> None:
        """Extend the lease, and the timeout if there is one, to end ``more`` seconds from now or
        later. Raises LeaseLost if the lease is lost."""
        await self.message.extend(more)
        self.run.extend(seconds(more))

    async def progress(self, value: float | None = None, *, note: str | None = None) -> None:
        """Store progress (0.0 to 1.0) and a note, for those who wait for the message."""
        await self.message.progress(value, note=note)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any]:
        """Open a transaction that also acks this message, and return its connection: what is
        written there happens exactly once. It commits when the block ends; if the lease was lost
        it rolls back and raises LeaseLost."""
        async with internal.acking_transaction(self.message, self._db) as connection:
            yield connection
        self.run.settled = True

    async def ack(self, connection: Any) -> None:
        """Ack the message in your own transaction, on your connection. Commit it before the handler
        returns. Raises LeaseLost if the lease was lost; do not commit then."""
        await self.message.using(connection).ack()
        self.run.acked = True

    @contextlib.asynccontextmanager
    async def yield_slot(self) -> AsyncGenerator[None]:
        """Let the worker use this handler's slot while the handler waits for other work."""
        self.run.release_slot()
        try:
            yield
        finally:
            await self.run.regain_slot_async()


class HandlerCall(Protocol):
    """A running handler: its task, message and context."""

    @property
    def task_name(self) -> str: ...
    @property
    def message(self) -> Message: ...
    @property
    def context(self) -> AnyContext: ...


# The handler that runs in this thread or asyncio task: for log records and current_context().
current: contextvars.ContextVar[HandlerCall | None] = contextvars.ContextVar(
    "fairturn_current", default=None
)


def current_context() -> AnyContext | None:
    """Return the context of the handler that calls this; None outside of a handler."""
    call = current.get()
    return None if call is None else call.context
