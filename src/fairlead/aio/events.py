"""Follow what happens, event by event."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from fairlead.aio.running import AsyncRunner
from fairlead.operations import events
from fairlead.operations.call import Core
from fairlead.polling import Deadline, Pace
from fairlead.sync.waking import ALL
from fairlead.values import Event


class AsyncEvents(AsyncIterator[Event]):
    """Iterates over events as they are committed. ``cursor`` is where it stands: keep it, and go on
    from there another time with ``after=``."""

    def __init__(
        self,
        core: Core,
        runner: AsyncRunner,
        queue: str | None,
        kinds: Sequence[str] | None,
        after: str | None,
        timeout_us: int | None,
    ) -> None:
        self.core = core
        self.runner = runner
        self.cursor = after
        self._queue = queue
        self._kinds = kinds
        self._timeout_us = timeout_us
        self._page: list[Event] = []
        self._next = after

    async def _read(self, after: str | None) -> str:
        call = events.read(self.core, after, self._queue, self._kinds)
        page, cursor = await self.runner.run(call)
        self._page = page[::-1]
        return cursor

    async def begin(self) -> AsyncEvents:
        """From now on, if no cursor was given: from this call on, not from the first event."""
        if self.cursor is None:
            self.cursor = await self._read(None)
        return self

    def __aiter__(self) -> AsyncEvents:
        return self

    async def __anext__(self) -> Event:
        if not self._page:
            await self._wait()
        event = self._page.pop()
        self.cursor = event.cursor if self._page else self._next
        return event

    async def _wait(self) -> None:
        """Until there is a page; StopAsyncIteration after the time-out."""
        await self.begin()
        deadline, pace = Deadline(self._timeout_us), Pace()
        self._next = await self._read(self.cursor)
        if self._page:
            return
        ticket = await self.core.waker.ticket(self._queue or ALL)
        try:
            while True:
                self.cursor = self._next
                self._next = await self._read(self.cursor)
                if self._page:
                    return
                if deadline.over():
                    raise StopAsyncIteration
                await ticket.wait(deadline.within(pace.next(ticket.live)))
        finally:
            await ticket.leave()
