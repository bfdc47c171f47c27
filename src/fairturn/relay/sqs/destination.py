"""SQS as a destination: AWS's, or any server with the same API.

A message is handed over up to 15 minutes before it is due, with the rest as its delay, so that SQS
delivers it in time even if the relay is busy then. FIFO queues have no delay for a single message:
they get it when it is due, with a deduplication id that is the same at every try.

    SqsDestination(boto3.client("sqs"), "https://sqs.eu-west-1.amazonaws.com/123456789012/orders")

``Waiter`` and ``AsyncWaiter`` store the messages whose delay is too long for SQS.
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

from fairturn.relay.destination import Later, Never, Outcome, Parcel
from fairturn.relay.sqs.adaptive_limit import AdaptiveLimit
from fairturn.relay.sqs.clients import Address, client_for
from fairturn.relay.sqs.entries import OLD_LIMIT, Entry, answered, batches, entry, judged, streams
from fairturn.relay.sqs.errors import TOO_LONG, code_of, meaning
from fairturn.sqs import checks, limits

AHEAD = float(limits.DELAY - 1)  # one less, because a delay is rounded up to whole seconds
WITHIN = 30.0  # seconds after which a hand-over ends, whatever the network does
BEGIN = 10.0  # seconds after which a hand-over begins no more calls
CALLS = 8  # at the same time, at most
SLOW = 2.0  # seconds of a call after which fewer are made at the same time
_LATE = Later(f"SQS did not answer within {WITHIN:g} s: check the network", down=True)
_NO_TIME = Later("SQS is slow: there was no time left for this message")
_BEHIND = Later("an earlier message of its group was not handed over")


@dataclass(slots=True)
class _Course:
    """The state of one hand-over: until when calls are begun, and whether SQS is down."""

    until: float
    down: Later | None = None


def destination_for(address: str) -> SqsDestination:
    """For an address like ``sqs:https://…?region=…&groups=1``, with its own client."""
    parsed = Address.of(address)
    client = client_for(parsed.queue_url, parsed.region)
    return SqsDestination(client, parsed.queue_url, groups=parsed.groups, own=True)


class SqsDestination:
    """A queue of SQS. ``client``: a client of boto3, which is called in threads, or of aiobotocore,
    which is awaited. ``own``: close the client with this object. ``groups``: a message's channel is
    its MessageGroupId in a standard queue, too (fair queues)."""

    def __init__(
        self, client: Any, queue_url: str, *, groups: bool = False, own: bool = False
    ) -> None:
        self.queue_url = queue_url
        self.fifo = queue_url.endswith(checks.FIFO)
        self.shown = f"sqs:{queue_url}"
        self.ahead = 0.0 if self.fifo else AHEAD
        self._client = client
        self._groups = groups
        self._own = own
        self._calls = AdaptiveLimit(CALLS, SLOW)
        self._pool = ThreadPoolExecutor(CALLS, "fairturn-sqs")  # starts threads when needed
        self._awaits = False  # the client's calls are awaited: known after the first call
        self._batch_bytes = limits.MESSAGE_BYTES

    @property
    def most(self) -> int:
        return limits.BATCH * self._calls.limit

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
            lines = [batches(one, self._batch_bytes) for one in streams(entries, CALLS)]
        else:
            lines = [[batch] for batch in batches(entries, self._batch_bytes)]
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
            # A thread cannot be cancelled: SQS may accept its messages, which are then sent again.
            # Identities exist for that.
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _line(
        self, line: Sequence[Sequence[Entry]], outcomes: dict[int, Outcome], course: _Course
    ) -> None:
        """Send the batches one after the other. In a FIFO queue, no message overtakes an earlier
        one of its group that was not handed over."""
        blocked: set[str] = set()  # groups
        for batch in line:
            ready = [one for one in batch if not self.fifo or one.group not in blocked]
            outcomes |= {one.place: _BEHIND for one in batch if one not in ready}
            smaller: Sequence[Sequence[Entry]] = ()
            async with self._calls.one():
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
                    blocked.add(one.group)
                    course.down = outcome if outcome.down else course.down

    async def _send(
        self, batch: Sequence[Entry], outcomes: dict[int, Outcome]
    ) -> Sequence[Sequence[Entry]]:
        """Send a batch and note the outcomes. It returns smaller batches, if these must be sent
        instead."""
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
            self._calls.ended(began, not later)
        return []

    def _smaller(self, batch: Sequence[Entry], too_long: bool) -> Sequence[Sequence[Entry]]:
        """The batches to send instead of one that SQS refused without naming the wrong message."""
        if too_long and self._batch_bytes > OLD_LIMIT:
            self._batch_bytes = OLD_LIMIT
            if len(made := batches(batch, OLD_LIMIT)) > 1:
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
