"""SQS as a destination: AWS's, or that of any server that speaks its language.

Up to 15 minutes before it is due a message is handed over with the rest of its delay, so that SQS
gives it in time however busy the relay is. FIFO queues know no delays of single messages: there it
is handed over when it is due, with a deduplication id that is the same at every try.

    SqsDestination(boto3.client("sqs"), "https://sqs.eu-west-1.amazonaws.com/123456789012/orders")

``Waiter`` and ``AsyncWaiter`` are the other half: they put what SQS cannot hold so long here.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fairlead.relay.async_waiter import AsyncWaiter
from fairlead.relay.destination import Later, Never, Outcome, Parcel
from fairlead.relay.sqs_client import Address, client_for
from fairlead.relay.sqs_entries import OLD_LIMIT, Entry, answered, batches, entry, judged, streams
from fairlead.relay.sqs_trouble import TOO_LONG, code_of, meaning
from fairlead.relay.turns import Turns
from fairlead.relay.waiter import Waiter
from fairlead.relay.waiter_orders import HandingOver, Waiting
from fairlead.server.sqs import checks, limits

__all__ = [
    "AsyncWaiter",
    "HandingOver",
    "SqsDestination",
    "Waiter",
    "Waiting",
    "client_for",
    "destination_for",
]

AHEAD = float(limits.DELAY - 1)  # whole seconds, rounded up, have to fit
WITHIN = 30.0  # seconds after which a hand-over ends, whatever the network does
BEGIN = 10.0  # seconds after which it begins no more calls
SLOW = 2.0  # seconds of a call after which fewer are made at once
_LATE = Later(f"SQS did not answer within {WITHIN:g} s: look at the network", down=True)
_NO_TIME = Later("SQS is slow: there was no time left for this message")
_BEHIND = Later("a message of its group that goes before it was not handed over")


@dataclass(slots=True)
class _Course:
    """Of a hand-over: when no more calls are begun, and whether they would be of use."""

    until: float
    down: Later | None = None


def destination_for(address: str) -> SqsDestination:
    """For an address like ``sqs:https://…?region=…&groups=1``, with a client of its own."""
    read = Address.of(address)
    client = client_for(read.queue_url, read.region)
    return SqsDestination(client, read.queue_url, groups=read.groups, own=True)


class SqsDestination:
    """A queue of SQS. ``client`` is boto3's, which is called in threads, or aiobotocore's, which is
    awaited; ``own``: it is closed with this object. ``groups``: of a standard queue a message's
    channel is its MessageGroupId (fair queues), too."""

    def __init__(
        self,
        client: Any,
        queue_url: str,
        *,
        groups: bool = False,
        concurrency: int = 8,
        own: bool = False,
    ) -> None:
        self.queue_url = queue_url
        self.fifo = queue_url.endswith(checks.FIFO)
        self.shown = f"sqs:{queue_url}"
        self.ahead = 0.0 if self.fifo else AHEAD
        self._client = client
        self._groups = groups
        self._own = own
        self._concurrency = concurrency
        self._turns = Turns(concurrency, SLOW)
        self._pool = ThreadPoolExecutor(concurrency, "fairlead-sqs")  # no thread before its use
        self._awaits = False  # the client's calls are awaited: known after the first
        self._limit = limits.MESSAGE_BYTES

    @property
    def most(self) -> int:
        return limits.BATCH * self._turns.limit

    async def hand_over(self, parcels: Sequence[Parcel], now_us: int) -> Sequence[Outcome]:
        outcomes: dict[int, Outcome] = {}
        entries: list[Entry] = []
        for place, parcel in enumerate(parcels):
            made = entry(place, parcel, now_us, fifo=self.fifo, groups=self._groups)
            if isinstance(made, Entry):
                entries.append(made)
            else:
                outcomes[place] = made
        if self.fifo:
            lines = [batches(one, self._limit) for one in streams(entries, self._concurrency)]
        else:
            lines = [[batch] for batch in batches(entries, self._limit)]
        await self._send_all(lines, outcomes)
        return judged([outcomes.get(place, _LATE) for place in range(len(parcels))])

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
        if self._own:
            closing = self._client.close()
            if inspect.isawaitable(closing):
                await closing

    # --- lines of batches -----------------------------------------------------------------------
    async def _send_all(
        self, lines: Sequence[Sequence[Sequence[Entry]]], outcomes: dict[int, Outcome]
    ) -> None:
        if not lines:
            return
        course = _Course(time.monotonic() + BEGIN)
        tasks = [asyncio.create_task(self._line(line, outcomes, course)) for line in lines]
        try:
            await asyncio.wait(tasks, timeout=WITHIN)
        finally:
            # A thread cannot be cancelled: its call may still be heard, and its message be sent
            # again. That is what identities are for.
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _line(
        self, line: Sequence[Sequence[Entry]], outcomes: dict[int, Outcome], course: _Course
    ) -> None:
        """One batch after the other; in a FIFO queue nothing overtakes what has to wait."""
        waiting: set[str] = set()
        for batch in line:
            ready = [one for one in batch if not self.fifo or one.group not in waiting]
            outcomes |= {one.place: _BEHIND for one in batch if one not in ready}
            smaller: Sequence[Sequence[Entry]] = ()
            async with self._turns.one():
                if course.down is not None or time.monotonic() > course.until:
                    outcomes |= {one.place: course.down or _NO_TIME for one in ready}
                    continue
                if ready:
                    smaller = await self._send(ready, outcomes)
            if smaller:
                await self._line(smaller, outcomes, course)
            for one in ready:
                outcome = outcomes[one.place]
                if isinstance(outcome, Later):
                    waiting.add(one.group)
                    course.down = outcome if outcome.down else course.down

    async def _send(
        self, batch: Sequence[Entry], outcomes: dict[int, Outcome]
    ) -> Sequence[Sequence[Entry]]:
        """Send a batch and note what became of it; or the smaller ones to send instead."""
        began = time.monotonic()
        try:
            outcomes |= answered(batch, await self._call(batch))
        except Exception as error:
            outcome = meaning(error, self.queue_url)
            if outcome is None:
                raise
            if isinstance(outcome, Never) and len(batch) > 1:
                return self._smaller(batch, code_of(error) == TOO_LONG)
            outcomes |= {one.place: outcome for one in batch}
        finally:
            later = any(isinstance(outcomes.get(one.place), Later) for one in batch)
            self._turns.ended(began, not later)
        return []

    def _smaller(self, batch: Sequence[Entry], too_long: bool) -> Sequence[Sequence[Entry]]:
        """A call was refused for what is in it, and it is not said for which of its messages."""
        if too_long and self._limit > OLD_LIMIT:
            self._limit = OLD_LIMIT
            made = batches(batch, OLD_LIMIT)
            if len(made) > 1:
                return made
        return [[one] for one in batch]

    async def _call(self, batch: Sequence[Entry]) -> Mapping[str, Any]:
        send: Any = functools.partial(
            self._client.send_message_batch,
            QueueUrl=self.queue_url,
            Entries=[one.fields for one in batch],
        )
        if self._awaits:
            return await send()
        answer: Any = await asyncio.get_running_loop().run_in_executor(self._pool, send)
        if inspect.isawaitable(answer):
            self._awaits = True
            return await answer
        return answer
