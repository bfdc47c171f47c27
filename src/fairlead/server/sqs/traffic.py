"""The messages that go through one process: sends, receives and deletes, gathered, and long polls.

Calls of different clients that meet here become one statement (see `gathering`): a commit is what
a send or a delete costs, and thirty of them share one. Receives of ordered queues (FIFO, or made so
by the library) are not gathered: what one receive gives of a group is one receiver's.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from typing import TypeAlias

from fairlead.aio.database import AsyncDatabase
from fairlead.aio.leased import AsyncLeasedMessage
from fairlead.aio.queue import AsyncMessages
from fairlead.errors import FairleadError
from fairlead.server.sqs.gathering import Gathering
from fairlead.server.sqs.handles import Receipt
from fairlead.server.sqs.in_flight import Caps, InFlight
from fairlead.server.sqs.polls import Polls
from fairlead.values import Send, Sent

SENDS = 500  # messages in one flight
SEND_BYTES = 2 * 1024 * 1024  # of a flight: escaped twice, still below MariaDB's default packet
DELETES = 1_000
RECEIVERS = 64
RECEIVE_BYTES = 32 * 1024 * 1024
UNKNOWN = 200 * 1024  # bytes of a message, before any of its queue was seen
MANY = 10_000  # queues whose messages' usual size is remembered

# A queue, a visibility time, and 0; or the number of a receive that flies alone.
_Look: TypeAlias = tuple[str, float, int]
log = logging.getLogger("fairlead.server")


class Traffic:
    def __init__(self, db: AsyncDatabase, caps: Caps | None = None) -> None:
        self._db = db
        self.in_flight = InFlight(db, caps or Caps())
        self.polls = Polls(db, self.receive)
        self._sends: Gathering[str, Send, Sent] = Gathering(
            self._send, most=SENDS, heaviest=SEND_BYTES
        )
        self._deletes: Gathering[str, Receipt, bool] = Gathering(self._delete, most=DELETES)
        self._receives: Gathering[_Look, int, AsyncMessages] = Gathering(
            self._receive, most=RECEIVERS, heaviest=RECEIVE_BYTES, unclaimed=self._unclaimed
        )
        self._bytes: dict[str, int] = {}  # of a message, by queue
        self._alone = itertools.count(1)
        self._returns: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Open polls are answered; what is on its way arrives."""
        await self.polls.close()
        for gathering in (self._sends, self._deletes, self._receives):
            await gathering.close()
        if self._returns:
            await asyncio.wait(set(self._returns))

    # --- sending -------------------------------------------------------------------------------
    async def send(self, queue: str, sends: Sequence[Send], weight: int) -> Sequence[Sent]:
        """All or nothing, in this order. ``weight``: their bytes."""
        return await self._sends.add(queue, sends, weight)

    async def _send(self, queue: str, sends: Sequence[Send]) -> Sequence[Sent]:
        sent = await self._db.queue(queue).send_many(sends)
        self.polls.wake(queue)
        return sent

    # --- receiving -----------------------------------------------------------------------------
    async def receive(self, queue: str, n: int, lease: float, ordered: bool) -> AsyncMessages:
        """One look; empty also where the queue's limit of messages in flight is reached."""
        n = await self.in_flight.allowed(queue, ordered, n)
        if n <= 0:
            messages = AsyncMessages()
            messages.retry_after = None
            return messages
        flight = next(self._alone) if ordered else 0
        weight = n * self._bytes.get(queue, UNKNOWN)
        [messages] = await self._receives.add((queue, lease, flight), (n,), weight)
        if messages:
            self.in_flight.given(queue, len(messages))
        return messages

    async def _receive(self, key: _Look, counts: Sequence[int]) -> list[AsyncMessages]:
        """One receive for all, dealt out: the first has what it asked for before the second."""
        queue, lease, _ = key
        received = await self._db.queue(queue).receive(sum(counts), lease=lease)
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
        """Receivers of large messages are gathered in smaller flights, or not at all."""
        if received:
            if len(self._bytes) >= MANY:
                self._bytes.clear()
            whole = sum([len(message.raw) for message in received])
            self._bytes[queue] = whole // len(received)

    async def _unclaimed(self, key: _Look, shares: Sequence[AsyncMessages]) -> None:
        for messages in shares:
            await self._release(key[0], messages)

    def give_back(self, queue: str, messages: Sequence[AsyncLeasedMessage]) -> None:
        """Messages that do not reach their receiver are for others, at once."""
        task = asyncio.create_task(self._release(queue, messages), name="fairlead-give-back")
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)

    async def _release(self, queue: str, messages: Sequence[AsyncLeasedMessage]) -> None:
        if not messages:
            return
        try:
            await self._db.queue(queue).release(messages)
        except FairleadError as error:  # then they are visible again when their time is over
            log.warning("messages of a client that has gone were not given back: %s", error)
        self.polls.wake(queue)

    # --- deleting ------------------------------------------------------------------------------
    async def delete(
        self, queue: str, receipts: Sequence[Receipt], ordered: bool
    ) -> Sequence[bool]:
        """Which of them were in flight with that very receipt, and are deleted now."""
        if ordered:
            done = await self._delete(queue, receipts)
        else:
            done = await self._deletes.add(queue, receipts)
        if self.in_flight.ended(queue, ordered, sum(done)) or ordered:
            self.polls.wake(queue)  # there is room again, or a group is free
        return done

    async def _delete(self, queue: str, receipts: Sequence[Receipt]) -> list[bool]:
        handle = self._db.queue(queue)
        acked = await handle.ack([handle.lease(one.id, one.delivery) for one in receipts])
        lost = {(message.id, message.deliveries) for message in acked.lost}
        return [(one.id, one.delivery) not in lost for one in receipts]
