"""Runs plain functions in threads of the worker, one for each running handler.

Not a ThreadPoolExecutor: it creates a future and wakes the event loop for each call, and its size
is fixed. A handler that has released its slot needs one thread more.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import functools
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from fairturn.tasks.verdicts import Verdict
from fairturn.worker.delivery import Delivery

# Packages that take locks of the whole process: imports, logging, our own pools. An exception that
# is raised in them from outside would leave these locked for ever.
UNINTERRUPTIBLE = frozenset({"fairturn", "importlib", "logging", "queue", "threading"})
PAUSES = (0.002, 0.1)  # seconds between attempts to interrupt a handler: first, longest
# Seconds after which the handler's connection is closed: it waits for an unreachable database.
CLOSE_AFTER = 1.0


class Interrupted(BaseException):
    """Raised inside a handler that has to stop: its time is over, its lease is lost, or the worker
    stops. A BaseException, so that ``except Exception`` in a handler does not catch it."""


@dataclass(slots=True)
class _Current:
    """What a thread works on at the moment; ``runs`` is guarded by the thread's lock."""

    runs: bool = True


class Threads:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        finished: Callable[[Delivery, Verdict], None],
        close_connections: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._finished = finished
        self._close_connections = close_connections  # those that a thread is using
        self._deliveries: SimpleQueue[Delivery | None] = SimpleQueue()
        self._ended: deque[tuple[Delivery, Verdict]] = deque()
        self._collecting = False  # the event loop will call _collect
        self._threads = 0
        self._busy = 0  # deliveries that were started and not collected

    def start(self, delivery: Delivery) -> None:
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            # A daemon thread: a handler that never returns must not keep the process alive.
            threading.Thread(target=self._run, name="fairturn-handler", daemon=True).start()
        self._deliveries.put(delivery)

    def _run(self) -> None:
        ident = threading.get_ident()
        while True:
            delivery = self._deliveries.get()
            if delivery is None:
                return
            lock = threading.Lock()
            current, (pause, _) = _Current(), PAUSES
            delivery.interrupt = functools.partial(
                self._interrupt, ident, lock, current, pause, 0.0
            )
            verdict: Verdict | None = None
            try:
                if delivery.cancelled is not None:
                    raise Interrupted
                verdict = contextvars.Context().run(delivery.call)
                with lock:
                    current.runs = False
            except BaseException as error:
                # The handler's own errors are a verdict already. This is an interruption, which may
                # have come just after the handler ended.
                while True:
                    with contextlib.suppress(Interrupted):
                        with lock:
                            current.runs = False
                        break
                if verdict is None:
                    verdict = delivery.verdict_on_error(error)
            self._ended.append((delivery, verdict))
            if not self._collecting:
                self._collecting = True
                with contextlib.suppress(RuntimeError):  # the event loop is closed
                    self._loop.call_soon_threadsafe(self._collect)

    def _interrupt(
        self, ident: int, lock: threading.Lock, current: _Current, pause: float, waited: float
    ) -> None:
        """Make the handler stop, as soon as it can be interrupted."""
        with lock:
            if not current.runs:
                return
            if not is_uninterruptible(ident):
                _raise_in(ident, Interrupted)
                return
            if waited > CLOSE_AFTER:
                self._close_connections(ident)
        _, longest = PAUSES
        longer = min(2 * pause, longest)
        self._loop.call_later(pause, self._interrupt, ident, lock, current, longer, waited + pause)

    def _collect(self) -> None:
        self._collecting = False
        while self._ended:
            delivery, verdict = self._ended.popleft()
            self._busy -= 1
            self._finished(delivery, verdict)

    def close(self) -> None:
        for _ in range(self._threads):
            self._deliveries.put(None)


def is_uninterruptible(ident: int) -> bool:
    """Whether the handler of this thread has called code that must not be interrupted.

    If the thread waits only for the interpreter's lock, the exception is raised immediately. If it
    waits for something else (a sleep, a read), it is raised after that call."""
    frame = sys._current_frames().get(ident)  # pyright: ignore[reportPrivateUsage]
    if frame is not None and frame.f_code is threading.Condition.wait.__code__:
        return False  # Condition.wait and its callers clean up after an error
    # (Our own code that calls the handler does so, too.)
    while frame is not None and frame.f_code is not Delivery.call.__code__:
        name: str = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] in UNINTERRUPTIBLE:
            return True
        frame = frame.f_back
    return False


def _raise_in(ident: int, error: type[BaseException]) -> None:
    """Raise an exception in another thread as soon as it runs Python code, which is after the
    current sleep or read."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))
