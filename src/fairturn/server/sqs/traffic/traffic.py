"""The messages of one process: coalesced sends, receives and deletes, and long polls.

Concurrent calls of different clients become one statement (see `coalescing`): the cost of a send or
a delete is its commit, and thirty of them share one. Receives of ordered queues (FIFO, or made so
by the library) are not coalesced: all messages of a group in one receive must go to one receiver.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from fairturn.aio.database import AsyncDatabase
from fairturn.aio.leased import AsyncLeasedMessage
from fairturn.aio.queue import AsyncMessages
from fairturn.core.errors import FairturnError
from fairturn.core.sends import Send, Sent
from fairturn.server.sqs.traffic.coalescing import Coalescer
from fairturn.server.sqs.traffic.inflight_limit import Caps, InflightLimit
from fairturn.server.sqs.traffic.polls import Polls
from fairturn.sqs.receipt_handles import Receipt

SENDS = 500  # messages in one batch
SEND_BYTES = 2 * 1024 * 1024  # in one batch: escaped twice, still below MariaDB's default packet
DELETES = 1_000
RECEIVERS = 64
RECEIVE_BYTES = 32 * 1024 * 1024
UNKNOWN = 200 * 1024  # assumed bytes of a message, before one of its queue was received
MANY = 10_000  # queues whose handle and mean message size are cached

# A queue, a visibility time, and 0; or a unique number for a receive that must run alone.
_ReceiveKey: TypeAlias = tuple[str, float, int]
log = logging.getLogger("fairturn.server")


class Traffic:
    def __init__(self, db: AsyncDatabase, caps: Caps | None = None) -> None:
        self._queue = lru_cache(MANY)(db.queue)  # a handle has no state
        self.inflight_limit = InflightLimit(db, caps or Caps())
        self.polls = Polls(db, self.receive)
        # A call's messages are all sent, in their order, or none. Their weight: their bytes.
        self.sends: Coalescer[str, Send, Sent] = Coalescer(
            self._send, max_items=SENDS, max_weight=SEND_BYTES
        )
        self._deletes: Coalescer[str, Receipt, bool] = Coalescer(self._delete, max_items=DELETES)
        self._receives: Coalescer[_ReceiveKey, int, AsyncMessages] = Coalescer(
            self._receive, max_items=RECEIVERS, max_weight=RECEIVE_BYTES, unclaimed=self._unclaimed
        )
        self._bytes: dict[str, int] = {}  # of a message, by queue
        self._alone = itertools.count(1)
        self._returns: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Answer open polls and finish running statements."""
        await self.polls.close()
        for coalescer in (self.sends, self._deletes, self._receives):
            await coalescer.close()
        if self._returns:
            await asyncio.wait(set(self._returns))

    # --- sending -------------------------------------------------------------------------------
    async def _send(self, queue: str, sends: Sequence[Send]) -> Sequence[Sent]:
        sent = await self._queue(queue).send_many(sends)
        self.polls.wake(queue)
        return sent

    # --- receiving -----------------------------------------------------------------------------
    async def receive(self, queue: str, n: int, lease: float, ordered: bool) -> AsyncMessages:
        """Receive without waiting. Also empty if the queue is at its in-flight limit."""
        n = await self.inflight_limit.allowed(queue, ordered, n)
        if n <= 0:
            messages = AsyncMessages()
            messages.retry_after = None
            return messages
        alone = next(self._alone) if ordered else 0
        weight = n * self._bytes.get(queue, UNKNOWN)
        [messages] = await self._receives.add((queue, lease, alone), (n,), weight)
        if messages:
            self.inflight_limit.received(queue, len(messages))
        return messages

    async def _receive(self, key: _ReceiveKey, counts: Sequence[int]) -> list[AsyncMessages]:
        """Receive for several clients and divide the messages: the first client is filled first."""
        queue, lease, _ = key
        received = await self._queue(queue).receive(sum(counts), lease=lease)
        self._weigh(queue, received)
        if len(counts) == 1:
            return [received]
        shares: list[AsyncMessages] = []
        start = 0
        for count in counts:
            share = AsyncMessages(received[start : start + count])
            share.retry_after = received.retry_after
            shares.append(share)
            start += count
        return shares

    def _weigh(self, queue: str, received: AsyncMessages) -> None:
        """Note the mean size of messages: receives of large ones need smaller batches."""
        if received:
            if len(self._bytes) >= MANY:
                self._bytes.clear()
            whole = sum([len(message.raw) for message in received])
            self._bytes[queue] = whole // len(received)

    async def _unclaimed(self, key: _ReceiveKey, shares: Sequence[AsyncMessages]) -> None:
        queue, *_ = key
        for messages in shares:
            await self._release(queue, messages)

    def release_later(self, queue: str, messages: Sequence[AsyncLeasedMessage]) -> None:
        """Release messages in the background, since they did not reach their receiver."""
        task = asyncio.create_task(self._release(queue, messages), name="fairturn-release")
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)

    async def _release(self, queue: str, messages: Sequence[AsyncLeasedMessage]) -> None:
        if not messages:
            return
        try:
            await self._queue(queue).release(messages)
        except FairturnError as error:  # they become visible when their visibility timeout ends
            log.warning("messages of a disconnected client were not released: %s", error)
        self.polls.wake(queue)

    # --- deleting ------------------------------------------------------------------------------
    async def delete(
        self, queue: str, receipts: Sequence[Receipt], ordered: bool
    ) -> Sequence[bool]:
        """Delete messages. True for each that was in flight with exactly this receipt."""
        if ordered:
            done = await self._delete(queue, receipts)
        else:
            done = await self._deletes.add(queue, receipts)
        if self.inflight_limit.deleted(queue, ordered, sum(done)) or ordered:
            self.polls.wake(queue)  # there is room below the limit again, or a group is unlocked
        return done

    async def _delete(self, queue: str, receipts: Sequence[Receipt]) -> list[bool]:
        handle = self._queue(queue)
        acked = await handle.ack([handle.lease(one.id, one.token) for one in receipts])
        lost = {(message.id, message.token) for message in acked.lost}
        return [(one.id, one.token) not in lost for one in receipts]
