"""One queue and its destination: lease messages, hand them over, ack what is confirmed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from fairturn import internal
from fairturn.aio.queue import AsyncQueue
from fairturn.core.errors import DatabaseError, FairturnError, QueueNotFound
from fairturn.core.message import Message
from fairturn.core.values import EPOCH, moment
from fairturn.execution.aio.waker import AsyncTicket, sleep
from fairturn.execution.polling import Pace
from fairturn.execution.retries import absence
from fairturn.relay.destination import Destination, Later, Never, Outcome, Parcel
from fairturn.relay.ordered_batches import OrderedBatches

log = logging.getLogger("fairturn.relay")
LONG = 5.0  # seconds to wait after an unexpected error
EARLY = 1.0  # seconds between two promotes of messages that may be handed over early
PROMOTED = 1000  # messages of one promote, at most
HAND_OVERS = 4  # batches that are handed over at the same time
PAUSE = (0.1, 30.0)  # seconds between two tries while the destination is down: first, longest
PROBES = 3  # tries with one message while the destination is down, before another one is tried
AGAIN = (1.0, 60.0)  # seconds until a refused message is tried again: first, longest
REASON = 1000  # characters of the reason that are kept
STORE = 30.0  # seconds after which the same trouble is stored again
TROUBLE = "relay:trouble"  # the name of the remembered value for `fairturn relay status`


@dataclass(slots=True)
class Counts:
    """How many messages a route has handled since it started."""

    handed: int = 0
    later: int = 0  # refused for now, and tried again
    dead: int = 0  # never accepted
    released: int = 0  # because the destination was down
    lost: int = 0  # handed over after the lease had ended: perhaps twice


class Route:
    """``clock`` returns microseconds by the database's clock."""

    def __init__(
        self,
        queue: AsyncQueue,
        destination: Destination,
        clock: Callable[[], int],
        *,
        lease: float = 30.0,
        ahead: float | None = None,
    ) -> None:
        self.queue = queue
        self.destination = destination
        self.counts = Counts()
        self.down: str | None = None  # while the destination is down: why
        self._clock = clock
        self._lease = lease
        self._ahead = destination.ahead if ahead is None else min(ahead, destination.ahead)
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._ticket: AsyncTicket | None = None
        self._pace = Pace()
        self._promote_at = 0.0
        self._downs = 0  # failed tries in a row
        self._probe = (0, 0)  # while it is down: the id of the message that is tried, its tries
        self._since = 0  # when it went down
        self._stored: str | None = ""  # the trouble that was stored last; "": none yet
        self._store_at = 0.0
        self._hand_overs: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Receive no more; ``run`` ends when the current hand-overs have ended."""
        self._stopping.set()
        self._woken.set()

    async def run(self) -> None:
        """Hand over until ``stop``. Errors are logged, and it goes on."""
        absences, said = 0, ""
        try:
            while not self._stopping.is_set():
                try:
                    await self._step()
                except asyncio.CancelledError:
                    self._cancel()  # do not wait for the current hand-overs
                    raise
                except Exception as error:
                    absences += 1
                    known = isinstance(error, (DatabaseError, QueueNotFound))
                    why = None if known else error  # a mistake in this program: log its traceback
                    before, said = said, str(error)  # not the error: it would keep a connection
                    if not known or said != before:
                        log.warning("queue %s: %s", self.queue.name, said, exc_info=why)
                    await pause(self._stopping, absence(absences) if known else LONG)
                else:
                    absences, said = 0, ""
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """Wait for the current hand-overs, then close. If it is cancelled, it does not wait."""
        try:
            if self._hand_overs:
                await asyncio.wait(self._hand_overs)
        finally:
            self._cancel()
            if self._ticket is not None:
                await self._ticket.leave()
            await self.destination.close()

    def _cancel(self) -> None:
        for task in self._hand_overs:
            task.cancel()  # its messages are recovered when their leases end

    async def _step(self) -> None:
        probing = self.down is not None
        if probing:
            if self._hand_overs:
                await asyncio.wait(self._hand_overs)
            await pause(self._stopping, backoff(PAUSE, self._downs))
        elif len(self._hand_overs) >= HAND_OVERS:
            await asyncio.wait(self._hand_overs, return_when=asyncio.FIRST_COMPLETED)
            return
        if self._stopping.is_set():
            return
        if self._ahead and time.monotonic() >= self._promote_at:
            promoted = await self.queue.promote(self._ahead, limit=PROMOTED)
            self._promote_at = 0.0 if promoted == PROMOTED else time.monotonic() + EARLY
        n = self.destination.most
        if probing:  # one message is enough to try; after some tries, another one instead of it
            _, tries = self._probe
            n = 1 if tries < PROBES else 2
        messages = await self.queue.receive(n, lease=self._lease)
        if not messages:
            await self._rest(messages.retry_after)
            return
        self._pace = Pace()
        chosen = [await self._chosen(messages)] if probing else messages
        task = asyncio.create_task(self._run_batch([parcel(message) for message in chosen]))
        self._hand_overs.add(task)
        task.add_done_callback(self._ended)
        if self.down is not None:
            await asyncio.wait([task])

    async def _chosen(self, messages: Sequence[Message]) -> Message:
        """The message to try a destination with that is down. After some tries it is another one,
        if there is one, and the first is deferred: it may be the cause."""
        before, tries = self._probe
        others = [message for message in messages if message.id != before]
        chosen = others[0] if tries >= PROBES and others else messages[0]
        for message in messages:
            if message.id == before and message is not chosen:
                await self._defer(parcel(message), Later(self.down or "its tries failed"))
            elif message is not chosen:
                await self._release([message])
        self._probe = (chosen.id, tries + 1 if chosen.id == before else 1)
        return chosen

    async def _rest(self, retry_after: float | None) -> None:
        """Nothing is due: sleep until the waker wakes us, or it is time to receive again."""
        ticket = self._ticket
        if ticket is None:
            ticket = self._ticket = await internal.ticket(self.queue, self._woken)
            if ticket.live:
                return  # subscribed: receive once more before sleeping
        await ticket.stay()
        seconds = self._pace.next(ticket.live)
        if retry_after is not None:
            seconds = min(seconds, retry_after)
        if not self._stopping.is_set():
            await sleep(self._woken, seconds)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._hand_overs.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # Its messages are recovered when their leases end.
            log.error("a hand-over of queue %s failed", self.queue.name, exc_info=task.exception())

    # --- one batch ------------------------------------------------------------------------------
    async def _run_batch(self, parcels: Sequence[Parcel]) -> None:
        batches = OrderedBatches(parcels)
        keeping = asyncio.create_task(self._keep([parcel.message for parcel in parcels]))
        try:
            for batch in batches:
                outcomes = await self._hand_over(batch)
                for one, outcome in zip(batch, outcomes, strict=True):
                    batches.judged(one, outcome)
                await self._note(outcomes)
                if self.down is not None:
                    batches.stop()
                await self._settle(batch, outcomes)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await self._release([one.message for one in batches.held_back])

    async def _hand_over(self, batch: Sequence[Parcel]) -> Sequence[Outcome]:
        """Hand over, also to a destination that raises or returns too few outcomes."""
        try:
            outcomes = await self.destination.hand_over(batch, self._clock())
        except Exception as error:
            log.exception("%s raised an error", self.destination.shown)
            return [Later(f"{type(error).__name__}: {error}", down=True)] * len(batch)
        if len(outcomes) != len(batch):
            reason = f"the destination returned {len(outcomes)} outcomes for {len(batch)} messages"
            return [Later(reason, down=True)] * len(batch)
        return outcomes

    async def _keep(self, messages: Sequence[Message]) -> None:
        """Extend the leases of a long hand-over. (Messages that are settled already are reported as
        lost, which is ignored.)"""
        while True:
            await asyncio.sleep(self._lease / 3)
            with contextlib.suppress(DatabaseError):
                await self.queue.extend(messages, self._lease)

    async def _settle(self, batch: Sequence[Parcel], outcomes: Sequence[Outcome]) -> None:
        handed: list[Message] = []
        back: list[Message] = []
        for parcel, outcome in zip(batch, outcomes, strict=True):
            if outcome is None:
                handed.append(parcel.message)
            elif isinstance(outcome, Never):
                await self._kill(parcel, outcome)
            elif outcome.down:
                back.append(parcel.message)
            else:
                await self._defer(parcel, outcome)
        if handed:
            acked = await self._persist(lambda: self.queue.ack(handed))
            self.counts.handed += len(handed)
            self.counts.lost += len(acked.lost)
            if acked.lost:
                log.warning(
                    "%d messages of queue %s were handed over after their leases had ended: they "
                    "may arrive twice", len(acked.lost), self.queue.name
                )  # fmt: skip
        await self._release(back)

    async def _kill(self, parcel: Parcel, outcome: Never) -> None:
        self.counts.dead += 1
        log.error(
            "message %d of queue %s is dead: %s", parcel.message.id, self.queue.name, outcome.reason
        )
        await self._persist(lambda: self.queue.kill([parcel.message], outcome.reason))

    async def _defer(self, parcel: Parcel, outcome: Later) -> None:
        """Try it again later. This changes the due time, so the original one is in the memo."""
        self.counts.later += 1
        tries = _memo(parcel.message).get("tries", 0)
        delay = backoff(AGAIN, tries)
        until = self._clock() + int(delay * 1_000_000)
        memo = {"due": parcel.due_us, "tries": tries + 1, "until": until}
        log.warning(
            "message %d of queue %s waits for %.1f s: %s",
            parcel.message.id, self.queue.name, delay, outcome.reason,
        )  # fmt: skip
        await self._persist(lambda: self.queue.defer([parcel.message], at=moment(until), memo=memo))

    async def _release(self, messages: Sequence[Message]) -> None:
        if messages:
            self.counts.released += len(messages)
            await self._persist(lambda: self.queue.release(messages))

    async def _persist(self, call: Callable[[], Any]) -> Any:
        """Settle messages, even if the database is away for some time. The verbs name the delivery,
        so that a second try does no harm."""
        attempt = 0
        while True:
            try:
                return await call()
            except QueueNotFound:
                raise
            except DatabaseError as error:
                attempt += 1
                log.warning("queue %s: %s", self.queue.name, str(error))
                await asyncio.sleep(absence(attempt))

    # --- up and down ----------------------------------------------------------------------------
    async def _note(self, outcomes: Sequence[Outcome]) -> None:
        """Note whether the destination is down."""
        reasons = [  # each in one line, for logs and tables
            " ".join(one.reason.split())[:REASON]
            for one in outcomes
            if isinstance(one, Later) and one.down
        ]
        where, name = self.destination.shown, self.queue.name
        if reasons:
            self._downs += 1
            before, self.down = self.down, reasons[0]
            if before is None:
                self._since = self._clock()
            if self.down != before:
                log.error("%s is down for queue %s: %s", where, name, self.down)
            await self._store_trouble(self.down)
        elif any(one is None for one in outcomes):
            if self.down is not None:
                log.info("%s is back for queue %s", where, name)
                self.down, self._downs, self._probe = None, 0, (0, 0)
            await self._store_trouble(None)

    async def _store_trouble(self, trouble: str | None) -> None:
        """Store the trouble when it has changed, and from time to time: another relay of this queue
        may have stored something else, and died."""
        now = time.monotonic()
        if trouble != self._stored or now >= self._store_at:
            self._stored, self._store_at = trouble, now + STORE
            await remember(self.queue, trouble, self._since)


async def remember(queue: AsyncQueue, trouble: str | None, since_us: int = 0) -> None:
    """Store the trouble for `fairturn relay status`. Errors are ignored."""
    with contextlib.suppress(FairturnError):
        value = trouble and {"reason": trouble, "since": since_us}
        await queue.remember(TROUBLE, value, keep=86_400)


def parcel(message: Message) -> Parcel:
    """The message with its original due time. If it was deferred, that is in its memo, unless it
    was rescheduled since then."""
    memo = _memo(message)
    due = (message.due_at - EPOCH) // timedelta(microseconds=1)
    return Parcel(message, memo["due"] if memo.get("until") == due else due)


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    """Sleep, but only until the event is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)


def backoff(bounds: tuple[float, float], failures: int) -> float:
    """Seconds until the next try: from the first bound doubling to the second, jittered."""
    first, longest = bounds
    return random.uniform(0.5, 1) * min(first * 2 ** min(failures, 10), longest)


def _memo(message: Message) -> dict[str, int]:
    """The memo that ``_defer`` has stored."""
    memo = message.memo
    return cast("dict[str, int]", memo) if isinstance(memo, dict) else {}
