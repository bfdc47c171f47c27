"""Sleep until the database says that something may have changed.

A *ticket* is one sleeper's place: it is woken when something happens in its queue. What wakes it
depends on the database (one thread for all tickets of a Database, while there are any):
PostgreSQL tells us with NOTIFY, SQLite changes its data version, MySQL is only polled.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from fairlead.connecting import Target
from fairlead.drivers.base import Listening, Watching
from fairlead.errors import DatabaseError
from fairlead.operations.call import Call
from fairlead.retrying import pause
from fairlead.sync.running import OwnRunner

ALL = ""  # the place of those who sleep for any queue
RENEW = 20.0  # seconds after which a sleeper says again that it sleeps
SLEEP_US = 60_000_000  # how long the database believes it
WATCH = 0.003  # seconds between two looks at SQLite's data version


class Ticket:
    """A place to sleep: ``woken`` is set when something happens in its queue."""

    def __init__(self, waker: Waker, queue: str, woken: threading.Event | None) -> None:
        self.queue = queue
        self.woken = threading.Event() if woken is None else woken
        self._waker = waker

    @property
    def live(self) -> bool:
        """Will anything wake us? Otherwise look often."""
        return self._waker.live

    def stay(self) -> None:
        """We still sleep here."""
        self._waker.stay(self)

    def wait(self, seconds: float) -> None:
        self.stay()
        self.woken.wait(seconds)
        self.woken.clear()

    def leave(self) -> None:
        self._waker.leave(self)


class Waker:
    """Polling: nothing wakes anybody."""

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
        """The ticket's owner is about to sleep."""

    def leave(self, ticket: Ticket) -> bool:
        """True if it was the last of its queue."""
        with self._lock:
            others = self._tickets.get(ticket.queue, set())
            others.discard(ticket)
            if not others:
                self._tickets.pop(ticket.queue, None)
            return not others

    def wake(self, queue: str | None) -> None:
        """Wake the sleepers of one queue, or all."""
        with self._lock:
            names = list(self._tickets) if queue is None else [queue, ALL]
            tickets = [ticket for name in names for ticket in self._tickets.get(name, ())]
        for ticket in tickets:
            ticket.woken.set()

    def close(self) -> None:
        self.wake(None)


class Watched(Waker, ABC):
    """A thread of its own, from the first ticket to the end of the Database."""

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
                    target=self._run, name="fairlead-waker", daemon=True
                )
                self._thread.start()
        return ticket

    @abstractmethod
    def _run(self) -> None:
        """What the thread does until ``_closed``."""

    def close(self) -> None:
        self._closed.set()
        super().close()
        thread = self._thread
        # (Not alive: Ctrl-C may have come just when it was to start.)
        if thread is not None and thread.is_alive() and self._pid == os.getpid():
            thread.join()


class SqliteWaker(Watched):
    """Other connections' commits, ours and those of other processes, change the data version."""

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
    """Listens on one connection. Senders notify only while somebody has said that he sleeps."""

    def __init__(self, listen: Callable[[], Listening], runner: OwnRunner, backend: Any) -> None:
        self._listen = listen
        self._runner = runner
        self._backend = backend
        super().__init__()

    def _reset(self) -> None:
        super()._reset()
        self._listening: Listening | None = None
        self._said: dict[str, float] = {}
        self._tried = threading.Event()  # to connect, with or without success

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
        """Say, now and then, that somebody sleeps here."""
        listening = self._listening
        if listening is None:
            return
        now = time.monotonic()
        with self._lock:
            if now - self._said.get(ticket.queue, -RENEW) < RENEW:
                return
            self._said[ticket.queue] = now
        try:
            self._say(ticket.queue, listening.pid, SLEEP_US)
        except BaseException:
            self._said.pop(ticket.queue, None)
            raise

    def leave(self, ticket: Ticket) -> bool:
        last, listening = super().leave(ticket), self._listening
        if last and listening is not None and self._said.pop(ticket.queue, None) is not None:
            # If the database has just gone, it forgets us by itself; what was received stands.
            with contextlib.suppress(DatabaseError):
                self._say(ticket.queue, listening.pid, 0)
        return last

    def _say(self, queue: str, who: int, us: int) -> None:
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
                # Nobody's call has failed: until we are connected again, everybody polls.
                attempt = min(attempt + 1, 10)
            finally:
                self.live, self._listening = False, None
                self._said.clear()
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
