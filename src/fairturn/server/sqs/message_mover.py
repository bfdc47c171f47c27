"""The mover: carries out move tasks in the background, one step at a time.

A step leases a task's message, moves one batch and defers the message until the next batch is due,
with its progress in the memo. So any process may do the next step, several tasks take turns, and
the lease of a killed process expires. A batch moves in one transaction. If the process crashes
right after it, the batch is not counted: the numbers are approximate.

Each process has one mover. It looks for a due step when a task was started in this process, when
the next step is due, and every IDLE seconds for steps that other processes have left.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict

from fairturn.aio.database import AsyncDatabase
from fairturn.aio.leased import AsyncLeasedMessage
from fairturn.core.errors import DatabaseError, LeaseLost, QueueNotFound
from fairturn.server.sqs.move_tasks import Moves, Progress, Report, Task
from fairturn.sqs import errors

log = logging.getLogger("fairturn.server")

BATCH = 250  # messages of a step without a rate: short enough for other tasks to get their turn
STEPS = 10  # steps per second with a rate, at most
IDLE = 15.0  # seconds between two checks when nothing is known to be due
ERROR_PAUSE = 1.0  # seconds until the next check after an error
SECOND_CHECK = 0.2  # seconds until a source that seems empty is checked again
TRIES = 5  # attempts of a step that never finishes
GRACE = 5.0  # seconds for a step to finish when the server stops

NO_SOURCE = "CouldNotDetermineMessageSource"
INTERNAL = "InternalError"


class Mover:
    def __init__(self, db: AsyncDatabase, moves: Moves) -> None:
        self._db = db
        self._moves = moves
        self._wake = asyncio.Event()
        self._stopping = False
        self._outage = False  # the database is unreachable
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="fairturn-sqs-mover")

    def wake(self) -> None:
        """Check for a due step now."""
        self._wake.set()

    async def close(self) -> None:
        """Let the running step finish; other processes, or a later start, do the rest."""
        task, self._task = self._task, None
        if task is None:
            return
        self._stopping = True
        self.wake()
        done, _ = await asyncio.wait({task}, timeout=GRACE)
        if not done:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            pause = await self._run_step_safely()
            if pause > 0 and not self._stopping:
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    pass

    async def _run_step_safely(self) -> float:
        try:
            pause = await self.run_due_step()
            self._outage = False
            return pause
        except LeaseLost:
            return 0.0  # the step took too long, and another process has its lease
        except DatabaseError as error:
            level = logging.DEBUG if self._outage else logging.WARNING  # a warning only once
            self._outage = True
            log.log(level, "move tasks wait for the database: %s", error)
        except Exception:
            log.exception("a step of a move task failed; it is tried again")
        return ERROR_PAUSE

    async def run_due_step(self) -> float:
        """Do one step if one is due; return the seconds until the next check."""
        steps = await self._moves.claim()
        if not steps:
            return IDLE if steps.retry_after is None else min(IDLE, steps.retry_after)
        await self._step(steps[0])
        return 0.0

    async def _step(self, step: AsyncLeasedMessage) -> None:
        task = Task(**step.body)
        done = Progress.of(step)
        moved = done.moved
        if step.recovered and await self._moves.has_ended(task):
            await step.ack()  # a process crashed between the end and this ack
        elif await self._moves.is_stopped(task):
            await self._moves.end(step, Report(task, "CANCELLED", moved))
        elif step.attempts > TRIES:
            await self._moves.end(step, Report(task, "FAILED", moved, INTERNAL))
        elif moved >= task.total:
            await self._moves.end(step, Report(task, "COMPLETED", moved))
        else:
            await self._batch(step, task, done)

    async def _batch(self, step: AsyncLeasedMessage, task: Task, done: Progress) -> None:
        most = BATCH if task.rate is None else max(1, task.rate // STEPS)
        source = self._db.queue(task.source)
        try:
            now = await source.move(task.destination, limit=min(most, task.total - done.moved))
            left = (await source.stats()).ready if now == 0 else 0
        except QueueNotFound:
            code = errors.QUEUE_DOES_NOT_EXIST.code
            await self._moves.end(step, Report(task, "FAILED", done.moved, code))
            return
        moved = done.moved + now
        if moved >= task.total:
            await self._moves.end(step, Report(task, "COMPLETED", moved))
        elif now:
            pause = 0.0 if task.rate is None else now / task.rate
            await step.defer(pause, memo=asdict(Progress(moved)))
        elif not done.empty:
            # The source is empty, or a consumer had locked its messages: check a second time.
            await step.defer(SECOND_CHECK, memo=asdict(Progress(moved, empty=True)))
        elif left and task.destination is None:
            await self._moves.end(step, Report(task, "FAILED", moved, NO_SOURCE))
        else:
            await self._moves.end(step, Report(task, "COMPLETED", moved))
