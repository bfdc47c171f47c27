"""The waker of the async door; execution/sync/waker.py explains what a waker does.

There is no thread: the event loop watches PostgreSQL's socket, and a timer checks SQLite's data
version, which takes microseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

from fairturn.core.errors import DatabaseError
from fairturn.drivers.base import Watching
from fairturn.execution.aio.runner import AsyncRunner
from fairturn.execution.database_url import Target
from fairturn.execution.retries import pause
from fairturn.execution.sync.waker import ALL, RENEW, SLEEP_US, WATCH
from fairturn.operations.call import Call


class AsyncTicket:
    """One subscription to a queue: ``woken`` is set when something may have changed there."""

    def __init__(self, waker: AsyncWaker, queue: str, woken: asyncio.Event | None) -> None:
        self.queue = queue
        self.woken = asyncio.Event() if woken is None else woken
        self._waker = waker

    @property
    def live(self) -> bool:
        """Can the database wake us now? Else the caller has to check often."""
        return self._waker.live

    async def stay(self) -> None:
        """Renew the subscription: the caller goes on waiting."""
        await self._waker.stay(self)

    async def wait(self, seconds: float) -> None:
        await self.stay()
        await sleep(self.woken, seconds)

    async def leave(self) -> None:
        await self._waker.leave(self)


async def sleep(woken: asyncio.Event, seconds: float | None) -> None:
    """Wait until the event is set, or for ``seconds``; then clear it."""
    try:
        async with asyncio.timeout(seconds):
            await woken.wait()
    except TimeoutError:
        pass
    woken.clear()


class AsyncWaker:
    """The waker of a database that cannot wake anybody: callers poll."""

    live = False

    def __init__(self) -> None:
        self._tickets: dict[str, set[AsyncTicket]] = {}

    async def ticket(self, queue: str, woken: asyncio.Event | None = None) -> AsyncTicket:
        ticket = AsyncTicket(self, queue, woken)
        self._tickets.setdefault(queue, set()).add(ticket)
        return ticket

    async def stay(self, ticket: AsyncTicket) -> None:
        """The owner of the ticket is about to wait."""

    async def leave(self, ticket: AsyncTicket) -> bool:
        """Remove the ticket; True if it was the last one of its queue."""
        others = self._tickets.get(ticket.queue, set())
        others.discard(ticket)
        if not others:
            self._tickets.pop(ticket.queue, None)
        return not others

    def wake(self, queue: str | None) -> None:
        """Wake the tickets of one queue, or all tickets."""
        for name in list(self._tickets) if queue is None else [queue, ALL]:
            for ticket in self._tickets.get(name, ()):
                ticket.woken.set()

    async def close(self) -> None:
        self.wake(None)


class AsyncSqliteWaker(AsyncWaker):
    """Every commit of another connection, in any process, changes SQLite's data version."""

    def __init__(self, watch: Callable[[], Watching]) -> None:
        super().__init__()
        self._watch = watch
        self._watching: Watching | None = None
        self._seen = 0
        self._timer: asyncio.TimerHandle | None = None

    async def ticket(self, queue: str, woken: asyncio.Event | None = None) -> AsyncTicket:
        ticket = await super().ticket(queue, woken)
        if self._watching is None:
            self._watching = self._watch()
        if self._timer is None:
            self.live = True
            self._seen = self._watching.version()
            self._next()
        return ticket

    def _next(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(WATCH, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._tickets or self._watching is None:
            return  # nobody waits
        version = self._watching.version()
        if version != self._seen:
            self._seen = version
            self.wake(None)
        self._next()

    async def close(self) -> None:
        await super().close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._watching is not None:
            self._watching.close()
            self._watching = None


class AsyncPostgresWaker(AsyncWaker):
    """Listens on one connection. Senders notify only the queues that have a registered listener."""

    def __init__(
        self, listen: Callable[[], Awaitable[Any]], runner: AsyncRunner, backend: Any
    ) -> None:
        super().__init__()
        self._listen = listen
        self._runner = runner
        self._backend = backend
        self._listening: Any = None
        self._connecting = asyncio.Lock()
        self._registered: dict[str, float] = {}
        self._failures = 0
        self._next_try = 0.0

    async def ticket(self, queue: str, woken: asyncio.Event | None = None) -> AsyncTicket:
        ticket = await super().ticket(queue, woken)
        try:
            await self.stay(ticket)
        except BaseException:
            await super().leave(ticket)
            raise
        return ticket

    async def _connect(self) -> None:
        """Open the listening connection, unless it is open; after a failure pause first."""
        async with self._connecting:
            if self._listening is not None or time.monotonic() < self._next_try:
                return
            try:
                listening = await self._listen()
            except ConnectionError:
                # No call has failed: until we are connected, callers poll.
                self._failures = min(self._failures + 1, 10)
                self._next_try = time.monotonic() + pause(self._failures)
                return
            self._failures = 0
            listening.start(self._notified, self._broke)
            self._listening, self.live = listening, True

    def _notified(self, queues: list[str]) -> None:
        for queue in queues:
            self.wake(queue)

    def _broke(self) -> None:
        self._listening, self.live = None, False
        self._registered.clear()
        self.wake(None)

    async def stay(self, ticket: AsyncTicket) -> None:
        """Register as a listener of the queue, again every RENEW seconds."""
        if self._listening is None:
            await self._connect()
        now = time.monotonic()
        if self._listening is None or now - self._registered.get(ticket.queue, -RENEW) < RENEW:
            return
        self._registered[ticket.queue] = now
        try:
            await self._register(ticket.queue, SLEEP_US)
        except BaseException:
            self._registered.pop(ticket.queue, None)
            raise

    async def leave(self, ticket: AsyncTicket) -> bool:
        last = await super().leave(ticket)
        if (
            last
            and self._listening is not None
            and self._registered.pop(ticket.queue, None) is not None
        ):
            # If the database is away, the registration ends by itself.
            with contextlib.suppress(DatabaseError):
                await self._register(ticket.queue, 0)
        return last

    async def _register(self, queue: str, us: int) -> None:
        who = self._listening.pid
        call = Call("sleep", lambda: self._backend.sleep(queue, who, us), repeatable=True)
        await self._runner.run(call)

    async def close(self) -> None:
        await super().close()
        if self._listening is not None:
            await self._listening.close()
            self._listening, self.live = None, False


def waker_for(target: Target, runner: AsyncRunner) -> AsyncWaker:
    if target.watch is not None:
        return AsyncSqliteWaker(target.watch)
    if target.listen_async is not None:
        return AsyncPostgresWaker(target.listen_async, runner, target.backend)
    return AsyncWaker()
