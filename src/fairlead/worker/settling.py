"""Carry out verdicts: acks in batches, riding on receives; the others one by one.

Nothing is dropped when the database is away: acks stay in line and are repeated. An ack that finds
its lease lost has changed nothing; that is logged and not an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fairlead.aio.database import AsyncDatabase
from fairlead.aio.leased import AsyncLeasedMessage
from fairlead.errors import DatabaseError, LeaseLost, QueueNotFound, UsageError
from fairlead.retrying import absence
from fairlead.tasks.verdicts import Verdict
from fairlead.values import Message
from fairlead.worker.journal import DONE, SETTLING, Journal
from fairlead.worker.work import Work

log = logging.getLogger("fairlead.worker")


class Settler:
    def __init__(self, db: AsyncDatabase, lost: Callable[[str, int], None]) -> None:
        self._db = db
        self._lost = lost
        self.journal: Journal | None = None
        self.acks: dict[str, list[AsyncLeasedMessage]] = {}
        self._unsure: set[int] = set()  # acks that may have been carried out already
        self._tasks: set[asyncio.Task[None]] = set()

    def settle(self, work: Work, verdict: Verdict) -> None:
        kind = verdict.kind
        if kind == "ack":
            message = work.message
            waiting = self.acks.get(message.queue)
            if waiting is None:
                waiting = self.acks[message.queue] = []
            waiting.append(message)
            if verdict.acked:
                self._unsure.add(message.id)
            if self.journal is not None:
                self.journal.mark(message.id, DONE)
        elif kind not in ("settled", "lost"):
            if self.journal is not None:
                self.journal.mark(work.message.id, SETTLING)
            self.begin(work.message, verdict)
        else:
            self._forget([work.message])

    def begin(self, message: AsyncLeasedMessage, verdict: Verdict) -> None:
        """Carry out one verdict, however long the database is away."""
        self._spawn(self._one(message, verdict))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- acks ----------------------------------------------------------------------------------
    def take(self, queue: str) -> list[AsyncLeasedMessage]:
        """The acks of one queue, for a receive to carry."""
        return self.acks.pop(queue, [])

    def put_back(self, queue: str, messages: Sequence[AsyncLeasedMessage], unsure: bool) -> None:
        if unsure:
            self._unsure.update(message.id for message in messages)
        if messages:
            self.acks[queue] = [*messages, *self.acks.get(queue, [])]

    def acked(self, messages: Sequence[Message], lost: Sequence[Message]) -> None:
        """The database has answered."""
        self._forget(messages)
        if self._unsure:
            lost = [message for message in lost if message.id not in self._unsure]
            self._unsure.difference_update(message.id for message in messages)
        for message in lost:
            self._lost(message.queue, 1)
            log.warning(
                "message %d of %s was done after its lease had been lost; it may run again",
                message.id,
                message.queue,
            )

    async def flush(self) -> None:
        """Ack what waits, in one statement per queue. Raises DatabaseError; then it still waits."""
        for queue in list(self.acks):
            messages = self.take(queue)
            try:
                answer = await self._db.queue(queue).ack(messages)
            except QueueNotFound:  # somebody dropped it, and the messages with it
                self.acked(messages, messages)
                continue
            except DatabaseError:
                self.put_back(queue, messages, unsure=True)
                raise
            self.acked(messages, answer.lost)

    # --- the others ------------------------------------------------------------------------------
    async def _one(self, message: AsyncLeasedMessage, verdict: Verdict) -> None:
        await self._insist(message, verdict)
        self._forget([message])

    async def _insist(self, message: AsyncLeasedMessage, verdict: Verdict) -> None:
        attempt = 0
        simple = False  # the verdict is our own, because the handler's was impossible
        while True:
            try:
                await self._carry_out(message, verdict)
                return
            except LeaseLost as error:
                # After a repetition it may be our own doing.
                if not attempt:
                    self._lost(message.queue, 1)
                    log.warning("%s", error)
                return
            except UsageError as error:
                # What the handler asked for cannot be done: a result that is no JSON, say. It must
                # not stay leased for that: nobody would ever get it while we live.
                log.error("message %d of %s: %s", message.id, message.queue, error)
                if verdict.kind == "release" or isinstance(error, QueueNotFound) or simple:
                    return
                verdict = Verdict("fail", error=f"{type(error).__name__}: {error}")
                simple = True
            except DatabaseError as error:
                log.debug("message %d: %s", message.id, error)
                attempt += 1
                await asyncio.sleep(absence(attempt))

    async def _carry_out(self, message: AsyncLeasedMessage, verdict: Verdict) -> None:
        if verdict.kind == "complete":
            await message.complete(verdict.result)
        elif verdict.kind == "fail":
            await message.fail(verdict.error, delay=verdict.delay, details=verdict.details)
        elif verdict.kind == "kill":
            await message.kill(verdict.error, details=verdict.details)
        elif verdict.kind == "defer":
            await message.defer(verdict.delay, at=verdict.at, memo=verdict.memo)
        else:
            await message.release()

    def give_back(self, messages: Sequence[AsyncLeasedMessage]) -> None:
        """Release unworked messages, however long the database is away."""
        if messages:
            self._spawn(self._give_back(messages))

    async def _give_back(self, messages: Sequence[AsyncLeasedMessage]) -> None:
        attempt = 0
        while True:
            try:
                return await self.release(messages)
            except DatabaseError as error:
                log.debug("%d messages have to wait for their release: %s", len(messages), error)
                attempt += 1
                await asyncio.sleep(absence(attempt))

    async def release(self, messages: Sequence[AsyncLeasedMessage]) -> None:
        """Give back unworked messages, in one statement per queue."""
        queues: dict[str, list[Any]] = {}
        for message in messages:
            queues.setdefault(message.queue, []).append(message)
        for queue, mine in queues.items():
            with contextlib.suppress(QueueNotFound):  # dropped, and the messages with it
                await self._db.queue(queue).release(mine)
            self._forget(mine)

    def _forget(self, messages: Sequence[Message]) -> None:
        """They are settled."""
        if self.journal is not None:
            self.journal.forget(message.id for message in messages)

    async def idle(self) -> None:
        """Wait until all that was begun is carried out."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def pending(self) -> int:
        return sum(map(len, self.acks.values())) + len(self._tasks)
