"""The pool: connections of our own, shared by threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from fairturn.core.errors import DatabaseUnavailable
from fairturn.drivers.base import OwnDriver

STALE = 10.0  # a connection that was idle for so many seconds is tested before it is used


class Pool:
    """Connections are opened when needed, at most ``size``, and handed out newest first."""

    def __init__(self, open: Callable[[], OwnDriver], size: int, timeout: float) -> None:
        self._open = open
        self._size = size
        self._timeout = timeout
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._free = threading.Condition()
        self._idle: list[tuple[OwnDriver, float]] = []
        self._users: dict[OwnDriver, int] = {}  # the thread that uses it
        self._opened = 0
        self._closed = False

    def acquire(self) -> OwnDriver:
        """Take a connection; wait until one is free if all are taken."""
        if self._pid != os.getpid():
            # A forked child must not use the sockets of its parent: it has a new, empty pool.
            self._reset()
        with self._free:
            deadline = time.monotonic() + self._timeout
            while True:
                if self._closed:
                    raise DatabaseUnavailable("this Database is closed; connect again")
                if self._idle:
                    driver, since = self._idle.pop()
                    break
                if self._opened < self._size:
                    self._opened += 1
                    driver, since = None, 0.0
                    break
                try:
                    freed = self._free.wait(deadline - time.monotonic())
                except BaseException:  # Ctrl-C: pass the notification on to another thread
                    self._free.notify()
                    raise
                if not freed:
                    raise DatabaseUnavailable(
                        f"all {self._size} connections were busy for {self._timeout} s: "
                        "raise pool_size, or use fewer threads (SQLite has one: keep your "
                        "transactions short)"
                    )
        thread = threading.get_ident()
        try:
            if driver is not None:
                self._users[driver] = thread
                if time.monotonic() - since <= STALE or self._alive(driver):
                    return driver
                del self._users[driver]
            driver = self._open()
            self._users[driver] = thread
            return driver
        except BaseException:
            if driver is not None:
                self._users.pop(driver, None)
            self._forget()
            raise

    def _alive(self, driver: OwnDriver) -> bool:
        try:
            driver.execute("SELECT 1", ())
        except BaseException as error:
            if driver.code(error) is None:
                driver.close()
                raise
            self._close(driver, *self._take_idle())
            return False
        return True

    def abort(self, thread: int) -> None:
        """Break the connections that this thread uses: it may wait for an answer."""
        for driver in [driver for driver, user in list(self._users.items()) if user == thread]:
            driver.abort()

    def release(self, driver: OwnDriver) -> None:
        self._users.pop(driver, None)
        with self._free:
            if self._closed:
                driver.close()
                return
            self._idle.append((driver, time.monotonic()))
            self._free.notify()

    def discard(self, driver: OwnDriver) -> None:
        """Take back a connection that must not be used again, and close it."""
        self._users.pop(driver, None)
        driver.close()
        self._forget()

    def lose(self, driver: OwnDriver) -> None:
        """Take back a broken connection, and close the idle ones, too: they are probably broken by
        the same cause, and each would make another call fail."""
        self._users.pop(driver, None)
        self._close(driver, *self._take_idle())
        self._forget()

    def _take_idle(self) -> list[OwnDriver]:
        with self._free:
            idle, self._idle = self._idle, []
            self._opened -= len(idle)
            self._free.notify_all()
        return [driver for driver, _ in idle]

    @staticmethod
    def _close(*drivers: OwnDriver) -> None:
        for driver in drivers:
            driver.abort()  # so that close() does not wait for the server
            driver.close()

    def _forget(self) -> None:
        with self._free:
            self._opened -= 1
            self._free.notify()

    def close(self) -> None:
        if self._pid != os.getpid():
            return
        with self._free:
            self._closed = True
            idle, self._idle = self._idle, []
            self._free.notify_all()
        for driver, _ in idle:
            driver.close()
