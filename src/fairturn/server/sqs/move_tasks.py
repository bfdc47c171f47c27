"""Move tasks: stored in the server's own queue, so that they survive every process.

    a running task       a message with its source as the key: a source has one task at a time.
                         Its memo is its progress.
    a request to stop    remembered under "stop:<task>"; the next step obeys it
    ended tasks          remembered under "ended:<source>", newest first, ten of them

Only the holder of a task's lease ends it. It remembers the end first and acks then; after a crash
between the two the next step finds the remembered end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fairturn.aio.database import AsyncDatabase
from fairturn.aio.leased import AsyncLeasedMessage
from fairturn.aio.queue import AsyncMessages, AsyncQueue
from fairturn.core.errors import QueueNotFound
from fairturn.core.message import Message
from fairturn.server.sqs.queue_cache import INTERNAL
from fairturn.sqs import limits

LEASE = 10.0  # seconds of one step; after a crash the task goes on when the lease has expired

_STOP_KEPT = 86_400
_ENDED_KEPT = 30 * 86_400

Status = Literal["RUNNING", "CANCELLING", "COMPLETED", "CANCELLED", "FAILED"]


@dataclass(frozen=True, slots=True)
class Task:
    id: str
    source: str
    source_arn: str
    destination: str | None  # None: each message goes back to the queue in which it died
    destination_arn: str | None
    rate: int | None  # messages per second
    started: int  # milliseconds since the epoch
    total: int  # messages in the source at the start; the task moves no more than these


@dataclass(frozen=True, slots=True)
class Progress:
    """The memo of a task's message."""

    moved: int = 0
    empty: bool = False  # the last step found nothing to move

    @classmethod
    def of(cls, message: Message) -> Progress:
        memo: dict[str, Any] = message.memo or {}
        return cls(**memo)


@dataclass(frozen=True, slots=True)
class Report:
    """A task and its state."""

    task: Task
    status: Status
    moved: int
    reason: str | None = None  # of a failure

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Report:
        return cls(Task(**kept["task"]), kept["status"], kept["moved"], kept["reason"])


class Moves:
    def __init__(self, db: AsyncDatabase) -> None:
        self._queue = db.queue(INTERNAL)

    async def internal(self) -> AsyncQueue:
        """Return the server's own queue, created at its first use. It also has the data that
        belongs to no other queue."""
        await self._queue.create(lease=LEASE, max_attempts=0)
        return self._queue

    async def begin(self, task: Task) -> bool:
        """Store a new task. False: another task of this source is running."""
        queue = await self.internal()
        sent = await queue.send(asdict(task), key=task.source, on_conflict="ignore")
        return sent.created

    async def claim(self) -> AsyncMessages:
        """Lease one due step, if there is one."""
        try:
            return await self._queue.receive(1, lease=LEASE)
        except QueueNotFound:  # there has never been a move task
            none = AsyncMessages()
            none.retry_after = None
            return none

    async def stop(self, task: Task) -> None:
        await self._queue.remember(f"stop:{task.id}", True, keep=_STOP_KEPT)

    async def is_stopped(self, task: Task) -> bool:
        return await self._queue.recall(f"stop:{task.id}") is not None

    async def end(self, step: AsyncLeasedMessage, report: Report) -> None:
        await step.extend(LEASE)  # LeaseLost: another process has the step, and ends the task
        source = report.task.source
        ended = [asdict(one) for one in await self._ended(source)]
        kept = [asdict(report), *ended][: limits.MOVE_RESULTS]
        await self._queue.remember(f"ended:{source}", kept, keep=_ENDED_KEPT)
        await step.ack()

    async def has_ended(self, task: Task) -> bool:
        return any(one.task.id == task.id for one in await self._ended(task.source))

    async def reports(self, source: str, since: float) -> list[Report]:
        """Return the tasks of a queue, newest first. ``since``: when the queue was created; tasks
        of an older queue of this name are left out."""
        try:
            running = await self._running(source)
            ended = await self._ended(source)
        except QueueNotFound:
            return []
        if running is not None and all(one.task.id != running.task.id for one in ended):
            ended.insert(0, running)
        return [one for one in ended if one.task.started >= since * 1_000]

    async def _running(self, source: str) -> Report | None:
        message = await self._queue.get(key=source)
        if message is None:
            return None
        task = Task(**message.body)
        status: Status = "CANCELLING" if await self.is_stopped(task) else "RUNNING"
        return Report(task, status, Progress.of(message).moved)

    async def _ended(self, source: str) -> list[Report]:
        kept: list[Any] = await self._queue.recall(f"ended:{source}") or []
        return [Report.of(one) for one in kept]
