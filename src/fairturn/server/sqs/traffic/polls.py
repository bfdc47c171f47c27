"""Long polls: one line of waiters per queue, and one task that receives for all of them.

    wait ──> the queue's line ──> its task: receive for the first waiter,
             (a future each)      go on with the next ones while there are messages,
                                  sleep until the waker reports a change

A waiter costs a future and a timer: no thread, no connection, no task. The task has one
subscription at the core's waker: sends of the library, of other processes and of plain SQL wake it.
Changes by this process wake it directly. For changes without a notification (the end of a delay or
of a visibility) it sleeps no longer than `retry_after`.

A waiter whose time ends during a receive for it gets the result of that receive. If its client has
disconnected, the messages go to the next waiter or are released; this does not count as an attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from fairturn import internal
from fairturn.aio.database import AsyncDatabase
from fairturn.aio.queue import AsyncMessages
from fairturn.execution.polling import Pace

# Receive up to `n` messages of a queue for `lease` seconds: (queue, n, lease, ordered).
Receive = Callable[[str, int, float, bool], Awaitable[AsyncMessages]]

PARALLEL = 16  # receives at the same time, at most, while all of them are filled
POLL_MAX = 0.025  # longest pause between two receives, in seconds, without notifications
POLL_MIN = 0.001  # shortest pause, whatever retry_after is


@dataclass(eq=False, slots=True)
class _Waiter:
    n: int
    lease: float
    result: asyncio.Future[AsyncMessages]
    receiving: bool = False  # a receive for it is running
    timed_out: bool = False

    def answer(self, messages: AsyncMessages) -> None:
        if not self.result.done():
            self.result.set_result(messages)


@dataclass(eq=False, slots=True)
class _Line:
    queue: str
    ordered: bool
    waiters: dict[_Waiter, None] = field(default_factory=dict[_Waiter, None])  # in order
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class Polls:
    """All long polls of one process."""

    def __init__(self, db: AsyncDatabase, receive: Receive) -> None:
        self._db = db
        self._receive = receive
        self._lines: dict[str, _Line] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def __len__(self) -> int:
        """The number of waiting polls."""
        return sum(len(line.waiters) for line in self._lines.values())

    async def wait(
        self, queue: str, n: int, lease: float, ordered: bool, seconds: float
    ) -> AsyncMessages:
        """Return up to ``n`` messages as soon as there is one, or none after so many seconds."""
        if self._closed:
            return AsyncMessages()
        loop = asyncio.get_running_loop()
        waiter = _Waiter(n, lease, loop.create_future())
        line = self._join(queue, ordered, waiter)
        timer = loop.call_later(seconds, self._end, line, waiter)
        try:
            return await waiter.result
        except asyncio.CancelledError:
            if waiter.result.done() and not waiter.result.cancelled():
                # The client disconnected just when its messages came.
                self._start(self._pass_on(line, waiter.result.result(), lease))
            raise
        finally:
            timer.cancel()
            self._leave(line, waiter)

    def wake(self, queue: str) -> None:
        """Messages of this queue may have become visible."""
        line = self._lines.get(queue)
        if line is not None:
            line.woken.set()

    async def close(self) -> None:
        """Give all waiters an empty answer; later calls do not wait."""
        self._closed = True
        for line in list(self._lines.values()):
            for waiter in list(line.waiters):
                self._end(line, waiter)
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    # --- the line ------------------------------------------------------------------------------
    def _join(self, queue: str, ordered: bool, waiter: _Waiter) -> _Line:
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = _Line(queue, ordered)
            self._start(self._watch(line))
        line.waiters[waiter] = None
        line.woken.set()  # a message may have come since the waiter's own receive
        return line

    def _leave(self, line: _Line, waiter: _Waiter) -> None:
        line.waiters.pop(waiter, None)
        if not line.waiters:
            line.woken.set()

    def _end(self, line: _Line, waiter: _Waiter) -> None:
        waiter.timed_out = True
        if not waiter.receiving:
            self._leave(line, waiter)
            waiter.answer(AsyncMessages())

    # --- receiving -----------------------------------------------------------------------------
    async def _watch(self, line: _Line) -> None:
        try:
            ticket = await internal.ticket(self._db.queue(line.queue), line.woken)
            try:
                pace = Pace()
                while line.waiters:
                    retry_after = await self._serve(line)
                    if line.waiters:
                        await ticket.wait(_pause(pace, ticket.live, retry_after))
                self._remove(line)
            finally:
                await ticket.leave()
        except Exception as error:  # the queue was dropped, or the database cannot be reached
            self._remove(line)
            for waiter in line.waiters:
                if not waiter.result.done():
                    waiter.result.set_exception(error)

    def _remove(self, line: _Line) -> None:
        if self._lines.get(line.queue) is line:
            del self._lines[line.queue]

    async def _serve(self, line: _Line) -> float | None:
        """Receive for the waiters while there are messages; return the last ``retry_after``."""
        parallel = 1
        while line.waiters:
            waiters = list(islice(line.waiters, parallel))
            if len(waiters) == 1:
                received = [await self._serve_one(line, waiters[0])]
            else:
                received = await asyncio.gather(*(self._serve_one(line, one) for one in waiters))
            for messages in received:
                if not messages:
                    return messages.retry_after
            # Parallel receives may overtake each other: use them only while all are filled. An
            # ordered queue has one receive at a time.
            filled = all(len(got) == one.n for got, one in zip(received, waiters, strict=True))
            parallel = min(parallel * 2, PARALLEL) if filled and not line.ordered else 1
        return None

    async def _serve_one(self, line: _Line, waiter: _Waiter) -> AsyncMessages:
        waiter.receiving = True
        try:
            messages = await self._receive(line.queue, waiter.n, waiter.lease, line.ordered)
        finally:
            waiter.receiving = False
        if messages and waiter.result.done():
            await self._pass_on(line, messages, waiter.lease)
        elif messages or waiter.timed_out:
            self._leave(line, waiter)
            waiter.answer(messages)
        return messages

    async def _pass_on(self, line: _Line, messages: AsyncMessages, lease: float) -> None:
        """Give a disconnected client's messages to the next waiter that can take all; else release
        them."""
        if not messages:
            return
        for waiter in line.waiters:
            free = not waiter.result.done() and not waiter.receiving
            if free and waiter.lease == lease and waiter.n >= len(messages):
                self._leave(line, waiter)
                waiter.answer(messages)
                return
        await self._db.queue(line.queue).release(messages)
        self.wake(line.queue)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="fairturn-polls")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _pause(pace: Pace, live: bool, retry_after: float | None) -> float:
    pause = pace.next(live)
    if not live:
        pause = min(pause, POLL_MAX)
    return pause if retry_after is None else max(POLL_MIN, min(pause, retry_after))
