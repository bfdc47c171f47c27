"""Run calls: on connections of our own with retries, or on yours as it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from fairlead.connecting import Options, Target
from fairlead.drivers.base import OwnDriver
from fairlead.drivers.yours import driver_for
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
from fairlead.run import run
from fairlead.sync.pool import Pool

T = TypeVar("T")


class Runner(Protocol):
    own: bool  # False: on your connection, in your transaction

    def run(self, call: Call[T]) -> T: ...
    def using(self, connection: Any) -> Runner: ...


class OwnRunner:
    """Runs each call on a pooled connection of ours, in a transaction of its own."""

    own = True

    def __init__(self, target: Target, options: Options) -> None:
        self._target = target
        self._pool = Pool(self._open, target.pool_size, max(options.timeout, 30.0))
        self._ready = False
        self._preparing = threading.Lock()

    def _open(self) -> OwnDriver:
        try:
            return self._target.open()
        except (ImportError, TypeError):
            raise
        except Exception as error:
            raise unreachable(self._target.shown, error) from error

    def _prepare(self, driver: OwnDriver) -> None:
        """Once per Database: SQLite brings its schema up to date by itself, of the others it is
        checked that it serves this client."""
        with self._preparing:
            if not self._ready:
                backend = self._target.backend
                op = backend.migrate() if self._target.migrates_itself else backend.check()
                run(op, driver, own=True)
                self._ready = True

    def run(self, call: Call[T]) -> T:
        attempt = 0
        while True:
            driver = self._pool.acquire()
            try:
                if not self._ready and call.needs_schema:
                    self._prepare(driver)
                value = run(call.start(), driver, own=True)
            except BaseException as error:
                code = driver.code(error)
                verdict = judge(self._target.backend, code, error, call, attempt)
                if lost(code, verdict):
                    self._pool.lose(driver)
                elif not isinstance(error, Exception) or unusable(verdict):
                    # Also after KeyboardInterrupt: the protocol may be in the middle of a reply.
                    self._pool.discard(driver)
                else:
                    self._pool.release(driver)
                if verdict not in (BUSY, LOST):
                    if verdict is error:
                        raise
                    assert isinstance(verdict, BaseException)
                    raise verdict from error
            else:
                self._pool.release(driver)
                if call.after is not None:
                    self.run(call.after)
                return value
            time.sleep(pause(attempt))
            attempt += 1

    @contextmanager
    def transaction(self) -> Generator[Any]:
        """A connection of ours in a transaction, committed at the end: for ``using``."""
        driver = self._pool.acquire()
        kept = False
        try:
            driver.begin(True)
            try:
                yield driver.connection
                driver.commit()
            except BaseException:
                driver.rollback()
                raise
            kept = True
        finally:
            (self._pool.release if kept else self._pool.discard)(driver)

    def using(self, connection: Any) -> Runner:
        return YourRunner(self._target, connection)

    def abort(self, thread: int) -> None:
        """Whatever this thread waits for on a connection of ours ends with an error now."""
        self._pool.abort(thread)

    def close(self) -> None:
        self._pool.close()


class YourRunner:
    """Runs calls on your connection. Never begins, commits, rolls back or repeats."""

    own = False

    def __init__(self, target: Target, connection: Any) -> None:
        self._target = target
        self._driver = driver_for(connection, target.backend.dialect)

    def run(self, call: Call[T]) -> T:
        try:
            return run(call.start(), self._driver, own=False)
        except BaseException as error:
            verdict = judge_yours(self._target.backend, self._driver.code(error), error)
            if verdict is error:
                raise
            raise verdict from error

    def using(self, connection: Any) -> Runner:
        return YourRunner(self._target, connection)
