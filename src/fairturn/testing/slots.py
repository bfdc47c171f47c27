"""The slots of a drain: a worker's slots that run one handler at a time, in sight of the test.

``drain()`` calls a plain function in the test's thread, outside of any event loop, and runs a
coroutine function to its end in a private event loop. In ``drain_async()``, and while a coroutine
function has released its slot, handlers run as in a worker: coroutine functions as tasks of the
event loop, plain functions in threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fairturn.aio.leased import AsyncLeasedMessage
from fairturn.core.errors import InvalidArgument
from fairturn.observe.worker_metrics import outcome
from fairturn.tasks.task import Executor
from fairturn.tasks.verdicts import Signal, Verdict
from fairturn.worker.delivery import Delivery
from fairturn.worker.slots import Slots

if TYPE_CHECKING:
    from fairturn.testing.drain import Drain


class DrainSlots(Slots):
    def __init__(self, drain: Drain) -> None:
        super().__init__(drain)
        self._drain = drain
        self.outcomes: Counter[str] = Counter()
        self.errors: list[BaseException] = []  # what handlers raised
        self.failure: BaseException | None = None  # the first error that drain() raises

    # --- in --------------------------------------------------------------------------------------
    def _fail_without_task(self, message: AsyncLeasedMessage) -> None:
        super()._fail_without_task(message)
        self.outcomes["failed"] += 1
        names = ", ".join(sorted(self._drain.app.tasks))
        self._fail(
            InvalidArgument(
                f"queue {message.queue!r} has a message for a task {message.type!r}; the app has "
                f"{names}"
            )
        )

    def _executor(self, delivery: Delivery) -> Executor:
        return "async" if delivery.task.is_async else "thread"

    def _run_in(self, executor: Executor, delivery: Delivery) -> None:
        drain = self._drain
        if executor == "async" and drain.in_loop:
            super()._run_in(executor, delivery)
        elif executor == "async":
            drain.run_in_loop(self._run_alone(delivery))
        elif drain.in_loop:
            self.threads.start(delivery)  # without a timeout: see Drain._stop_all
        else:
            # Ctrl-C and pytest.fail() are not caught: they end the test, and not only the message.
            self.finished(delivery, self._context.copy().run(delivery.call))

    async def _run_alone(self, delivery: Delivery) -> None:
        """Run one coroutine function, and others while it has released its slot."""
        self._drain.in_loop = True
        try:
            super()._run_in("async", delivery)
            await self._drain.pump(lambda: delivery not in self.running)
        finally:
            self._drain.in_loop = False

    async def _run(self, delivery: Delivery) -> None:
        try:
            await super()._run(delivery)
        except BaseException as error:  # Ctrl-C or pytest.fail(), as above
            self.running.discard(delivery)
            self.fail(error)
            self._drain.wake()
            if isinstance(error, KeyboardInterrupt):
                raise

    # --- out -------------------------------------------------------------------------------------
    def finished(self, delivery: Delivery, verdict: Verdict) -> None:
        was_running = delivery in self.running
        super().finished(delivery, verdict)
        if not was_running:
            return
        self.outcomes[outcome(verdict.kind, verdict.final)] += 1
        error = delivery.error
        if error is None or isinstance(error, Signal):
            return
        self.errors.append(error)
        # While the clock moves, only a message that is not retried has failed.
        retried = verdict.kind in ("fail", "lost") and not verdict.final
        if not (retried and self._drain.moves_clock):
            self._fail(error)

    def fail(self, error: BaseException) -> None:
        """End the drain with this error, unless it has one already."""
        self.failure = self.failure or error

    def _fail(self, error: BaseException) -> None:
        if self._drain.raises:
            self.fail(error)

    def _hook_failed(self, hook: Callable[..., Any], error: BaseException) -> None:
        super()._hook_failed(hook, error)
        self._fail(error)

    # --- handlers that wait for other work -------------------------------------------------------
    def slot_released(self) -> None:
        super().slot_released()
        if not self._drain.in_loop:
            self._drain.run_due()
            if self.failure is not None:
                raise self.failure  # the handler would wait for ever for the one that failed
