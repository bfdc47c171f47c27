"""An application in a test: its messages are kept in memory, and run when the test calls drain."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from fairturn.app import App
from fairturn.core.errors import UsageError
from fairturn.core.schedules import Ticked
from fairturn.core.values import Duration
from fairturn.sync.database import Database
from fairturn.tasks.databases import Databases
from fairturn.tasks.task import Task
from fairturn.testing.calls import SentCall, complaint, listing, matching, name_of
from fairturn.testing.clock import Clock
from fairturn.testing.drain import Drain, Drained
from fairturn.testing.memory import Block, Memory, immediately


def use(app: App, *, clock: Clock | None = None, transaction: Block | None = None) -> AppTest:
    """Test an application: ``with use(app) as test:`` (or ``async with``).

    In the block, the app uses a database in memory that exists only as long as the block.
    ``transaction`` returns a context manager whose value is the connection that handlers get from
    ``ctx.transaction()``."""
    return AppTest(app, clock or Clock(), transaction)


class AppTest:
    """Returned by ``use(app)``. ``clock`` is the time of the block: it stands still until you move
    it. ``db`` is the database in memory, for everything except tasks."""

    def __init__(self, app: App, clock: Clock, transaction: Block | None) -> None:
        self.app = app
        self.clock = clock
        self._memory = Memory(clock, transaction=transaction, records=True)
        self.async_db = self._memory.connect_async()  # for drains, in any event loop
        self._databases = Databases(self._memory.connect, self._memory.connect_async)
        self._before: Databases | None = None
        self._runner: asyncio.Runner | None = None

    # --- the block -------------------------------------------------------------------------------
    def __enter__(self) -> AppTest:
        if self._before is not None:
            raise UsageError("this block is already running: call use(app) for each block")
        for task in self.app.tasks.values():
            immediately(self.async_db.queue(task.queue).create())
        immediately(self.app.declare(self.async_db))
        self._before, self.app.databases = self.app.databases, self._databases
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        self._end()

    async def __aenter__(self) -> AppTest:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self._restore()
        await self._databases.close_async()
        if self._runner is not None:  # of a drain() in a thread
            await asyncio.to_thread(self._end)

    def _restore(self) -> None:
        assert self._before is not None
        self.app.databases, self._before = self._before, None

    def _end(self) -> None:
        if self._runner is not None:
            self._runner.run(self._databases.close_async())
            self._runner.close()
            self._runner = None
        self._databases.close()

    @property
    def db(self) -> Database:
        return self._databases.sync

    @property
    def entered(self) -> bool:
        """Whether the block runs."""
        return self._before is not None

    # --- what was sent ---------------------------------------------------------------------------
    def sent(
        self, task: Task[..., Any] | str | None = None, queue: str | None = None
    ) -> list[SentCall]:
        """Return the messages sent since the block began, in this order, whether they have run or
        not. A send whose outcome was ``duplicate`` is left out."""
        return [
            SentCall.of(message, self.app.tasks)
            for message in self._memory.model.sent
            if (task is None or message.type == name_of(task)) and queue in (None, message.queue)
        ]

    def assert_sent(
        self, task: Task[..., Any] | str, /, *, times: int | None = None, **args: Any
    ) -> list[SentCall]:
        """Check that the task was sent with these arguments (others do not matter), so many times
        or, without ``times``, at least once. Return the calls that fit."""
        calls = self.sent()
        found = matching(calls, task, args)
        if (not found) if times is None else len(found) != times:
            raise AssertionError(complaint(calls, len(found), task, times, args))
        return found

    def assert_nothing_sent(self) -> None:
        """Check that nothing was sent since the block began, or since ``forget``."""
        calls = self.sent()
        if calls:
            raise AssertionError(f"Something was sent. {listing(calls)}")

    def forget(self) -> None:
        """Forget what was sent so far. The messages themselves stay in the database."""
        self._memory.model.sent.clear()

    # --- running messages ------------------------------------------------------------------------
    def tick(self) -> Ticked:
        """Send the messages of schedules that are due now; ``drain`` does so, too."""
        sent = 0
        while True:
            ticked = self.db.run_schedules()
            sent += ticked.sent
            if ticked.next_in != 0 or ticked.errors:
                return Ticked(sent, ticked.next_in, ticked.errors)

    def drain(
        self,
        *,
        until: datetime | Duration | None = None,
        retries: bool = False,
        raise_errors: bool = True,
        limit: int = 1000,
    ) -> Drained:
        """Run the due messages, and those that these send, until none is due.

        The clock stands still meanwhile, so retries and delayed messages wait. ``until``, a time or
        seconds from now, moves the clock there step by step, and runs messages and schedules at
        their due times; ``retries=True`` moves it until no message waits.

        An error of a handler is raised here; if the clock moves, only when its message is dead.
        With ``raise_errors=False`` a failed message is retried or dead, as in a worker."""
        if _in_event_loop():
            raise UsageError("an event loop runs here: await test.drain_async()")
        if self._runner is None:
            # With a loop factory, the runner does not set its loop as the thread's event loop.
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        drain = Drain(self, self._runner, until, retries, raise_errors, limit)
        try:
            for _ in drain.rounds():
                drain.run_due()
        finally:
            self._runner.run(drain.finish())
        return drain.result()

    async def drain_async(
        self,
        *,
        until: datetime | Duration | None = None,
        retries: bool = False,
        raise_errors: bool = True,
        limit: int = 1000,
    ) -> Drained:
        """The async form of ``drain``: coroutine functions run in this event loop, one at a time,
        plain functions in a thread."""
        drain = Drain(self, None, until, retries, raise_errors, limit)
        try:
            for _ in drain.rounds():
                await drain.pump()
        finally:
            await drain.finish()
        return drain.result()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
