"""Where handlers run in a test: the worker's own slots, one at a time, and in sight.

*Here* is how ``drain()`` works: a plain function is called in the test's thread, outside of any
event loop; a coroutine function runs to its end in a private one. *In the loop* is how
``drain_async()`` works, and what happens around a coroutine function that gives its slot away: as
in a real worker, coroutines are tasks of the loop and plain functions have threads.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fairlead.aio.leased import AsyncLeasedMessage
from fairlead.errors import InvalidArgument, TaskTimeout
from fairlead.tasks.verdicts import Signal, Verdict
from fairlead.worker.metrics import outcome
from fairlead.worker.slots import Slots
from fairlead.worker.work import STOP, TIMEOUT, Work

if TYPE_CHECKING:
    from fairlead.testing.draining import Drain


class Handled(Work):
    """Remembers what its handler raised: a verdict knows only the text."""

    __slots__ = ("error",)

    def __init__(self, work: Work) -> None:
        super().__init__(work.worker, work.task, work.message, work.pulse)
        self.error: BaseException | None = None

    def verdict_of(self, error: BaseException) -> Verdict:
        self.error = error
        if self.cancelled == TIMEOUT:
            self.error = TaskTimeout(f"{self.task.name} took longer than {self.task.timeout:g} s")
        return super().verdict_of(error)

    def regain_slot(self) -> None:
        if self.cancelled != STOP:  # then the drain is over, and nobody would give it one
            super().regain_slot()


class VisibleSlots(Slots):
    def __init__(self, drain: Drain) -> None:
        super().__init__(drain)
        self._drain = drain
        self.outcomes: Counter[str] = Counter()
        self.errors: list[BaseException] = []  # of handlers
        self.failure: BaseException | None = None  # the first that the test shall see

    # --- in --------------------------------------------------------------------------------------
    def _refuse(self, message: AsyncLeasedMessage) -> None:
        super()._refuse(message)
        self.outcomes["failed"] += 1
        names = ", ".join(sorted(self._drain.app.tasks))
        self._fail(
            InvalidArgument(
                f"queue {message.queue!r} has a message for a task {message.type!r}; the app has "
                f"{names}"
            )
        )

    def _start(self, work: Work) -> None:
        drain, task = self._drain, work.task
        handled = Handled(work)
        self.running.add(handled)
        handled.since = time.monotonic()
        if task.timeout is not None:
            handled.deadline = handled.since + task.timeout
        if drain.in_loop:
            self._start_in_loop(handled)
        elif task.is_async:
            drain.run_in_loop(self._alone(handled))
        else:
            # Ctrl-C and pytest.fail() pass through: they end the test, and not its message.
            self.finished(handled, self._context.copy().run(self._call, handled))

    def _start_in_loop(self, work: Handled) -> None:
        if work.task.is_async:
            if work.task.timeout is not None:
                self._loop.call_later(work.task.timeout, work.watch, self._loop)
            task = self._loop.create_task(self._run(work), context=self._context.copy())
            # Not at once: cancelled before its first step it would end without a verdict.
            work.halt = lambda: self._loop.call_soon(task.cancel)
            task.add_done_callback(functools.partial(self._ended, work))
        else:
            self.threads.start(work)

    async def _alone(self, work: Handled) -> None:
        """One coroutine function; and others, for as long as it has given its slot away."""
        self._drain.in_loop = True
        try:
            self._start_in_loop(work)
            await self._drain.pump(lambda: work not in self.running)
        finally:
            self._drain.in_loop = False

    def _ended(self, work: Handled, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:  # as above
            self.running.discard(work)
            self.fail(error)
            self._drain.wake()

    # --- out -------------------------------------------------------------------------------------
    def finished(self, work: Work, verdict: Verdict) -> None:
        running = work in self.running
        super().finished(work, verdict)
        if not running or not isinstance(work, Handled):
            return
        self.outcomes[outcome(verdict.kind, verdict.final)] += 1
        error = work.error
        if error is None or isinstance(error, Signal):
            return
        self.errors.append(error)
        # Where the clock moves, what is tried again has not failed yet.
        again = verdict.kind in ("fail", "lost") and not verdict.final
        if not (again and self._drain.moves_clock):
            self._fail(error)

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or error

    def _fail(self, error: BaseException) -> None:
        if self._drain.raises:
            self.fail(error)

    def guard(self, hook: Callable[..., Any], *args: Any) -> None:
        """A worker only logs what its hooks raise; a test wants to know."""

        @functools.wraps(hook)
        def noted() -> Any:
            try:
                return hook(*args)
            except Exception as error:
                self._fail(error)
                raise

        super().guard(noted)

    def _hook_ended(self, task: asyncio.Task[Any]) -> None:
        super()._hook_ended(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    async def wait_for_hooks(self) -> None:
        while self._hooks:
            await asyncio.wait(self._hooks)

    # --- handlers that wait for other work -------------------------------------------------------
    def given(self) -> None:
        super().given()
        if not self._drain.in_loop:
            self._drain.run_due()
            if self.failure is not None:
                raise self.failure  # what its handler waits for will never come
