"""``AsyncWaiter``: the Waiter for aiobotocore. What its methods do is said there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from fairlead.aio.database import AsyncDatabase
from fairlead.aio.queue import AsyncQueue
from fairlead.errors import FairleadError, MessageLeased, QueueNotFound
from fairlead.relay import waiter_orders as orders
from fairlead.relay.waiter import Front, bound, now, refused, told
from fairlead.relay.waiter_orders import HandingOver, Order, Waiting
from fairlead.values import Moment, Send, Sent


class AsyncWaiter(Front):
    """``AsyncWaiter(client of aiobotocore, fairlead.connect_async(…))``: see Waiter."""

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
        """See Waiter.using()."""
        made = AsyncWaiter(self._client, self._db, prefix=self._prefix, patience=self._patience)
        made._connection, made._there = connection, self._there
        return made

    async def prepare(self, *, QueueUrl: str) -> str:
        """See Waiter.prepare()."""
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
        """See Waiter.send_message()."""
        order = self._asked(QueueUrl, MessageBody, JobId, At, more)
        if order.straight is not None:
            answer = await self._client.send_message(QueueUrl=QueueUrl, **order.straight)
            await self._supersede(QueueUrl, order)
            return answer
        [sent] = await self._store(QueueUrl, [order])
        if sent.outcome == "refused":
            raise HandingOver(order.what)
        return {**order.answer(sent), "ResponseMetadata": orders.response_metadata()}

    async def send_message_batch(
        self, *, QueueUrl: str, Entries: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """See Waiter.send_message_batch()."""
        made = orders.batch(QueueUrl, Entries, now(), always=self._always)
        straight = [one.straight for one in made if one.straight is not None]
        answer: dict[str, Any] = {}
        if straight or not made:
            answer = await self._client.send_message_batch(QueueUrl=QueueUrl, Entries=straight)
        sent = {one["Id"] for one in answer.get("Successful", ())}
        for entry, one in zip(Entries, made, strict=True):
            if one.straight is not None and entry["Id"] in sent:
                await self._supersede(QueueUrl, one)
        if len(straight) == len(made):
            return answer
        chosen = [(e["Id"], one) for e, one in zip(Entries, made, strict=True) if one.send]
        try:
            stored = await self._store(QueueUrl, [one for _, one in chosen])
        except FairleadError as error:
            if not straight:
                raise
            return orders.whole(
                Entries, answer, {id: orders.failure(id, error) for id, _ in chosen}
            )
        return orders.whole(Entries, answer, told(chosen, stored))

    async def _store(self, url: str, chosen: Sequence[Order]) -> list[Sent]:
        sends = [one.send for one in chosen if one.send is not None]
        sent = await self._send(url, sends)
        deadline = self._deadline()
        while (again := refused(chosen, sent)) and time.monotonic() < deadline:
            await asyncio.sleep(orders.PAUSE)
            for n, one in zip(again, await self._send(url, [sends[n] for n in again]), strict=True):
                sent[n] = one
        return sent

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
        if order.job is None:
            return
        try:
            await self.cancel(QueueUrl=url, JobId=order.job)
        except HandingOver:
            await (await self._queue(url)).cancel(key=order.job, force=True)

    # --- what waits ----------------------------------------------------------------------------
    async def cancel(
        self, *, QueueUrl: str, JobId: str | None = None, MessageId: str | None = None
    ) -> bool:
        """See Waiter.cancel()."""
        found = orders.which(JobId, MessageId)
        if found is None:
            return False
        deadline = self._deadline()
        while True:
            try:
                return await (await self._queue(QueueUrl)).cancel(**found)
            except QueueNotFound:
                return False
            except MessageLeased as error:
                if time.monotonic() >= deadline:
                    raise HandingOver(f"the message with {JobId or MessageId!r}") from error
            await asyncio.sleep(orders.PAUSE)

    async def waiting(self, *, QueueUrl: str, limit: int | None = None) -> AsyncIterator[Waiting]:
        """See Waiter.waiting()."""
        queue, after, left = await self._queue(QueueUrl), 0, bound(limit)
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
        """See Waiter.count()."""
        try:
            return orders.count(await (await self._queue(QueueUrl)).stats())
        except QueueNotFound:
            return 0

    async def _queue(self, url: str) -> AsyncQueue:
        name = orders.queue_name(self._prefix, url)
        queue = self._db.queue(name)
        if not self._always:
            return queue
        queue = queue.using(self._connection)
        if name not in self._there:
            await queue.create(**self._settings(url))
        return queue
