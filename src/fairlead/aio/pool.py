"""A few connections of our own, shared by the tasks of one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Generator

from fairlead.drivers.base import AsyncDriver
from fairlead.errors import DatabaseUnavailable
from fairlead.sync.pool import STALE


@contextlib.contextmanager
def watched(driver: AsyncDriver, patience: float | None) -> Generator[None]:
    """Close the driver's socket under whoever waits longer: a peer that swallows what we send, and
    acknowledges it, is noticed by no time-out of TCP's."""
    if patience is None:
        yield
        return
    watch = asyncio.get_running_loop().call_later(patience, driver.abort)
    try:
        yield
    finally:
        watch.cancel()


class AsyncPool:
    """Connections are opened when needed, at most ``size``, and handed out newest first."""

    def __init__(
        self, open: Callable[[], Awaitable[AsyncDriver]], size: int, timeout: float
    ) -> None:
        self._open = open
        self._size = size
        self._timeout = timeout
        self._free = asyncio.Semaphore(size)
        self._idle: list[tuple[AsyncDriver, float]] = []
        self._closed = False
        self.patience: float | None = None  # seconds an answer may take; None: as long as it likes

    async def acquire(self) -> AsyncDriver:
        """A connection for the caller alone; wait for one if all are taken."""
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

    async def _alive(self, driver: AsyncDriver) -> bool:
        try:
            with watched(driver, self.patience):
                await driver.execute("SELECT 1", ())
        except BaseException as error:
            if driver.code(error) is None:
                await driver.close()
                raise
            await self._close_lost(driver)
            return False
        return True

    async def release(self, driver: AsyncDriver) -> None:
        if self._closed:
            await driver.close()
        else:
            self._idle.append((driver, time.monotonic()))
        self._free.release()

    async def discard(self, driver: AsyncDriver) -> None:
        """Give back a connection that must not be used again."""
        self._free.release()
        await driver.close()

    async def lose(self, driver: AsyncDriver) -> None:
        """The same, and the idle ones with it: what has broken one way to the server has broken
        all. Else the next calls would find that out one after the other."""
        self._free.release()
        await self._close_lost(driver)

    async def _close_lost(self, driver: AsyncDriver) -> None:
        lost = [driver, *(idle for idle, _ in self._idle)]
        self._idle.clear()
        for one in lost:
            one.abort()  # nobody is there to say goodbye to
        for one in lost:
            await one.close()

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        for driver, _ in idle:
            await driver.close()
