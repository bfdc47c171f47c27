"""Runs the due messages: a worker without heartbeat, claimer and long poll.

It receives one message after the other, and handles it with the parts of a real worker: slots,
deliveries, verdicts, hooks, settler.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from fairturn.aio.leased import AsyncLeasedMessage
from fairturn.core import check
from fairturn.core.errors import UsageError
from fairturn.core.schedules import Ticked
from fairturn.core.values import Duration
from fairturn.tasks.verdicts import Verdict
from fairturn.testing.clock import Clock
from fairturn.testing.memory import immediately
from fairturn.testing.slots import DrainSlots
from fairturn.worker.delivery import STOP
from fairturn.worker.heartbeat import HeldPermit
from fairturn.worker.runtime import Worker
from fairturn.worker.settler import Settler
from fairturn.worker.shutdown import UNWIND

if TYPE_CHECKING:
    from fairturn.testing.app import AppTest


@dataclass(frozen=True, slots=True)
class Drained:
    """The outcomes of the messages that ``drain`` handled. A message that failed and was retried
    counts each time. ``errors`` are the exceptions of handlers."""

    done: int = 0
    failed: int = 0  # and to be retried
    deferred: int = 0
    dead: int = 0
    lost: int = 0  # the handler's lease was lost
    errors: list[BaseException] = field(default_factory=list[BaseException])


class DrainSettler(Settler):
    """Carries out each verdict immediately: the memory backend needs no waiting and no batches."""

    def settle(self, message: AsyncLeasedMessage, verdict: Verdict) -> None:
        super().settle(message, verdict)
        immediately(self.flush())

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        immediately(job)


class Drain(Worker):
    def __init__(
        self,
        test: AppTest,
        runner: asyncio.Runner | None,
        until: datetime | Duration | None,
        retries: bool,
        raise_errors: bool,
        limit: int,
    ) -> None:
        """Without a runner it uses the event loop that runs."""
        if not test.entered:
            raise UsageError("call drain() inside the block: with use(app) as test:")
        super().__init__(test.app, concurrency=1)
        self.clock = test.clock
        self.db = test.async_db
        self.loop = asyncio.get_running_loop() if runner is None else runner.get_loop()
        self.in_loop = runner is None
        self.until = _moment(test.clock, until)
        self.moves_clock = retries or self.until is not None
        self.raises = raise_errors
        self.settler = DrainSettler(self)
        self.slots: DrainSlots = DrainSlots(self)  # pyright: ignore[reportIncompatibleVariableOverride]
        self._tick = test.tick
        self._runner = runner
        self._limit = check.integer(limit, "limit", 1, 2**53)
        self._handled = 0
        self._turns = deque(self.tasks)  # the queues; the next one to ask comes first
        self._next_in: float | None = None  # seconds until a message is due
        self._no_permit = HeldPermit(cast("Any", None), math.inf)
        immediately(self._prepare_queues())

    # --- what is due -----------------------------------------------------------------------------
    def rounds(self) -> Iterator[None]:
        """Yield once for each time at which something is due, and move the clock in between."""
        self._call_hooks("worker_started")
        while True:
            ticked = self._run_schedules()
            yield
            if self.slots.failure is not None or not self.moves_clock:
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
        self._call_hooks("worker_stopped")

    def _run_schedules(self) -> Ticked:
        ticked = self._tick()
        if ticked.errors and self.raises:
            told = "; ".join(f"{name}: {error}" for name, error in ticked.errors)
            raise AssertionError(f"schedules failed: {told}")
        return ticked

    def claim(self) -> bool:
        """Receive and start the next due message, from each queue in turn. Return False if there is
        none."""
        waits: list[float] = []
        for _ in range(len(self._turns)):
            queue = self._turns[0]
            self._turns.rotate(-1)
            messages = immediately(self.db.queue(queue).receive(1))
            if messages:
                if not self._within_limit(messages[0]):
                    return False
                self.slots.take(messages, self._no_permit)
                return True
            if messages.retry_after is not None:
                waits.append(messages.retry_after)
        self._next_in = min(waits, default=None)
        return False

    def _within_limit(self, message: AsyncLeasedMessage) -> bool:
        self._handled += 1
        if self._handled <= self._limit:
            return True
        immediately(message.release())
        error = AssertionError(
            f"drain() has handled {self._limit} messages, and more are due, such as "
            f"{message.type or repr(message.body)}. If a handler sends itself again and again, "
            "change it; if there are so many messages, use drain(limit=…)"
        )
        self.slots.fail(error)
        return False

    # --- in the test's thread --------------------------------------------------------------------
    def run_due(self) -> None:
        while self.slots.failure is None and self.claim():
            pass

    def run_in_loop(self, coroutine: Coroutine[Any, Any, None]) -> None:
        assert self._runner is not None
        self._runner.run(coroutine)

    def call_soon(self, what: Callable[..., Any], *args: Any) -> None:
        if self.in_loop:
            super().call_soon(what, *args)
        else:
            what(*args)

    # --- in the loop -----------------------------------------------------------------------------
    async def pump(self, over: Callable[[], bool] = lambda: False) -> None:
        """Run due messages until none is left, or until ``over`` returns True."""
        while not over():
            if self.slots.failure is not None:
                await self._stop_all()
                return
            if self.plan.may_start() and self.claim():
                continue
            if not self.slots.running:
                return
            await self.sleep(None)

    async def _stop_all(self) -> None:
        """Stop all handlers: one of them may wait for ever for the one that has failed. Coroutines
        are cancelled. Threads only see ``ctx.cancelled``: an exception that is raised in them from
        outside could interrupt anything, such as the start of another thread. The end of the block
        ends their waiting."""
        for delivery in list(self.slots.running):
            if delivery.task.is_async:
                delivery.cancel(STOP)
            else:
                delivery.cancelled = STOP
        end = time.monotonic() + UNWIND
        while self.slots.running and time.monotonic() < end:
            await self.sleep(0.05)
        self.slots.running.clear()

    # --- the end ---------------------------------------------------------------------------------
    async def finish(self) -> None:
        await self.slots.end_hooks(None)
        self.slots.close()

    def result(self) -> Drained:
        if self.slots.failure is not None:
            raise self.slots.failure
        count = self.slots.outcomes
        return Drained(
            done=count["acked"] + count["completed"],
            failed=count["failed"],
            deferred=count["deferred"],
            dead=count["dead"],
            lost=count["lost"],
            errors=self.slots.errors,
        )


def _moment(clock: Clock, until: datetime | Duration | None) -> int | None:
    if until is None:
        return None
    if isinstance(until, datetime):
        return check.instant(until, "until")
    return clock() + check.microseconds(until, "until")
