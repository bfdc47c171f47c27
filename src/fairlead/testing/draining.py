"""Work off what is due: a worker without a heart, a claimer and a rest.

It handles one message after the other with the parts of the real one: its slots, its way of calling
handlers, its verdicts, its hooks, its settling.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from fairlead.aio.database import AsyncDatabase
from fairlead.aio.leased import AsyncLeasedMessage
from fairlead.operations import check
from fairlead.schedules import Ticked
from fairlead.tasks.verdicts import Verdict
from fairlead.testing.clock import Clock
from fairlead.testing.memory import immediately
from fairlead.testing.slots import VisibleSlots
from fairlead.values import Duration
from fairlead.worker.heart import Pulse
from fairlead.worker.home import Home
from fairlead.worker.leaving import UNWIND
from fairlead.worker.runtime import Worker
from fairlead.worker.settling import Settler
from fairlead.worker.work import STOP, Work


@dataclass(frozen=True, slots=True)
class Drained:
    """What became of the messages that ``drain`` handled: one that failed and was tried again
    counts each time. ``errors`` are the handlers' exceptions."""

    done: int = 0
    failed: int = 0  # and will be tried again
    deferred: int = 0
    dead: int = 0
    lost: int = 0  # somebody took the message away from its handler
    errors: list[BaseException] = field(default_factory=list[BaseException])


class SettledAtOnce(Settler):
    """The in-memory database is never away and never slow."""

    def settle(self, work: Work, verdict: Verdict) -> None:
        super().settle(work, verdict)
        immediately(self.flush())

    def begin(self, message: AsyncLeasedMessage, verdict: Verdict) -> None:
        immediately(self._one(message, verdict))


class Drain(Worker):
    def __init__(
        self,
        app: Home,
        db: AsyncDatabase,
        clock: Clock,
        tick: Callable[[], Ticked],
        runner: asyncio.Runner | None,
        *,
        until: datetime | Duration | None,
        retries: bool,
        raise_errors: bool,
        limit: int,
    ) -> None:
        """Without a runner of its own it is in the event loop that runs."""
        super().__init__(app, concurrency=1)
        self.clock = clock
        self.db = db
        self.loop = asyncio.get_running_loop() if runner is None else runner.get_loop()
        self.in_loop = runner is None
        self.until = _moment(clock, until)
        self.moves_clock = retries or self.until is not None
        self.raises = raise_errors
        self.settler = SettledAtOnce(db, self.metrics.add_lost)
        self.slots = self.here = VisibleSlots(self)
        self._tick = tick
        self._runner = runner
        self._limit = check.integer(limit, "limit", 1, 2**53)
        self._handled = 0
        self._turns = deque(self.tasks)  # queues, each in its turn
        self._next_in: float | None = None  # seconds until there may be more
        self._pulse = Pulse(cast("Any", None), math.inf)
        for queue in self.tasks:
            immediately(db.queue(queue).create())
            settings = immediately(db.queue(queue).settings())
            self.max_attempts[queue] = settings.max_attempts

    # --- what is due -----------------------------------------------------------------------------
    def rounds(self) -> Iterator[None]:
        """One for each time at which something is due; between two of them the clock moves."""
        self._tell("worker_started")
        while True:
            ticked = self._run_schedules()
            yield
            if self.here.failure is not None or not self.moves_clock:
                break
            waits = [self._next_in] if self.until is None else [self._next_in, ticked.next_in]
            wait = min((one for one in waits if one is not None), default=None)
            if self.until is not None:
                left = (self.until - self.clock()) / 1_000_000
                if left <= 0:
                    break
                wait = left if wait is None else min(wait, left)
            if wait is None:
                break
            self.clock.move(max(wait, 0.000_001))
        self._tell("worker_stopped")

    def _run_schedules(self) -> Ticked:
        ticked = self._tick()
        if ticked.errors and self.raises:
            told = "; ".join(f"{name}: {error}" for name, error in ticked.errors)
            raise AssertionError(f"schedules could not be run: {told}")
        return ticked

    def claim(self) -> bool:
        """Start the next message that is due, one from each queue in turn; False: there is none."""
        waits: list[float] = []
        for _ in range(len(self._turns)):
            queue = self._turns[0]
            self._turns.rotate(-1)
            messages = immediately(self.db.queue(queue).receive(1))
            if messages:
                if not self._counts(messages[0]):
                    return False
                self.plan.buffered += 1
                self.slots.take(messages, self._pulse)
                return True
            if messages.retry_after is not None:
                waits.append(messages.retry_after)
        self._next_in = min(waits, default=None)
        return False

    def _counts(self, message: AsyncLeasedMessage) -> bool:
        self._handled += 1
        if self._handled <= self._limit:
            return True
        immediately(message.release())
        error = AssertionError(
            f"drain() has handled {self._limit} messages, and there is more to do, such as "
            f"{message.type or repr(message.body)}: does a handler send itself again and again? If "
            "there really are so many, say drain(limit=…)"
        )
        self.here.fail(error)
        return False

    # --- here ------------------------------------------------------------------------------------
    def run_due(self) -> None:
        while self.here.failure is None and self.claim():
            pass

    def run_in_loop(self, coroutine: Coroutine[Any, Any, None]) -> None:
        assert self._runner is not None
        self._runner.run(coroutine)

    def soon(self, what: Callable[..., Any], *args: Any) -> None:
        if self.in_loop:
            super().soon(what, *args)
        else:
            what(*args)

    # --- in the loop -----------------------------------------------------------------------------
    async def pump(self, over: Callable[[], bool] = lambda: False) -> None:
        """Handle what is due until nothing is left, or ``over``."""
        while not over():
            if self.here.failure is not None:
                await self._stop_all()
                return
            if self.plan.may_start() and self.claim():
                continue
            if not self.slots.running:
                return
            await self.sleep(None)

    async def _stop_all(self) -> None:
        """A handler may wait for one that has failed: that would take for ever. Coroutines are
        cancelled. Threads are told: an exception from outside may strike anything, such as the
        start of another thread. The end of the block ends their waiting."""
        for work in list(self.slots.running):
            if work.task.is_async:
                work.cancel(STOP)
            else:
                work.cancelled = STOP
        end = time.monotonic() + UNWIND
        while self.slots.running and time.monotonic() < end:
            await self.sleep(0.05)
        self.slots.running.clear()

    # --- the end ---------------------------------------------------------------------------------
    async def finish(self) -> None:
        await self.here.wait_for_hooks()
        self.slots.close()

    def result(self) -> Drained:
        if self.here.failure is not None:
            raise self.here.failure
        count = self.here.outcomes
        return Drained(
            done=count["acked"] + count["completed"],
            failed=count["failed"],
            deferred=count["deferred"],
            dead=count["dead"],
            lost=count["lost"],
            errors=self.here.errors,
        )


def _moment(clock: Clock, until: datetime | Duration | None) -> int | None:
    if until is None:
        return None
    if isinstance(until, datetime):
        return check.instant(until, "until")
    return clock() + check.microseconds(until, "until")
