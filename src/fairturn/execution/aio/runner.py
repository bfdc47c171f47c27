"""Run calls: on connections of our own, with retries, or on yours, without."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

from fairturn.drivers.base import AsyncOwnDriver
from fairturn.drivers.run_async import run_async
from fairturn.drivers.your_connection import ThreadlessDriver, async_driver_for
from fairturn.execution.aio.pool import AsyncPool, watched
from fairturn.execution.database_url import Options, Target
from fairturn.execution.retries import decide, error_of_yours, pause, unreachable
from fairturn.execution.sync.runner import OwnRunner
from fairturn.operations.call import Call

T = TypeVar("T")


class AsyncRunner(Protocol):
    own: bool  # False: on your connection, in your transaction

    async def run(self, call: Call[T]) -> T: ...
    def using(self, connection: Any) -> AsyncRunner: ...


def cancellations() -> int:
    """Return how many cancellations of the current task are pending (``Task.cancelling``)."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class AsyncOwnRunner:
    """Runs each call on a pooled connection of ours, in a transaction of its own."""

    own = True

    def __init__(self, target: Target, options: Options) -> None:
        self._target = target
        self._pool = AsyncPool(self._open, target.pool_size, max(options.timeout, 30.0))
        self._ready = False

    async def _open(self) -> AsyncOwnDriver:
        assert self._target.open_async is not None
        try:
            return await self._target.open_async()
        except (ImportError, TypeError):
            raise
        except Exception as error:
            raise unreachable(self._target.shown, error) from error

    async def _acquire(self, cancelled: int) -> AsyncOwnDriver:
        """Take a connection from the pool. While a connection is opened or tested, a driver may
        turn a cancellation into an error of its own, or swallow it: it is raised here."""
        try:
            driver = await self._pool.acquire()
        except Exception as error:
            if cancellations() > cancelled:
                raise asyncio.CancelledError from error
            raise
        if cancellations() > cancelled:
            await self._pool.release(driver)
            raise asyncio.CancelledError
        return driver

    async def run(self, call: Call[T]) -> T:
        attempt = 0
        cancelled = cancellations()
        while True:
            driver = await self._acquire(cancelled)
            try:
                with watched(driver, self._pool.answer_timeout):
                    if not self._ready and call.needs_schema:
                        await run_async(self._target.backend.check(), driver, own=True)
                        self._ready = True
                    value = await run_async(call.start(), driver, own=True)
            except BaseException as error:
                decision = decide(self._target.backend, driver.code(error), error, call, attempt)
                await getattr(self._pool, decision.connection)(driver)
                if isinstance(error, Exception) and cancellations() > cancelled:
                    # On cancellation a driver asks the server to stop the statement, and then
                    # raises the server's error instead of CancelledError.
                    raise asyncio.CancelledError from error
                if decision.error is error:
                    raise
                if decision.error is not None:
                    raise decision.error from error
            else:
                await self._pool.release(driver)
                if call.after is not None:
                    await self.run(call.after)
                return value
            await asyncio.sleep(pause(attempt))
            attempt += 1

    def set_answer_timeout(self, seconds: float) -> None:
        self._pool.answer_timeout = seconds

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any]:
        """Open a transaction that is committed at the end of the block; its value is the
        connection, for ``using``."""
        driver = await self._pool.acquire()
        try:
            await driver.begin(True)
            try:
                yield driver.connection
                await driver.commit()
            except BaseException:
                await driver.rollback()
                raise
        except BaseException:
            await self._pool.discard(driver)
            raise
        await self._pool.release(driver)

    def using(self, connection: Any) -> AsyncRunner:
        return AsyncYourRunner(self._target, connection)

    async def close(self) -> None:
        await self._pool.close()


class ThreadRunner:
    """Runs each call in a thread: for SQLite. A statement takes microseconds there, so the whole
    call goes to the thread, not each statement."""

    own = True

    def __init__(self, target: Target, options: Options) -> None:
        self._target = target
        self._sync = OwnRunner(target, options)
        self._thread = ThreadPoolExecutor(1, "fairturn-sqlite")
        # Two threads: while one transaction waits in BEGIN for the write lock, the one that holds
        # the lock must be able to commit.
        self._begins = ThreadPoolExecutor(1, "fairturn-begin")
        self._ends = ThreadPoolExecutor(1, "fairturn-end")

    async def run(self, call: Call[T]) -> T:
        loop = asyncio.get_running_loop()
        # Shielded: the thread cannot be cancelled, so the call runs to its end.
        return await asyncio.shield(loop.run_in_executor(self._thread, self._sync.run, call))

    @asynccontextmanager
    async def transaction(self, block: AbstractContextManager[Any]) -> AsyncGenerator[Any]:
        """Begin and end ``block``, a transaction of a separate sync runner. We have only one
        connection, and a transaction on it would block all other calls. BEGIN and COMMIT wait for
        the write lock or the disk and run in threads; the statements between run in the event loop.

        If the task is cancelled meanwhile, the transaction is still ended."""
        beginning = self._begins.submit(block.__enter__)
        try:
            connection = await asyncio.wrap_future(beginning)
        except asyncio.CancelledError:
            beginning.add_done_callback(functools.partial(self._undo, block))
            raise
        try:
            yield connection
        except BaseException as error:
            await through(self._leave(block, error))
            raise
        await through(self._leave(block, None))

    def _undo(self, block: AbstractContextManager[Any], beginning: Future[Any]) -> None:
        if not beginning.cancelled() and beginning.exception() is None:
            # Nobody waits for the result; if the rollback fails, the connection is closed anyway.
            self._leave(block, asyncio.CancelledError())

    def _leave(
        self, block: AbstractContextManager[Any], error: BaseException | None
    ) -> Future[bool | None]:
        kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
        return self._ends.submit(block.__exit__, kind, error, trace)

    def using(self, connection: Any) -> AsyncRunner:
        return AsyncYourRunner(self._target, connection)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._shut)
        self._thread.shutdown()

    def _shut(self) -> None:
        self._begins.shutdown()
        self._ends.shutdown()
        self._sync.close()


async def through(work: Future[Any]) -> None:
    """Wait until the work has ended, even if cancelled; raise the cancellation after that."""
    waiting = asyncio.wrap_future(work)
    cancelled = False
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            cancelled = True
    waiting.result()
    if cancelled:
        raise asyncio.CancelledError


class AsyncYourRunner:
    """Runs calls on your connection. Never begins, commits, rolls back or repeats."""

    own = False

    def __init__(self, target: Target, connection: Any) -> None:
        self._target = target
        self._driver = async_driver_for(connection, target.backend.dialect)

    async def run(self, call: Call[T]) -> T:
        try:
            if isinstance(self._driver, ThreadlessDriver):
                return await self._driver.run(call.start())
            return await run_async(call.start(), self._driver, own=False)
        except BaseException as error:
            raised = error_of_yours(self._target.backend, self._driver.code(error), error)
            if raised is error:
                raise
            raise raised from error

    def using(self, connection: Any) -> AsyncRunner:
        return AsyncYourRunner(self._target, connection)


def runner_for(target: Target, options: Options) -> AsyncOwnRunner | ThreadRunner:
    """The runner of an AsyncDatabase."""
    return (ThreadRunner if target.open_async is None else AsyncOwnRunner)(target, options)
