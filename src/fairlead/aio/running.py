"""Run calls: on connections of our own with retries, or on yours as it is."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

from fairlead.aio.pool import AsyncPool, watched
from fairlead.connecting import Options, Target
from fairlead.drivers.base import AsyncDriver
from fairlead.drivers.yours import ThreadlessDriver, async_driver_for
from fairlead.operations.call import Call
from fairlead.retrying import (
    BUSY,
    LOST,
    judge,
    judge_yours,
    lost,
    pause,
    unreachable,
    unusable,
)
from fairlead.run import arun
from fairlead.sync.running import OwnRunner

T = TypeVar("T")


class AsyncRunner(Protocol):
    own: bool  # False: on your connection, in your transaction

    async def run(self, call: Call[T]) -> T: ...
    def using(self, connection: Any) -> AsyncRunner: ...


def cancellations() -> int:
    """How often the task that runs now was cancelled, and did not say that it goes on."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class AsyncOwnRunner:
    """Runs each call on a pooled connection of ours, in a transaction of its own."""

    own = True

    def __init__(self, target: Target, options: Options) -> None:
        self._target = target
        self._pool = AsyncPool(self._open, target.pool_size, max(options.timeout, 30.0))
        self._ready = False

    async def _open(self) -> AsyncDriver:
        assert self._target.open_async is not None
        try:
            return await self._target.open_async()
        except (ImportError, TypeError):
            raise
        except Exception as error:
            raise unreachable(self._target.shown, error) from error

    async def _acquire(self, cancelled: int) -> AsyncDriver:
        """A connection. While one is made or tried, a driver may turn a cancellation into an error
        of its own, or swallow it: whoever was cancelled would go on for ever."""
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
                with watched(driver, self._pool.patience):
                    if not self._ready and call.needs_schema:
                        await arun(self._target.backend.check(), driver, own=True)
                        self._ready = True
                    value = await arun(call.start(), driver, own=True)
            except BaseException as error:
                code = driver.code(error)
                verdict = judge(self._target.backend, code, error, call, attempt)
                if lost(code, verdict):
                    await self._pool.lose(driver)
                elif not isinstance(error, Exception) or unusable(verdict):
                    # Also after a cancellation: the protocol may be in the middle of a reply.
                    await self._pool.discard(driver)
                else:
                    await self._pool.release(driver)
                if isinstance(error, Exception) and cancellations() > cancelled:
                    # Drivers ask the server to stop first, and then raise what they met there.
                    raise asyncio.CancelledError from error
                if verdict not in (BUSY, LOST):
                    if verdict is error:
                        raise
                    assert isinstance(verdict, BaseException)
                    raise verdict from error
            else:
                await self._pool.release(driver)
                if call.after is not None:
                    await self.run(call.after)
                return value
            await asyncio.sleep(pause(attempt))
            attempt += 1

    def be_patient(self, seconds: float) -> None:
        self._pool.patience = seconds

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any]:
        """A connection of ours in a transaction, committed at the end: for ``using``."""
        driver = await self._pool.acquire()
        kept = False
        try:
            await driver.begin(True)
            try:
                yield driver.connection
                await driver.commit()
            except BaseException:
                await driver.rollback()
                raise
            kept = True
        finally:
            await (self._pool.release if kept else self._pool.discard)(driver)

    def using(self, connection: Any) -> AsyncRunner:
        return AsyncYourRunner(self._target, connection)

    async def close(self) -> None:
        await self._pool.close()


def be_patient(runner: AsyncRunner, seconds: float) -> None:
    """An answer may take so long; then the connection is given up. (SQLite's are in this process,
    and yours are yours.)"""
    if isinstance(runner, AsyncOwnRunner):
        runner.be_patient(seconds)


class ThreadRunner:
    """Runs a whole sync call in one thread hop: for SQLite, where a statement takes microseconds
    and a hop per statement would cost more than the work."""

    own = True

    def __init__(self, target: Target, options: Options) -> None:
        self._target = target
        self._sync = OwnRunner(target, options)
        self._thread = ThreadPoolExecutor(1, "fairlead-sqlite")
        # Whoever waits for the write lock must not keep its holder from giving it back.
        self._begins = ThreadPoolExecutor(1, "fairlead-begin")
        self._ends = ThreadPoolExecutor(1, "fairlead-end")

    async def run(self, call: Call[T]) -> T:
        loop = asyncio.get_running_loop()
        # Shielded: a cancelled caller must not leave a call half awaited; it runs to its end.
        return await asyncio.shield(loop.run_in_executor(self._thread, self._sync.run, call))

    @asynccontextmanager
    async def transaction(self, own: OwnRunner) -> AsyncGenerator[Any]:
        """A transaction of a sync runner, on whose connection calls of ours would wait for it. Its
        statements run in the event loop; only what waits for the write lock or the disk does not.

        What is cancelled here while a thread is at it is ended all the same: nobody else would."""
        block = own.transaction()
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
            # Nobody waits for it; if the rollback fails, its connection is closed all the same.
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
    """Wait for its end even if cancelled meanwhile, and only then be cancelled."""
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
            return await arun(call.start(), self._driver, own=False)
        except BaseException as error:
            verdict = judge_yours(self._target.backend, self._driver.code(error), error)
            if verdict is error:
                raise
            raise verdict from error

    def using(self, connection: Any) -> AsyncRunner:
        return AsyncYourRunner(self._target, connection)
