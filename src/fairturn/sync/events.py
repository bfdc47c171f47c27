# Generated from aio/events.py by `make generate`: edit that file.
"""Iterate over the events of queues."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from fairturn.core.errors import DatabaseUnavailable
from fairturn.core.values import Event
from fairturn.execution.polling import Deadline, Pace
from fairturn.execution.retries import absence
from fairturn.execution.sync.runner import Runner
from fairturn.execution.sync.waker import ALL
from fairturn.operations.call import Core
from fairturn.operations.insight import events


class Events(Iterator[Event]):
    """Iterates over events as they are committed. ``cursor`` is the position: store it to continue
    there later, with ``after=``."""

    def __init__(
        self,
        core: Core,
        runner: Runner,
        queue: str | None,
        kinds: Sequence[str] | None,
        after: str | None,
        timeout_us: int | None,
    ) -> None:
        self._core = core
        self._runner = runner
        self.cursor = after
        self._queue = queue
        self._kinds = kinds
        self._timeout_us = timeout_us
        self._page: list[Event] = []
        self._next = after

    def _read(self, after: str | None) -> str:
        call = events.read(self._core, after, self._queue, self._kinds)
        page, cursor = self._runner.run(call)
        self._page = page[::-1]
        return cursor

    def begin(self) -> Events:
        """If no cursor was given, start at this moment; else do nothing."""
        if self.cursor is None:
            self.cursor = self._read(None)
        return self

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> Event:
        if not self._page:
            self._wait()
        event = self._page.pop()
        self.cursor = event.cursor if self._page else self._next
        return event

    def _wait(self) -> None:
        """Wait until there are events; raise StopIteration after the timeout."""
        self.begin()
        deadline, pace = Deadline(self._timeout_us), Pace()
        self._next = self._read(self.cursor)
        if self._page:
            return
        ticket = self._core.waker.ticket(self._queue or ALL)
        failures = 0
        try:
            while True:
                self.cursor = self._next
                try:
                    self._next = self._read(self.cursor)
                except DatabaseUnavailable:
                    # It outlasts an absence of the database, such as a failover.
                    if self._core.closed or not self._runner.own or deadline.over():
                        raise
                    failures += 1
                    time.sleep(deadline.within(absence(failures)))
                    continue
                failures = 0
                if self._page:
                    return
                if deadline.over():
                    raise StopIteration
                ticket.wait(deadline.within(pace.next(ticket.live)))
        finally:
            ticket.leave()
