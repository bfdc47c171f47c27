"""The databases of an application: how it connects, and which connections it has open."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable

from fairturn.aio.database import AsyncDatabase
from fairturn.sync.database import Database


class Databases:
    """One Database for all threads, one AsyncDatabase for each event loop, opened at the first use.
    fairturn.testing replaces this object in tests."""

    def __init__(
        self, connect: Callable[[], Database], connect_async: Callable[[], AsyncDatabase]
    ) -> None:
        self._connect = connect
        self._sync: Database | None = None
        self._async: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncDatabase] = (
            weakref.WeakKeyDictionary()
        )
        self.connect_async = connect_async

    @property
    def sync(self) -> Database:
        if self._sync is None:
            self._sync = self._connect()
        return self._sync

    @property
    def of_this_loop(self) -> AsyncDatabase:
        loop = asyncio.get_running_loop()
        if loop not in self._async:
            self._async[loop] = self.connect_async()
        return self._async[loop]

    def close(self) -> None:
        if self._sync is not None:
            self._sync.close()
            self._sync = None

    async def close_async(self) -> None:
        db = self._async.pop(asyncio.get_running_loop(), None)
        if db is not None:
            await db.close()
        self.close()
