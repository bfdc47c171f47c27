"""The hub: one task checks for all waits of a Database, with one query and ticket per queue."""

from __future__ import annotations

import asyncio

from fairturn.core.errors import DatabaseUnavailable, FairturnError
from fairturn.core.values import Outcome
from fairturn.execution.aio.runner import AsyncRunner
from fairturn.execution.aio.waker import AsyncTicket, AsyncWaker, sleep
from fairturn.execution.polling import Pace
from fairturn.execution.retries import absence
from fairturn.operations.call import Core
from fairturn.operations.insight.waits import Wait, judge, outage, outcomes


class AsyncHub:
    """Checks all waits, in a task that runs while there are any."""

    def __init__(self, core: Core, runner: AsyncRunner, waker: AsyncWaker) -> None:
        self._core = core
        self._runner = runner
        self._waker = waker
        self._waits: dict[Wait, asyncio.Event] = {}
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()  # by the database, or by a new wait

    async def wait(self, wait: Wait) -> Outcome:
        rows = await self._runner.run(outcomes(self._core, wait.queue, [wait]))
        if judge([wait], rows) or wait.over():
            return wait.result()
        over = self._waits[wait] = asyncio.Event()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="fairturn-hub")
        self._woken.set()
        try:
            left = wait.left()
            async with asyncio.timeout(None if left is None else max(0.0, left)):
                await over.wait()
        except TimeoutError:
            pass  # result() raises WaitTimeout
        finally:
            self._waits.pop(wait, None)
            if not self._waits:
                self._woken.set()
        return wait.result()

    async def close(self) -> None:
        self._end(list(self._waits), DatabaseUnavailable("this Database is closed; connect again"))
        self._woken.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        # While the tickets leave, a new wait may come.
        while self._waits:
            tickets: dict[str, AsyncTicket] = {}
            try:
                await self._watch(tickets)
                for ticket in tickets.values():
                    await ticket.leave()
            except Exception as error:
                self._end(list(self._waits), error)

    async def _watch(self, tickets: dict[str, AsyncTicket]) -> None:
        pace, known, failures = Pace(), set[Wait](), 0
        while self._waits:
            waits = list(self._waits)
            if not known.issuperset(waits):
                pace = Pace()
            known = set(waits)
            try:
                for queue in dict.fromkeys(wait.queue for wait in waits):
                    if queue not in tickets:  # subscribe first, then check
                        tickets[queue] = await self._waker.ticket(queue, self._woken)
                    await self._check(queue, [wait for wait in waits if wait.queue == queue])
                for ticket in tickets.values():
                    await ticket.stay()
                failures = 0
            except DatabaseUnavailable as error:
                if self._core.closed:
                    raise
                # The waits outlast it, for example a failover, as long as they have time.
                outage(waits, error)
                failures += 1
            if self._waits:
                pause = absence(failures) if failures else pace.next(self._waker.live)
                await sleep(self._woken, pause)

    async def _check(self, queue: str, waits: list[Wait]) -> None:
        try:
            rows = await self._runner.run(outcomes(self._core, queue, waits))
        except DatabaseUnavailable:
            raise
        except FairturnError as error:  # it belongs to the waits of this queue
            self._end(waits, error)
        else:
            self._over(judge(waits, rows))

    def _end(self, waits: list[Wait], error: Exception) -> None:
        for wait in waits:
            wait.error = error
        self._over(waits)

    def _over(self, waits: list[Wait]) -> None:
        for wait in waits:
            event = self._waits.pop(wait, None)
            if event is not None:
                event.set()
