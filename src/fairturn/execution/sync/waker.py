"""The waker: wakes waiting calls when something may have changed in their queue.

A waiting call takes a *ticket* for its queue, checks, and then waits on the ticket. One thread per
Database learns of changes and wakes the tickets: PostgreSQL sends NOTIFY, and SQLite changes its
data version. MySQL has neither: there the calls poll.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from fairturn.core.errors import DatabaseError
from fairturn.drivers.base import Listening, Watching
from fairturn.execution.database_url import Target
from fairturn.execution.retries import pause
from fairturn.execution.sync.runner import OwnRunner
from fairturn.operations.call import Call

ALL = ""  # a ticket for all queues has this as its queue
RENEW = 20.0  # seconds after which a listener registers again
SLEEP_US = 60_000_000  # how long a registration lasts
WATCH = 0.003  # seconds between two checks of SQLite's data version


class Ticket:
    """One subscription to a queue: ``woken`` is set when something may have changed there."""

    def __init__(self, waker: Waker, queue: str, woken: threading.Event | None) -> None:
        self.queue = queue
        self.woken = threading.Event() if woken is None else woken
        self._waker = waker

    @property
    def live(self) -> bool:
        """Can the database wake us now? Else the caller has to check often."""
        return self._waker.live

    def stay(self) -> None:
        """Renew the subscription: the caller goes on waiting."""
        self._waker.stay(self)

    def wait(self, seconds: float) -> None:
        self.stay()
        self.woken.wait(seconds)
        self.woken.clear()

    def leave(self) -> None:
        self._waker.leave(self)


class Waker:
    """The waker of a database that cannot wake anybody: callers poll."""

    live = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tickets: dict[str, set[Ticket]] = {}

    def ticket(self, queue: str, woken: threading.Event | None = None) -> Ticket:
        ticket = Ticket(self, queue, woken)
        with self._lock:
            self._tickets.setdefault(queue, set()).add(ticket)
        return ticket

    def stay(self, ticket: Ticket) -> None:
        """The owner of the ticket is about to wait."""

    def leave(self, ticket: Ticket) -> bool:
        """Remove the ticket; True if it was the last one of its queue."""
        with self._lock:
            others = self._tickets.get(ticket.queue, set())
            others.discard(ticket)
            if not others:
                self._tickets.pop(ticket.queue, None)
            return not others

    def wake(self, queue: str | None) -> None:
        """Wake the tickets of one queue, or all tickets."""
        with self._lock:
            names = list(self._tickets) if queue is None else [queue, ALL]
            tickets = [ticket for name in names for ticket in self._tickets.get(name, ())]
        for ticket in tickets:
            ticket.woken.set()

    def close(self) -> None:
        self.wake(None)


class Watched(Waker, ABC):
    """A waker with a thread, from the first ticket until the Database is closed."""

    def __init__(self) -> None:
        super().__init__()
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._tickets = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self.live = False

    def ticket(self, queue: str, woken: threading.Event | None = None) -> Ticket:
        if self._pid != os.getpid():
            self._reset()  # threads do not survive a fork
        ticket = super().ticket(queue, woken)
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="fairturn-waker", daemon=True
                )
                self._thread.start()
        return ticket

    @abstractmethod
    def _run(self) -> None:
        """The work of the thread, until ``_closed`` is set."""

    def close(self) -> None:
        self._closed.set()
        super().close()
        thread = self._thread
        # It is not alive if Ctrl-C came just before it started.
        if thread is not None and thread.is_alive() and self._pid == os.getpid():
            thread.join()


class SqliteWaker(Watched):
    """Every commit of another connection, in any process, changes SQLite's data version."""

    def __init__(self, watch: Callable[[], Watching]) -> None:
        self._watch = watch
        super().__init__()

    def _run(self) -> None:
        watch = self._watch()
        seen = watch.version()
        self.live = True
        while not self._closed.wait(WATCH):
            version = watch.version() if self._tickets else seen
            if version != seen:
                seen = version
                self.wake(None)
        watch.close()


class PostgresWaker(Watched):
    """Listens on one connection. Senders notify only the queues that have a registered listener."""

    def __init__(self, listen: Callable[[], Listening], runner: OwnRunner, backend: Any) -> None:
        self._listen = listen
        self._runner = runner
        self._backend = backend
        super().__init__()

    def _reset(self) -> None:
        super()._reset()
        self._listening: Listening | None = None
        self._registered: dict[str, float] = {}
        self._tried = threading.Event()  # the first attempt to connect is over

    def ticket(self, queue: str, woken: threading.Event | None = None) -> Ticket:
        ticket = super().ticket(queue, woken)
        self._tried.wait(1.0)
        try:
            self.stay(ticket)
        except BaseException:
            super().leave(ticket)
            raise
        return ticket

    def stay(self, ticket: Ticket) -> None:
        """Register as a listener of the queue, again every RENEW seconds."""
        listening = self._listening
        if listening is None:
            return
        now = time.monotonic()
        with self._lock:
            if now - self._registered.get(ticket.queue, -RENEW) < RENEW:
                return
            self._registered[ticket.queue] = now
        try:
            self._register(ticket.queue, listening.pid, SLEEP_US)
        except BaseException:
            self._registered.pop(ticket.queue, None)
            raise

    def leave(self, ticket: Ticket) -> bool:
        last, listening = super().leave(ticket), self._listening
        if last and listening is not None and self._registered.pop(ticket.queue, None) is not None:
            # If the database is away, the registration ends by itself.
            with contextlib.suppress(DatabaseError):
                self._register(ticket.queue, listening.pid, 0)
        return last

    def _register(self, queue: str, who: int, us: int) -> None:
        call = Call("sleep", lambda: self._backend.sleep(queue, who, us), repeatable=True)
        self._runner.run(call)

    def _run(self) -> None:
        attempt = 0
        while not self._closed.is_set():
            try:
                with self._listen() as listening:
                    self._listening, self.live, attempt = listening, True, 0
                    self._tried.set()
                    while not self._closed.is_set():
                        for queue in listening.wait():
                            self.wake(queue)
            except ConnectionError:
                # No call has failed: until we are connected again, callers poll.
                attempt = min(attempt + 1, 10)
            finally:
                self.live, self._listening = False, None
                self._registered.clear()
                self._tried.set()
                self.wake(None)
            self._closed.wait(pause(attempt))

    def close(self) -> None:
        self._closed.set()
        listening = self._listening
        if listening is not None and self._pid == os.getpid():
            listening.interrupt()
        super().close()


def waker_for(target: Target, runner: OwnRunner) -> Waker:
    if target.watch is not None:
        return SqliteWaker(target.watch)
    if target.listen is not None:
        return PostgresWaker(target.listen, runner, target.backend)
    return Waker()
