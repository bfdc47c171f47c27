"""Carries out verdicts: acks in batches, mostly as part of receives; other verdicts one by one.

Nothing is dropped while the database is unreachable: acks wait and are repeated. An ack whose lease
is lost changes nothing; that is logged and is no error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from fairturn.aio.leased import AsyncLeasedMessage
from fairturn.core.errors import DatabaseError, LeaseLost, QueueNotFound, UsageError
from fairturn.core.message import Message
from fairturn.execution.retries import absence
from fairturn.tasks.verdicts import Verdict
from fairturn.worker.witness.journal import DONE, SETTLING

if TYPE_CHECKING:
    from fairturn.worker.runtime import Worker

log = logging.getLogger("fairturn.worker")


class Settler:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        # By queue; a receive takes the acks of its queue along.
        self.acks: defaultdict[str, list[AsyncLeasedMessage]] = defaultdict(list)
        self._unsure: set[int] = set()  # messages that may be acked in the database already
        self._tasks: set[asyncio.Task[None]] = set()

    def settle(self, message: AsyncLeasedMessage, verdict: Verdict) -> None:
        """Carry out a verdict in the background, however long the database is unreachable."""
        journal = self._worker.journal
        if verdict.kind == "ack":
            self.acks[message.queue].append(message)
            if verdict.acked:
                self._unsure.add(message.id)
            if journal is not None:
                journal.mark(message.id, DONE)
        elif verdict.kind in ("settled", "lost"):
            self._forget([message])
        else:
            if journal is not None:
                journal.mark(message.id, SETTLING)
            self._spawn(self._settle_one(message, verdict))

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- acks ----------------------------------------------------------------------------------
    def put_back(self, queue: str, messages: Sequence[AsyncLeasedMessage], unsure: bool) -> None:
        if unsure:
            self._unsure.update(message.id for message in messages)
        if messages:
            self.acks[queue] = [*messages, *self.acks.get(queue, [])]

    def acked(self, messages: Sequence[Message], lost: Sequence[Message]) -> None:
        """The database has answered: ``lost`` are the messages whose lease was lost."""
        self._forget(messages)
        if self._unsure:
            lost = [message for message in lost if message.id not in self._unsure]
            self._unsure.difference_update(message.id for message in messages)
        for message in lost:
            self._worker.metrics.lost_acks[message.queue] += 1
            log.warning(
                "message %d of %s finished after its lease was lost; it may run again",
                message.id,
                message.queue,
            )

    async def flush(self) -> None:
        """Send all waiting acks, in one statement per queue. After a DatabaseError they wait on."""
        for queue in list(self.acks):
            messages = self.acks.pop(queue)
            try:
                answer = await self._worker.db.queue(queue).ack(messages)
            except QueueNotFound:  # the queue was dropped, and its messages with it
                self.acked(messages, messages)
                continue
            except DatabaseError:
                self.put_back(queue, messages, unsure=True)
                raise
            self.acked(messages, answer.lost)

    # --- other verdicts --------------------------------------------------------------------------
    async def _settle_one(self, message: AsyncLeasedMessage, verdict: Verdict) -> None:
        attempt = 0
        replaced = False  # the handler's verdict was invalid, and has been replaced by ours
        while True:
            try:
                await self._carry_out(message, verdict)
                break
            except LeaseLost as error:
                # A repeated call finds its lease gone if the first one succeeded.
                if not attempt:
                    self._worker.metrics.lost_acks[message.queue] += 1
                    log.warning("%s", error)
                break
            except UsageError as error:
                # The verdict is invalid: its result is not JSON, say. Fail the message instead, or
                # it would stay leased as long as this worker lives.
                log.error("message %d of %s: %s", message.id, message.queue, error)
                if verdict.kind == "release" or isinstance(error, QueueNotFound) or replaced:
                    break
                verdict = Verdict("fail", error=f"{type(error).__name__}: {error}")
                replaced = True
            except DatabaseError as error:
                log.debug("message %d: %s", message.id, error)
                attempt += 1
                await asyncio.sleep(absence(attempt))
        self._forget([message])

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

    def release_later(self, messages: Sequence[AsyncLeasedMessage]) -> None:
        """Release messages in the background, in one statement per queue."""
        queues: defaultdict[str, list[AsyncLeasedMessage]] = defaultdict(list)
        for message in messages:
            queues[message.queue].append(message)
        for queue, mine in queues.items():
            self._spawn(self._release(queue, mine))

    async def _release(self, queue: str, messages: Sequence[AsyncLeasedMessage]) -> None:
        attempt = 0
        while True:
            try:
                with contextlib.suppress(QueueNotFound):  # the queue was dropped with its messages
                    await self._worker.db.queue(queue).release(messages)
                return self._forget(messages)
            except DatabaseError as error:
                log.debug("%d messages wait for their release: %s", len(messages), error)
                attempt += 1
                await asyncio.sleep(absence(attempt))

    def _forget(self, messages: Sequence[Message]) -> None:
        """Remove settled messages from the journal."""
        journal = self._worker.journal
        if journal is not None:
            journal.forget(message.id for message in messages)

    async def idle(self) -> None:
        """Wait until no verdict is being carried out."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def pending(self) -> int:
        return sum(map(len, self.acks.values())) + len(self._tasks)
