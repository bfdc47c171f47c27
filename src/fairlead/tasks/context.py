"""What a handler may know and do about the delivery it is working on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Generator
from typing import Any

from fairlead.aio.leased import AsyncLeasedMessage, runner_of
from fairlead.aio.running import ThreadRunner
from fairlead.operations.receiving import row_of
from fairlead.sync.database import Database
from fairlead.sync.leased import LeasedMessage
from fairlead.tasks.verdicts import seconds
from fairlead.values import Duration, Message


class Run:
    """One run of a handler, as its context sees it; a worker's own runs also have a slot."""

    __slots__ = ("acked", "cancelled", "deadline", "settled")

    def __init__(self) -> None:
        self.acked = False  # in a transaction of the handler's own, of which we know no more
        self.cancelled: str | None = None  # why the handler should leave
        self.deadline: float | None = None  # on the monotonic clock
        self.settled = False  # the message was acked in the handler's own transaction

    def extend(self, more: float) -> None:
        """The handler may go on for that many seconds from now."""
        if self.deadline is not None:
            self.deadline = max(self.deadline, time.monotonic() + more)

    def give_slot(self) -> None:
        """The handler waits for other work: somebody else may have its slot meanwhile."""

    def regain_slot(self) -> None:
        """Wait for a slot, in the handler's thread."""

    async def regain_slot_async(self) -> None:
        """Wait for a slot, in the handler's event loop."""


class AnyContext:
    """What both kinds of context have."""

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
        """The saved work of an earlier delivery: what ``Defer(memo=…)`` kept."""
        return self.message.memo

    @property
    def cancelled(self) -> bool:
        """Should the handler leave? Its lease is lost, its time is over, or the worker stops."""
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
    """The context of a plain function. Name a parameter with this annotation to get it."""

    __slots__ = ()

    @property
    def message(self) -> LeasedMessage:
        """The message and its lease."""
        return self._message

    def extend(self, more: Duration) -> None:
        """This needs longer: the lease, and the timeout if there is one, end ``more`` seconds from
        now or later. LeaseLost if the message is no longer ours."""
        self.message.extend(more)
        self.run.extend(seconds(more))

    def progress(self, value: float | None = None, *, note: str | None = None) -> None:
        """Say how far it is (0.0 to 1.0) and what it is doing, to those who watch or wait."""
        self.message.progress(value, note=note)

    @contextlib.contextmanager
    def transaction(self) -> Generator[Any]:
        """A database connection in a transaction that ends with this message's ack: what is written
        there happens exactly once. It commits when the block ends; if the lease was lost it rolls
        back and raises LeaseLost."""
        runner: Any = self._db.runner
        with runner.transaction() as connection:
            yield connection
            self.message.using(connection).ack()
        self.run.settled = True

    def ack(self, connection: Any) -> None:
        """The same in a transaction of your own, on your connection: commit it before the handler
        returns. If the lease was lost this raises LeaseLost; do not commit then."""
        self.message.using(connection).ack()
        self.run.acked = True

    @contextlib.contextmanager
    def yield_slot(self) -> Generator[None]:
        """While this handler waits for other work, let the worker use its slot."""
        self.run.give_slot()
        try:
            yield
        finally:
            self.run.regain_slot()


class AsyncContext(AnyContext):
    """The context of a coroutine function. Name a parameter with this annotation to get it."""

    __slots__ = ()

    @property
    def message(self) -> AsyncLeasedMessage:
        """The message and its lease."""
        return self._message

    async def extend(self, more: Duration) -> None:
        """This needs longer: the lease, and the timeout if there is one, end ``more`` seconds from
        now or later. LeaseLost if the message is no longer ours."""
        await self.message.extend(more)
        self.run.extend(seconds(more))

    async def progress(self, value: float | None = None, *, note: str | None = None) -> None:
        """Say how far it is (0.0 to 1.0) and what it is doing, to those who watch or wait."""
        await self.message.progress(value, note=note)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any]:
        """A database connection in a transaction that ends with this message's ack: what is written
        there happens exactly once. It commits when the block ends; if the lease was lost it rolls
        back and raises LeaseLost."""
        runner = runner_of(self.message)
        if isinstance(runner, ThreadRunner):  # SQLite: its connection is a plain one
            async with runner.transaction(self._db.runner) as connection:
                yield connection
                sync = LeasedMessage(self._db.queue(self.queue), row_of(self.message))
                sync.using(connection).ack()
        else:
            async with runner.transaction() as connection:
                yield connection
                await self.message.using(connection).ack()
        self.run.settled = True

    async def ack(self, connection: Any) -> None:
        """The same in a transaction of your own, on your connection: commit it before the handler
        returns. If the lease was lost this raises LeaseLost; do not commit then."""
        await self.message.using(connection).ack()
        self.run.acked = True

    @contextlib.asynccontextmanager
    async def yield_slot(self) -> AsyncGenerator[None]:
        """While this handler waits for other work, let the worker use its slot."""
        self.run.give_slot()
        try:
            yield
        finally:
            await self.run.regain_slot_async()
