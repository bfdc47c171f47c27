"""Run calls: on connections of our own, with retries, or on yours, without."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from fairturn.drivers.base import OwnDriver
from fairturn.drivers.run import run
from fairturn.drivers.your_connection import driver_for
from fairturn.execution.database_url import Options, Target
from fairturn.execution.retries import decide, error_of_yours, pause, unreachable
from fairturn.execution.sync.pool import Pool
from fairturn.operations.call import Call

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
        """Before the first call: migrate on SQLite; elsewhere check that the schema fits."""
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
                decision = decide(self._target.backend, driver.code(error), error, call, attempt)
                getattr(self._pool, decision.connection)(driver)
                if decision.error is error:
                    raise
                if decision.error is not None:
                    raise decision.error from error
            else:
                self._pool.release(driver)
                if call.after is not None:
                    self.run(call.after)
                return value
            time.sleep(pause(attempt))
            attempt += 1

    @contextmanager
    def transaction(self) -> Generator[Any]:
        """Open a transaction that is committed at the end of the block; its value is the
        connection, for ``using``."""
        driver = self._pool.acquire()
        try:
            driver.begin(True)
            try:
                yield driver.connection
                driver.commit()
            except BaseException:
                driver.rollback()
                raise
        except BaseException:
            self._pool.discard(driver)
            raise
        self._pool.release(driver)

    def using(self, connection: Any) -> Runner:
        return YourRunner(self._target, connection)

    def abort(self, thread: int) -> None:
        """End the statement that this thread runs on a connection of ours, with an error."""
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
            raised = error_of_yours(self._target.backend, self._driver.code(error), error)
            if raised is error:
                raise
            raise raised from error

    def using(self, connection: Any) -> Runner:
        return YourRunner(self._target, connection)


def runner_for(target: Target, options: Options) -> OwnRunner:
    """The runner of a Database."""
    return OwnRunner(target, options)
