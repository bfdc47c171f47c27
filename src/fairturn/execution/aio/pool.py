"""The pool: connections of our own, shared by the tasks of one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Generator

from fairturn.core.errors import DatabaseUnavailable
from fairturn.drivers.base import AsyncOwnDriver
from fairturn.execution.sync.pool import STALE


@contextlib.contextmanager
def watched(driver: AsyncOwnDriver, answer_timeout: float | None) -> Generator[None]:
    """Break the connection if the block takes longer than ``answer_timeout`` seconds. A server that
    accepts our bytes and never answers is not noticed by the time-outs of TCP."""
    if answer_timeout is None:
        yield
        return
    watch = asyncio.get_running_loop().call_later(answer_timeout, driver.abort)
    try:
        yield
    finally:
        watch.cancel()


class AsyncPool:
    """Connections are opened when needed, at most ``size``, and handed out newest first."""

    def __init__(
        self, open: Callable[[], Awaitable[AsyncOwnDriver]], size: int, timeout: float
    ) -> None:
        self._open = open
        self._size = size
        self._timeout = timeout
        self._free = asyncio.Semaphore(size)
        self._idle: list[tuple[AsyncOwnDriver, float]] = []
        self._closed = False
        self.answer_timeout: float | None = None  # seconds for an answer; None: no limit

    async def acquire(self) -> AsyncOwnDriver:
        """Take a connection; wait until one is free if all are taken."""
        if self._closed:
            raise DatabaseUnavailable("this Database is closed; connect again")
        try:
            async with asyncio.timeout(self._timeout):
                await self._free.acquire()
        except TimeoutError:
            raise DatabaseUnavailable(
                f"all {self._size} connections were busy for {self._timeout} s: "
                "raise pool_size, or run fewer tasks"
            ) from None
        try:
            if self._closed:  # while we waited
                raise DatabaseUnavailable("this Database is closed; connect again")
            if self._idle:
                driver, since = self._idle.pop()
                if time.monotonic() - since <= STALE or await self._alive(driver):
                    return driver
            return await self._open()
        except BaseException:
            self._free.release()
            raise

    async def _alive(self, driver: AsyncOwnDriver) -> bool:
        try:
            with watched(driver, self.answer_timeout):
                await driver.execute("SELECT 1", ())
        except BaseException as error:
            if driver.code(error) is None:
                await driver.close()
                raise
            await self._close_lost(driver)
            return False
        return True

    async def release(self, driver: AsyncOwnDriver) -> None:
        if self._closed:
            await driver.close()
        else:
            self._idle.append((driver, time.monotonic()))
        self._free.release()

    async def discard(self, driver: AsyncOwnDriver) -> None:
        """Take back a connection that must not be used again, and close it."""
        self._free.release()
        await driver.close()

    async def lose(self, driver: AsyncOwnDriver) -> None:
        """Take back a broken connection, and close the idle ones, too: they are probably broken by
        the same cause, and each would make another call fail."""
        self._free.release()
        await self._close_lost(driver)

    async def _close_lost(self, driver: AsyncOwnDriver) -> None:
        lost = [driver, *(idle for idle, _ in self._idle)]
        self._idle.clear()
        for one in lost:
            one.abort()  # so that close() does not wait for the server
        for one in lost:
            await one.close()

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        for driver, _ in idle:
            await driver.close()
