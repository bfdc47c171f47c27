"""Plain functions run in threads of the worker: as many as handlers run at once.

Not a ThreadPoolExecutor: that makes a future and wakes the event loop for each call, and its size
is fixed, where a handler that has given its slot away needs one thread more.
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
from queue import SimpleQueue

from fairlead.tasks.verdicts import Verdict
from fairlead.worker import handling
from fairlead.worker.work import Work

# Packages that take locks which the whole process needs, and take them so that an exception out of
# nowhere would leave them locked for ever: imports, logging, our own pools.
DELICATE = frozenset({"fairlead", "importlib", "logging", "queue", "threading"})
AGAIN = (0.002, 0.1)  # seconds until a handler that is in the middle of such a thing is tried again
HANG_UP = 1.0  # seconds after which its connection is closed: it waits for a database that is away


class Interrupted(BaseException):
    """Raised inside a handler that has to leave: its time is over, its lease is lost, or the worker
    stops. A BaseException, so that ``except Exception`` in a handler lets it pass."""


class Threads:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Callable[[Work], Verdict],
        finished: Callable[[Work, Verdict], None],
        hang_up: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._call = call
        self._finished = finished
        self._hang_up = hang_up  # closes the connections that a thread is using
        self._works: SimpleQueue[Work | None] = SimpleQueue()
        self._ended: deque[tuple[Work, Verdict]] = deque()
        self._told = False  # the event loop will come and collect
        self._threads = 0
        self._busy = 0  # works that were given to the threads and not collected

    def start(self, work: Work) -> None:
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            # A daemon: a handler that never returns must not keep the process from ending.
            threading.Thread(target=self._run, name="fairlead-handler", daemon=True).start()
        self._works.put(work)

    def _run(self) -> None:
        ident = threading.get_ident()
        while True:
            work = self._works.get()
            if work is None:
                return
            lock = threading.Lock()
            current = [True]
            work.halt = functools.partial(self._halt, ident, lock, current, AGAIN[0], 0.0)
            verdict: Verdict | None = None
            try:
                if work.cancelled is not None:
                    raise Interrupted
                verdict = contextvars.Context().run(self._call, work)
                with lock:
                    current[0] = False
            except BaseException as error:
                # The handler's own errors are a verdict already. This is an interruption, perhaps
                # one that came when the handler had just ended.
                while True:
                    with contextlib.suppress(Interrupted):
                        with lock:
                            current[0] = False
                        break
                if verdict is None:
                    verdict = work.verdict_of(error)
            self._ended.append((work, verdict))
            if not self._told:
                self._told = True
                with contextlib.suppress(RuntimeError):  # the event loop has closed: nobody asks
                    self._loop.call_soon_threadsafe(self._collect)

    def _halt(
        self, ident: int, lock: threading.Lock, current: list[bool], again: float, tried: float
    ) -> None:
        """Make the handler leave, as soon as it can be interrupted."""
        with lock:
            if not current[0]:
                return
            if not is_delicate(ident):
                _raise_in(ident, Interrupted)
                return
            if tried > HANG_UP:
                self._hang_up(ident)
        more = min(2 * again, AGAIN[1])
        self._loop.call_later(again, self._halt, ident, lock, current, more, tried + again)

    def _collect(self) -> None:
        self._told = False
        while self._ended:
            work, verdict = self._ended.popleft()
            self._busy -= 1
            self._finished(work, verdict)

    def close(self) -> None:
        for _ in range(self._threads):
            self._works.put(None)


def is_delicate(ident: int) -> bool:
    """Is this thread, below its handler, in code that must not be interrupted?

    An exception that is set now is raised where the thread stands: at the very place if it waits
    for the interpreter, after the call if it waits for something else."""
    frame = sys._current_frames().get(ident)  # pyright: ignore[reportPrivateUsage]
    if frame is not None and frame.f_code is threading.Condition.wait.__code__:
        return False  # it sleeps, with everything around it prepared for an error
    # (Above the call of the handler is our own code, which is prepared, too.)
    while frame is not None and frame.f_code is not handling.call.__code__:
        name: str = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] in DELICATE:
            return True
        frame = frame.f_back
    return False


def _raise_in(ident: int, error: type[BaseException]) -> None:
    """Raise in another thread, as soon as it runs Python code: a sleep or a read ends first."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))
