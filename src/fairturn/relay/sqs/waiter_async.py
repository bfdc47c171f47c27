"""``AsyncWaiter``: an SQS client whose delays have no limit.

It takes the place of a client of aiobotocore. A message with a delay of up to 900 seconds goes
straight to SQS. Others are stored in a Fairturn queue whose destination is that SQS queue, and
`fairturn relay` hands them over in time. All other methods are the client's own.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from fairturn.aio.database import AsyncDatabase
from fairturn.aio.queue import AsyncQueue
from fairturn.core.errors import FairturnError, InvalidArgument, MessageLeased, QueueNotFound
from fairturn.core.sends import Send, Sent
from fairturn.core.values import Moment
from fairturn.relay.sqs import waiter_orders as orders
from fairturn.relay.sqs.waiter_base import BaseWaiter, now
from fairturn.relay.sqs.waiter_orders import HandingOver, Order, Waiting


class AsyncWaiter(BaseWaiter):
    """``AsyncWaiter(client, fairturn.connect_async(…))``, with an SQS client of aiobotocore.
    ``patience``: how many seconds it waits for a message that is being handed over."""

    def __init__(
        self,
        client: Any,
        db: AsyncDatabase,
        *,
        prefix: str = "waiter-",
        patience: float = orders.PATIENCE,
    ) -> None:
        super().__init__(client, prefix, patience)
        self._db = db

    def using(self, connection: Any) -> AsyncWaiter:
        """The same on your connection: each message is part of your transaction, so it is stored
        even if its delay is short."""
        made = AsyncWaiter(self._client, self._db, prefix=self._prefix, patience=self._patience)
        made._connection, made._there = connection, self._there
        return made

    async def prepare(self, *, QueueUrl: str) -> str:
        """Create the Fairturn queue for an SQS queue and return its name. (The first send would
        create it, too.) It is not part of your transaction."""
        name = orders.queue_name(self._prefix, QueueUrl)
        await self._db.queue(name).create(**self._settings(QueueUrl))
        self._there.add(name)
        return name

    # --- sending -------------------------------------------------------------------------------
    async def send_message(
        self,
        *,
        QueueUrl: str,
        MessageBody: str,
        JobId: str | None = None,
        At: Moment | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """boto3's ``send_message``, with any DelaySeconds, or with ``At`` instead: a datetime, or
        seconds since the epoch. A second message with the same ``JobId`` replaces the first if
        that still waits here."""
        given = {"MessageBody": MessageBody, "JobId": JobId, "At": At, **more}
        order = orders.order(QueueUrl, given, now(), always=self._always)
        if order.straight is not None:
            answer = await self._client.send_message(QueueUrl=QueueUrl, **order.straight)
            await self._supersede(QueueUrl, order)
            return answer
        [sent] = await self._store(QueueUrl, [order])
        return {**order.answer(sent), "ResponseMetadata": orders.response_metadata()}

    async def send_message_batch(
        self, *, QueueUrl: str, Entries: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """boto3's ``send_message_batch``; each entry may have a JobId and At. If an entry that
        would be stored is wrong, an error is raised and nothing is sent."""
        made = orders.batch(QueueUrl, Entries, now(), always=self._always)
        straight = [one for one in made if one.straight is not None]
        stored = [one for one in made if one.straight is None]
        answer: dict[str, Any] = {}
        if straight or not stored:  # SQS refuses an empty batch
            answer = await self._client.send_message_batch(
                QueueUrl=QueueUrl, Entries=[one.straight for one in straight]
            )
        sent = {one["Id"] for one in answer.get("Successful", ())}
        for one in straight:
            if one.id in sent:
                await self._supersede(QueueUrl, one)
        if not stored:
            return answer
        try:
            results = list(map(orders.stored, stored, await self._store(QueueUrl, stored)))
        except FairturnError as error:
            if not straight:
                raise
            results = [orders.failure(one, error) for one in stored]
        return orders.whole(made, answer, results)

    async def _store(self, url: str, chosen: Sequence[Order]) -> list[Sent]:
        """Store them. It tries those again that would replace a message that is being handed
        over."""
        sends = [one.send for one in chosen if one.send is not None]
        sent = await self._send(url, sends)
        deadline = self._deadline()
        while True:
            refused = [n for n, one in enumerate(sent) if one.outcome == "refused"]
            if not refused or time.monotonic() >= deadline:
                return sent
            await asyncio.sleep(orders.PAUSE)
            again = await self._send(url, [sends[n] for n in refused])
            for n, one in zip(refused, again, strict=True):
                sent[n] = one

    async def _send(self, url: str, sends: Sequence[Send]) -> list[Sent]:
        queue = await self._queue(url)
        if self._always:
            return await queue.send_many(sends)
        try:
            sent = await queue.send_many(sends)
        except QueueNotFound:
            await self.prepare(QueueUrl=url)
            return await queue.send_many(sends)
        self._there.add(queue.name)
        return sent

    async def _supersede(self, url: str, order: Order) -> None:
        """Cancel the stored message with the JobId of one that went straight to SQS."""
        if order.job is None:
            return
        try:
            await self.cancel(QueueUrl=url, JobId=order.job)
        except HandingOver:
            # The new message is sent already. If the hand-over of the old one fails, it must not be
            # tried again.
            queue = await self._queue(url)
            await queue.cancel(key=order.job, force=True)

    # --- what waits ----------------------------------------------------------------------------
    async def cancel(
        self, *, QueueUrl: str, JobId: str | None = None, MessageId: str | None = None
    ) -> bool:
        """Remove a message that waits here. False: it is not here, or SQS has it already."""
        found = orders.which(JobId, MessageId)
        if found is None:
            return False
        deadline = self._deadline()
        while True:
            try:
                queue = await self._queue(QueueUrl)
                return await queue.cancel(**found)
            except QueueNotFound:
                return False
            except MessageLeased as error:
                if time.monotonic() >= deadline:
                    raise HandingOver(f"the message with {JobId or MessageId!r}") from error
            await asyncio.sleep(orders.PAUSE)

    async def waiting(self, *, QueueUrl: str, limit: int | None = None) -> AsyncIterator[Waiting]:
        """The messages that have not been handed over yet, in the order of their sends."""
        left = math.inf if limit is None else limit
        if left < 0:
            raise InvalidArgument(f"limit must not be negative, it is {limit}")
        queue, after = await self._queue(QueueUrl), 0
        while left > 0:
            try:
                page = await queue.peek(orders.PAGE, after=after)
            except QueueNotFound:
                return
            for message in page:
                found = orders.waiting(message)
                if found is not None and left > 0:
                    left -= 1
                    yield found
            if len(page) < orders.PAGE:
                return
            after = page[-1].id

    async def count(self, *, QueueUrl: str) -> int:
        """The number of messages that have not been handed over yet."""
        try:
            queue = await self._queue(QueueUrl)
            return orders.count(await queue.stats())
        except QueueNotFound:
            return 0

    async def _queue(self, url: str) -> AsyncQueue:
        name = orders.queue_name(self._prefix, url)
        queue = self._db.queue(name)
        if not self._always:
            return queue
        queue = queue.using(self._connection)
        if name not in self._there:
            # Sending to a missing queue is an error, and an error would end the transaction.
            await queue.create(**self._settings(url))
        return queue
