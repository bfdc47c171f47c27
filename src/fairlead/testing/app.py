"""An application under test: its messages go to memory, and run when the test says so."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from fairlead.app import App
from fairlead.errors import UsageError
from fairlead.schedules import Ticked
from fairlead.sync.database import Database
from fairlead.tasks.databases import Databases
from fairlead.tasks.task import Task
from fairlead.testing.calls import SentCall, complaint, listing, matching, name_of
from fairlead.testing.clock import Clock
from fairlead.testing.draining import Drain, Drained
from fairlead.testing.memory import Block, Memory, immediately
from fairlead.values import Duration


def use(app: App, *, clock: Clock | None = None, transaction: Block | None = None) -> AppTest:
    """Test an application: ``with use(app) as test:`` (or ``async with``).

    In the block all that the app sends goes to a database in memory, made for the block and gone
    after it. ``transaction`` gives a context manager whose value is the connection that handlers
    get from ``ctx.transaction()``."""
    return AppTest(app, clock or Clock(), transaction)


class AppTest:
    """What ``use(app)`` gives. ``clock`` is the time of the block, which stands until you move it;
    ``db`` the in-memory database, for everything that is not about tasks."""

    def __init__(self, app: App, clock: Clock, transaction: Block | None) -> None:
        self.app = app
        self.clock = clock
        self._memory = Memory(clock, transaction=transaction, records=True)
        self._db = self._memory.connect_async()  # the drains'
        self._databases = Databases(self._memory.connect, self._memory.connect_async)
        self._before: Databases | None = None
        self._runner: asyncio.Runner | None = None

    # --- the block -------------------------------------------------------------------------------
    def __enter__(self) -> AppTest:
        if self._before is not None:
            raise UsageError("this test is already running: call use(app) for each")
        for task in self.app.tasks.values():
            immediately(self._db.queue(task.queue).create())
        immediately(self.app.declare(self._db))
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

    # --- what was sent ---------------------------------------------------------------------------
    def sent(
        self, task: Task[..., Any] | str | None = None, queue: str | None = None
    ) -> list[SentCall]:
        """What was sent since the block began, in its order, whether it has run by now or not: one
        for each message. A send that only met a duplicate is not there."""
        return [
            SentCall.of(message, self.app.tasks)
            for message in self._memory.model.sent
            if (task is None or message.type == name_of(task)) and queue in (None, message.queue)
        ]

    def assert_sent(
        self, task: Task[..., Any] | str, /, *, times: int | None = None, **args: Any
    ) -> list[SentCall]:
        """The task was sent with these arguments (others do not matter), so many times or, without
        ``times``, at least once. The calls that fit."""
        calls = self.sent()
        found = matching(calls, task, args)
        if (not found) if times is None else len(found) != times:
            raise AssertionError(complaint(calls, len(found), task, times, args))
        return found

    def assert_nothing_sent(self) -> None:
        """Nothing at all was sent since the block began, or since ``forget``."""
        calls = self.sent()
        if calls:
            raise AssertionError(f"Nothing was to be sent. {listing(calls)}")

    def forget(self) -> None:
        """Forget what was sent so far; the messages stay."""
        self._memory.model.sent.clear()

    # --- running it ------------------------------------------------------------------------------
    def tick(self) -> Ticked:
        """Send what the schedules have due now; ``drain`` does so, too."""
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
        """Run what is due, here and now, and what that sends, until nothing more is due.

        The clock stands still meanwhile, so retries and delayed messages wait. ``until``, a time or
        seconds from now, moves it there by and by and runs what comes due on the way, schedules
        too; ``retries=True`` moves it until no message waits any more.

        What a handler raises is raised here (where the clock moves only if its message is dead);
        ``raise_errors=False`` leaves it at what happens in production."""
        if _in_event_loop():
            raise UsageError("an event loop runs here: await test.drain_async()")
        if self._runner is None:
            # Not the thread's loop for everybody else: that would be set by default.
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        drain = self._begin(self._runner, until, retries, raise_errors, limit)
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
        """The same for ``await``: coroutine functions run in this event loop, one at a time, plain
        functions in a thread."""
        drain = self._begin(None, until, retries, raise_errors, limit)
        try:
            for _ in drain.rounds():
                await drain.pump()
        finally:
            await drain.finish()
        return drain.result()

    def _begin(
        self,
        runner: asyncio.Runner | None,
        until: datetime | Duration | None,
        retries: bool,
        raise_errors: bool,
        limit: int,
    ) -> Drain:
        if self._before is None:
            raise UsageError("drain() belongs into the block: with use(app) as test:")
        return Drain(
            self.app,
            self._db,
            self.clock,
            self.tick,
            runner,
            until=until,
            retries=retries,
            raise_errors=raise_errors,
            limit=limit,
        )


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
