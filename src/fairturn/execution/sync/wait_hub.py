"""The hub: one thread checks for all waits of a Database, with one query and ticket per queue."""

from __future__ import annotations

import os
import threading

from fairturn.core.errors import DatabaseUnavailable, FairturnError
from fairturn.core.values import Outcome
from fairturn.execution.polling import Pace
from fairturn.execution.retries import absence
from fairturn.execution.sync.runner import OwnRunner
from fairturn.execution.sync.waker import Ticket, Waker
from fairturn.operations.call import Core
from fairturn.operations.insight.waits import Wait, judge, outage, outcomes

LINGER = 1.0  # seconds until the thread ends when nobody waits any more


class Hub:
    """Checks all waits, in a thread that runs while there are any."""

    def __init__(self, core: Core, runner: OwnRunner, waker: Waker) -> None:
        self._core = core
        self._runner = runner
        self._waker = waker
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waits: dict[Wait, threading.Event] = {}
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()  # by the database, or by a new wait
        self._closed = False

    def wait(self, wait: Wait) -> Outcome:
        if self._pid != os.getpid():
            self._reset()  # threads do not survive a fork
        rows = self._runner.run(outcomes(self._core, wait.queue, [wait]))
        if judge([wait], rows) or wait.over():
            return wait.result()
        over = threading.Event()
        with self._lock:
            self._waits[wait] = over
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="fairturn-hub", daemon=True)
                self._thread.start()
        self._woken.set()
        try:
            over.wait(wait.left())
        finally:
            with self._lock:
                self._waits.pop(wait, None)
        return wait.result()

    def close(self) -> None:
        self._closed = True
        self._woken.set()
        thread = self._thread
        # It is not alive if Ctrl-C came just before it started.
        if thread is not None and thread.is_alive() and self._pid == os.getpid():
            thread.join()

    def _run(self) -> None:
        tickets: dict[str, Ticket] = {}
        try:
            self._watch(tickets)
            for ticket in tickets.values():
                ticket.leave()
        except Exception as error:
            self._end(self._take_all(), error)
        if self._closed:
            self._end(
                self._take_all(), DatabaseUnavailable("this Database is closed; connect again")
            )

    def _watch(self, tickets: dict[str, Ticket]) -> None:
        pace, known, failures = Pace(), set[Wait](), 0
        while not self._closed:
            with self._lock:
                waits = list(self._waits)
            if not waits:
                if self._woken.wait(LINGER):
                    self._woken.clear()
                    continue
                with self._lock:
                    if not self._waits:
                        self._thread = None
                        return
                continue
            if not known.issuperset(waits):
                pace = Pace()
            known = set(waits)
            try:
                for queue in dict.fromkeys(wait.queue for wait in waits):
                    if queue not in tickets:  # subscribe first, then check
                        tickets[queue] = self._waker.ticket(queue, self._woken)
                    self._check(queue, [wait for wait in waits if wait.queue == queue])
                for ticket in tickets.values():
                    ticket.stay()
                failures = 0
            except DatabaseUnavailable as error:
                # The waits outlast it, for example a failover, as long as they have time.
                outage(waits, error)
                failures += 1
            self._woken.wait(absence(failures) if failures else pace.next(self._waker.live))
            self._woken.clear()

    def _take_all(self) -> list[Wait]:
        """Return all waits; the next wait starts another thread."""
        with self._lock:
            self._thread = None
            return list(self._waits)

    def _end(self, waits: list[Wait], error: Exception) -> None:
        for wait in waits:
            wait.error = error
        self._over(waits)

    def _over(self, waits: list[Wait]) -> None:
        for wait in waits:
            with self._lock:
                event = self._waits.pop(wait, None)
            if event is not None:
                event.set()

    def _check(self, queue: str, waits: list[Wait]) -> None:
        try:
            rows = self._runner.run(outcomes(self._core, queue, waits))
        except DatabaseUnavailable:
            raise
        except FairturnError as error:  # it belongs to the waits of this queue
            self._end(waits, error)
        else:
            self._over(judge(waits, rows))
