"""Long polls: one line of waiters per queue, and one task that looks for all of them.

    wait ──> line of its queue ──> the task: look for the first in line,
             (a future each)       go on to the next ones while there is something,
                                   sleep until the core says that something may have changed

A waiter costs a future and a timer: no thread, no connection, no task. The task sleeps on one
ticket of the core's waker, so it is woken by sends of the library, of other processes and of plain
SQL; by what this process does itself it is woken directly. What no send announces (a delay or a
visibility that ends) is in `retry_after`.

A waiter whose time is over while somebody looks for it is answered with what that look finds. One
whose client has gone hands on what it got, or it is released, which does not count as an attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from fairlead.aio.database import AsyncDatabase
from fairlead.aio.queue import AsyncMessages
from fairlead.polling import Pace

# Receive up to `n` messages of a queue for `lease` seconds: (queue, n, lease, ordered).
Look = Callable[[str, int, float, bool], Awaitable[AsyncMessages]]

ABREAST = 16  # waiters for whom is looked at once, when there is plenty
BLIND = 0.025  # seconds between two looks, at most, where the database wakes nobody
LEAST = 0.001  # seconds to leave the database alone, whatever retry_after says


@dataclass(eq=False, slots=True)
class _Waiter:
    n: int
    lease: float
    given: asyncio.Future[AsyncMessages]
    served: bool = False  # somebody looks for it just now
    over: bool = False  # its time is

    def answer(self, messages: AsyncMessages) -> None:
        if not self.given.done():
            self.given.set_result(messages)


@dataclass(eq=False, slots=True)
class _Line:
    queue: str
    ordered: bool
    waiters: dict[_Waiter, None] = field(default_factory=dict[_Waiter, None])  # in order
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class Polls:
    """All long polls of one process."""

    def __init__(self, db: AsyncDatabase, look: Look) -> None:
        self._db = db
        self._look = look
        self._lines: dict[str, _Line] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def __len__(self) -> int:
        """How many wait."""
        return sum(len(line.waiters) for line in self._lines.values())

    async def wait(
        self, queue: str, n: int, lease: float, ordered: bool, seconds: float
    ) -> AsyncMessages:
        """Up to ``n`` messages as soon as there is one, or none after so many seconds."""
        if self._closed:
            return AsyncMessages()
        loop = asyncio.get_running_loop()
        waiter = _Waiter(n, lease, loop.create_future())
        line = self._join(queue, ordered, waiter)
        timer = loop.call_later(seconds, self._end, line, waiter)
        try:
            return await waiter.given
        except asyncio.CancelledError:
            if waiter.given.done() and not waiter.given.cancelled():
                # It was given something in the moment its client went.
                self._start(self._hand_on(line, waiter.given.result(), lease))
            raise
        finally:
            timer.cancel()
            self._leave(line, waiter)

    def wake(self, queue: str) -> None:
        """Something may have become visible there."""
        line = self._lines.get(queue)
        if line is not None:
            line.woken.set()

    async def close(self) -> None:
        """Answer all who wait, with nothing; those who come later do not wait."""
        self._closed = True
        for line in list(self._lines.values()):
            for waiter in list(line.waiters):
                self._end(line, waiter)
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    # --- standing in line ----------------------------------------------------------------------
    def _join(self, queue: str, ordered: bool, waiter: _Waiter) -> _Line:
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = _Line(queue, ordered)
            self._start(self._watch(line))
        line.waiters[waiter] = None
        line.woken.set()  # it looked before it stood here: look once more
        return line

    def _leave(self, line: _Line, waiter: _Waiter) -> None:
        line.waiters.pop(waiter, None)
        if not line.waiters:
            line.woken.set()

    def _end(self, line: _Line, waiter: _Waiter) -> None:
        waiter.over = True
        if not waiter.served:
            self._leave(line, waiter)
            waiter.answer(AsyncMessages())

    # --- looking -------------------------------------------------------------------------------
    async def _watch(self, line: _Line) -> None:
        try:
            ticket = await self._db.core.waker.ticket(line.queue, line.woken)
            try:
                pace = Pace()
                while line.waiters:
                    retry_after = await self._serve(line)
                    if line.waiters:
                        await ticket.wait(_pause(pace, ticket.live, retry_after))
                self._forget(line)
            finally:
                await ticket.leave()
        except Exception as error:  # theirs who wait: the queue is gone, or the database
            self._forget(line)
            for waiter in line.waiters:
                if not waiter.given.done():
                    waiter.given.set_exception(error)

    def _forget(self, line: _Line) -> None:
        if self._lines.get(line.queue) is line:
            del self._lines[line.queue]

    async def _serve(self, line: _Line) -> float | None:
        """Give what there is; then, when to look again."""
        abreast = 1
        while line.waiters:
            waiters = list(islice(line.waiters, abreast))
            if len(waiters) == 1:
                looks = [await self._serve_one(line, waiters[0])]
            else:
                looks = await asyncio.gather(*(self._serve_one(line, one) for one in waiters))
            for messages in looks:
                if not messages:
                    return messages.retry_after
            # Who asks beside others may be passed by them, so only where there is plenty; and an
            # ordered queue is asked by one at a time.
            plenty = all(len(got) == one.n for got, one in zip(looks, waiters, strict=True))
            abreast = min(abreast * 2, ABREAST) if plenty and not line.ordered else 1
        return None

    async def _serve_one(self, line: _Line, waiter: _Waiter) -> AsyncMessages:
        waiter.served = True
        try:
            messages = await self._look(line.queue, waiter.n, waiter.lease, line.ordered)
        finally:
            waiter.served = False
        if messages and waiter.given.done():
            await self._hand_on(line, messages, waiter.lease)
        elif messages or waiter.over:
            self._leave(line, waiter)
            waiter.answer(messages)
        return messages

    async def _hand_on(self, line: _Line, messages: AsyncMessages, lease: float) -> None:
        """Messages whose receiver has gone: to the next who can take them all, or back."""
        if not messages:
            return
        for waiter in line.waiters:
            free = not waiter.given.done() and not waiter.served
            if free and waiter.lease == lease and waiter.n >= len(messages):
                self._leave(line, waiter)
                waiter.answer(messages)
                return
        await self._db.queue(line.queue).release(messages)
        self.wake(line.queue)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="fairlead-polls")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _pause(pace: Pace, live: bool, retry_after: float | None) -> float:
    pause = pace.next(live)
    if not live:
        pause = min(pause, BLIND)
    return pause if retry_after is None else max(LEAST, min(pause, retry_after))
