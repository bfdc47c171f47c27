"""The mover: carries out move tasks in the background, one step at a time.

A step leases a task's message, moves one batch and defers the message until the next batch is due,
with its progress in the memo. So any process may do the next step, many tasks take turns, and a
process that is killed leaves a lease that expires. A batch moves in one transaction; a crash right
after it leaves it uncounted, which is why the numbers are called approximate.

Each process has one mover. It looks when a task was started here, when the next step is due, and
now and then for what other processes have left behind.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict

from fairlead.aio.database import AsyncDatabase
from fairlead.aio.leased import AsyncLeasedMessage
from fairlead.errors import DatabaseError, LeaseLost, QueueNotFound
from fairlead.server.sqs import errors
from fairlead.server.sqs.moves import Moves, Progress, Report, Status, Task

log = logging.getLogger("fairlead.server")

BATCH = 250  # messages of a step without a rate: short enough for others to get their turn
STEPS = 10  # a second, at most, with a rate
IDLE = 15.0  # seconds between two looks when nothing is known to be due
TROUBLE = 1.0  # seconds until the next look after an error
AGAIN = 0.2  # seconds until the second look at a source that seems empty
TRIES = 5  # of a step that never comes to its end
GRACE = 5.0  # seconds a step may take to end when the server stops

NO_SOURCE = "CouldNotDetermineMessageSource"
INTERNAL = "InternalError"


class Mover:
    def __init__(self, db: AsyncDatabase, moves: Moves) -> None:
        self._db = db
        self._moves = moves
        self._poked = asyncio.Event()
        self._stopping = False
        self._away = False  # the database
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="fairlead-sqs-mover")

    def poke(self) -> None:
        """There is something to do."""
        self._poked.set()

    async def close(self) -> None:
        """Let the step that runs come to its end; the rest is for other processes, or later."""
        task, self._task = self._task, None
        if task is None:
            return
        self._stopping = True
        self.poke()
        done, _ = await asyncio.wait({task}, timeout=GRACE)
        if not done:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        while not self._stopping:
            self._poked.clear()
            pause = await self._look_safely()
            if pause > 0 and not self._stopping:
                try:
                    async with asyncio.timeout(pause):
                        await self._poked.wait()
                except TimeoutError:
                    pass

    async def _look_safely(self) -> float:
        try:
            pause = await self.look()
            self._away = False
            return pause
        except LeaseLost:
            return 0.0  # the step took too long, and another has it
        except DatabaseError as error:
            level = logging.DEBUG if self._away else logging.WARNING  # said once, not each second
            self._away = True
            log.log(level, "moving messages waits for the database: %s", error)
        except Exception:
            log.exception("moving messages: a step failed; it is tried again")
        return TROUBLE

    async def look(self) -> float:
        """Do one step if one is due; the seconds after which to look again."""
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
            await step.ack()  # whoever ended it did not come so far
        elif await self._moves.is_stopped(task):
            await self._end(step, task, moved, "CANCELLED")
        elif step.attempts > TRIES:
            await self._end(step, task, moved, "FAILED", INTERNAL)
        elif moved >= task.total:
            await self._end(step, task, moved, "COMPLETED")
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
            await self._end(step, task, done.moved, "FAILED", code)
            return
        moved = done.moved + now
        if moved >= task.total:
            await self._end(step, task, moved, "COMPLETED")
        elif now:
            pause = 0.0 if task.rate is None else now / task.rate
            await step.defer(pause, memo=asdict(Progress(moved)))
        elif not done.empty:
            # Nothing, or nothing that was not locked by a consumer at that moment: look twice.
            await step.defer(AGAIN, memo=asdict(Progress(moved, empty=True)))
        elif left and task.destination is None:
            await self._end(step, task, moved, "FAILED", NO_SOURCE)
        else:
            await self._end(step, task, moved, "COMPLETED")

    async def _end(
        self,
        step: AsyncLeasedMessage,
        task: Task,
        moved: int,
        status: Status,
        reason: str | None = None,
    ) -> None:
        await self._moves.end(step, Report(task, status, moved, reason))
