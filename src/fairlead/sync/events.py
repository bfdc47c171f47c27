"""Follow what happens, event by event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.operations import events
from fairlead.operations.call import Core
from fairlead.polling import Deadline, Pace
from fairlead.sync.running import Runner
from fairlead.sync.waking import ALL
from fairlead.values import Event


class Events(Iterator[Event]):
    """Iterates over events as they are committed. ``cursor`` is where it stands: keep it, and go on
    from there another time with ``after=``."""

    def __init__(
        self,
        core: Core,
        runner: Runner,
        queue: str | None,
        kinds: Sequence[str] | None,
        after: str | None,
        timeout_us: int | None,
    ) -> None:
        self.core = core
        self.runner = runner
        self._queue = queue
        self._kinds = kinds
        self._timeout_us = timeout_us
        self._page: list[Event] = []
        self._next = ""
        # From now on means from this call on, not from the first next().
        self.cursor = self._read(None) if after is None else after

    def _read(self, after: str | None) -> str:
        call = events.read(self.core, after, self._queue, self._kinds)
        page, cursor = self.runner.run(call)
        self._page = page[::-1]
        return cursor

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> Event:
        if not self._page:
            self._wait()
        event = self._page.pop()
        self.cursor = event.cursor if self._page else self._next
        return event

    def _wait(self) -> None:
        """Until there is a page; StopIteration after the time-out."""
        deadline, pace = Deadline(self._timeout_us), Pace()
        self._next = self._read(self.cursor)
        if self._page:
            return
        ticket = self.core.waker.ticket(self._queue or ALL)
        try:
            while True:
                self.cursor = self._next
                self._next = self._read(self.cursor)
                if self._page:
                    return
                if deadline.over():
                    raise StopIteration
                ticket.wait(deadline.within(pace.next(ticket.live)))
        finally:
            ticket.leave()
