"""All waits of one AsyncDatabase share one task, one look and, per queue, one place to sleep."""

from __future__ import annotations

import asyncio

from fairlead.aio.running import AsyncRunner
from fairlead.aio.waking import AsyncTicket, AsyncWaker, sleep
from fairlead.errors import DatabaseUnavailable, FairleadError
from fairlead.operations import waiting
from fairlead.operations.call import Core
from fairlead.operations.waiting import Wait
from fairlead.polling import Pace
from fairlead.values import Outcome


class AsyncHub:
    """A task looks for everybody, for as long as anybody waits."""

    def __init__(self, core: Core, runner: AsyncRunner, waker: AsyncWaker) -> None:
        self._core = core
        self._runner = runner
        self._waker = waker
        self._waits: dict[Wait, asyncio.Event] = {}
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()  # by the database, or by somebody new

    async def wait(self, wait: Wait) -> Outcome:
        rows = await self._runner.run(waiting.outcomes(self._core, wait.queue, [wait]))
        if waiting.judge([wait], rows) or wait.over():
            return wait.result()
        over = self._waits[wait] = asyncio.Event()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="fairlead-hub")
        self._woken.set()
        try:
            left = wait.left()
            async with asyncio.timeout(None if left is None else max(0.0, left)):
                await over.wait()
        except TimeoutError:
            pass  # said by result()
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
        # Leaving takes a moment, in which somebody new may come.
        while self._waits:
            tickets: dict[str, AsyncTicket] = {}
            try:
                await self._watch(tickets)
                for ticket in tickets.values():
                    await ticket.leave()
            except Exception as error:
                self._end(list(self._waits), error)

    async def _watch(self, tickets: dict[str, AsyncTicket]) -> None:
        pace, known = Pace(), set[Wait]()
        while self._waits:
            waits = list(self._waits)
            if not known.issuperset(waits):
                pace = Pace()
            known = set(waits)
            for queue in dict.fromkeys(wait.queue for wait in waits):
                if queue not in tickets:  # subscribe first, then look
                    tickets[queue] = await self._waker.ticket(queue, self._woken)
                await self._look(queue, [wait for wait in waits if wait.queue == queue])
            for ticket in tickets.values():
                await ticket.stay()
            if self._waits:
                await sleep(self._woken, pace.next(self._waker.live))

    async def _look(self, queue: str, waits: list[Wait]) -> None:
        try:
            rows = await self._runner.run(waiting.outcomes(self._core, queue, waits))
        except FairleadError as error:  # theirs who wait there
            self._end(waits, error)
        else:
            self._over(waiting.judge(waits, rows))

    def _end(self, waits: list[Wait], error: Exception) -> None:
        for wait in waits:
            wait.error = error
        self._over(waits)

    def _over(self, waits: list[Wait]) -> None:
        for wait in waits:
            event = self._waits.pop(wait, None)
            if event is not None:
                event.set()
