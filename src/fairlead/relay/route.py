"""One queue on its way to one destination: lease, hand over, and ack only what is confirmed."""

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

from fairlead.aio.queue import AsyncQueue
from fairlead.aio.waking import AsyncTicket, AsyncWaker, sleep
from fairlead.errors import DatabaseError, FairleadError, QueueNotFound
from fairlead.polling import Pace
from fairlead.relay.destination import Destination, Later, Never, Outcome, Parcel
from fairlead.relay.waves import Waves
from fairlead.retrying import absence
from fairlead.values import EPOCH, Message, moment

log = logging.getLogger("fairlead.relay")
LONG = 5.0  # seconds after an error that should not be
EARLY = 1.0  # seconds between two looks for what may go early
PROMOTED = 1000  # messages of such a look, at most
FLIGHTS = 4  # batches on their way at once
PAUSE = (0.1, 30.0)  # seconds without a try while the destination is down: first, longest
PROBES = 3  # tries of one message while the destination is down: then another one's turn has come
AGAIN = (1.0, 60.0)  # seconds until a message that was turned away is tried again: first, longest
REASON = 1000  # characters of why it is down
TELL = 30.0  # seconds after which the same is told again
TROUBLE = "relay:trouble"  # the name under which it is remembered, for `fairlead relay status`


@dataclass(slots=True)
class Counts:
    """What a route has done since it started."""

    handed: int = 0
    later: int = 0  # turned away, to be tried again
    dead: int = 0  # never accepted
    released: int = 0  # given back: the destination was down
    lost: int = 0  # handed over when the lease was already another's: perhaps twice


class Route:
    """See the module's text. ``clock``: microseconds, by the database's clock."""

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
        self.down: str | None = None  # why, while it is
        self._clock = clock
        self._lease = lease
        self._ahead = destination.ahead if ahead is None else min(ahead, destination.ahead)
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._ticket: AsyncTicket | None = None
        self._pace = Pace()
        self._promote_at = 0.0
        self._downs = 0  # in a row
        self._probe = (0, 0)  # the message that is tried while it is down, and how often it was
        self._since = 0  # when it went down
        self._told: str | None = ""  # of its trouble, for `fairlead relay status`: nothing yet
        self._tell_at = 0.0
        self._absences = 0
        self._flights: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Route {self.queue.name!r} to {self.destination.shown}>"

    def stop(self) -> None:
        """Claim nothing more; ``run`` ends when what is on its way has arrived."""
        self._stopping.set()
        self._woken.set()

    async def run(self) -> None:
        """Until ``stop``, whatever happens."""
        said = ""
        try:
            while not self._stopping.is_set():
                try:
                    await self._step()
                except asyncio.CancelledError:
                    self._cut()  # who waits for them was told to leave
                    raise
                except Exception as error:
                    self._absences += 1
                    known = isinstance(error, (DatabaseError, QueueNotFound))
                    why = None if known else error  # a mistake of ours
                    before, said = said, str(error)  # (whoever keeps log records keeps no error)
                    if not known or said != before:
                        log.warning("queue %s: %s", self.queue.name, said, exc_info=why)
                    await self._sleep(absence(self._absences) if known else LONG)
                else:
                    self._absences, said = 0, ""
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """When what is on its way has arrived; who is cancelled meanwhile leaves at once."""
        try:
            if self._flights:
                await asyncio.wait(self._flights)
        finally:
            self._cut()
            if self._ticket is not None:
                await self._ticket.leave()
            await self.destination.close()

    def _cut(self) -> None:
        for flight in self._flights:
            flight.cancel()  # its messages come back when their leases end

    async def _step(self) -> None:
        probing = self.down is not None
        if probing:
            if self._flights:
                await asyncio.wait(self._flights)
            await self._sleep(self._pause())
        elif len(self._flights) >= FLIGHTS:
            await asyncio.wait(self._flights, return_when=asyncio.FIRST_COMPLETED)
            return
        if self._stopping.is_set():
            return
        if self._ahead and time.monotonic() >= self._promote_at:
            promoted = await self.queue.promote(self._ahead, limit=PROMOTED)
            self._promote_at = 0.0 if promoted == PROMOTED else time.monotonic() + EARLY
        n = self.destination.most
        if probing:  # enough to see whether it is back; or one, and one instead of it
            n = 1 if self._probe[1] < PROBES else 2
        messages = await self.queue.receive(n, lease=self._lease)
        if not messages:
            await self._rest(messages.retry_after)
            return
        self._pace = Pace()
        chosen = [await self._chosen(messages)] if probing else messages
        flight = asyncio.create_task(self._fly([parcel(message) for message in chosen]))
        self._flights.add(flight)
        flight.add_done_callback(self._landed)
        if self.down is not None:
            await asyncio.wait([flight])

    async def _chosen(self, messages: Sequence[Message]) -> Message:
        """One to try it with. After some tries another one, if there is one, and the first has to
        wait: it may be that message's fault that all seems to be down."""
        before, tries = self._probe
        others = [message for message in messages if message.id != before]
        chosen = others[0] if tries >= PROBES and others else messages[0]
        for message in messages:
            if message.id == before and message is not chosen:
                await self._defer(parcel(message), Later(self.down or "it was tried in vain"))
            elif message is not chosen:
                await self._release([message])
        self._probe = (chosen.id, tries + 1 if chosen.id == before else 1)
        return chosen

    async def _rest(self, retry_after: float | None) -> None:
        """Nothing is due: sleep until the database says something, or it is time to look again."""
        ticket = self._ticket
        if ticket is None:
            waker: AsyncWaker = self.queue.core.waker
            ticket = self._ticket = await waker.ticket(self.queue.name, self._woken)
            if ticket.live:
                return  # subscribed: look once more before sleeping
        await ticket.stay()
        pause = self._pace.next(ticket.live)
        if retry_after is not None:
            pause = min(pause, retry_after)
        if not self._stopping.is_set():
            await sleep(self._woken, pause)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if not flight.cancelled() and flight.exception() is not None:
            # What it held comes back when its leases end.
            log.error(
                "a hand-over of queue %s broke off", self.queue.name, exc_info=flight.exception()
            )

    def _pause(self) -> float:
        return random.uniform(0.5, 1) * min(PAUSE[0] * 2 ** min(self._downs, 10), PAUSE[1])

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    # --- one batch ------------------------------------------------------------------------------
    async def _fly(self, parcels: Sequence[Parcel]) -> None:
        waves = Waves(parcels)
        keeping = asyncio.create_task(self._keep([parcel.message for parcel in parcels]))
        try:
            for wave in waves:
                outcomes = await self._hand_over(wave)
                for one, outcome in zip(wave, outcomes, strict=True):
                    waves.judged(one, outcome)
                await self._noticed(outcomes)
                if self.down is not None:
                    waves.stop()
                await self._settle(wave, outcomes)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await self._release([one.message for one in waves.held_back])

    async def _hand_over(self, wave: Sequence[Parcel]) -> Sequence[Outcome]:
        """Also to a destination that raises, or does not tell of each what became of it."""
        try:
            outcomes = await self.destination.hand_over(wave, self._clock())
        except Exception as error:
            log.exception("%s failed to say what became of messages", self.destination.shown)
            return [Later(f"{type(error).__name__}: {error}", down=True)] * len(wave)
        if len(outcomes) != len(wave):
            reason = f"it told of {len(outcomes)} messages what became of them, not of {len(wave)}"
            return [Later(reason, down=True)] * len(wave)
        return outcomes

    async def _keep(self, messages: Sequence[Message]) -> None:
        """Keep the leases of a hand-over that takes long. (Those already settled are reported as
        lost, which is no news.)"""
        while True:
            await asyncio.sleep(self._lease / 3)
            with contextlib.suppress(DatabaseError):
                await self.queue.extend(messages, self._lease)

    async def _settle(self, wave: Sequence[Parcel], outcomes: Sequence[Outcome]) -> None:
        handed: list[Message] = []
        back: list[Message] = []
        for parcel, outcome in zip(wave, outcomes, strict=True):
            if outcome is None:
                handed.append(parcel.message)
            elif isinstance(outcome, Never):
                await self._kill(parcel, outcome)
            elif outcome.down:
                back.append(parcel.message)
            else:
                await self._defer(parcel, outcome)
        if handed:
            acked = await self._insist(lambda: self.queue.ack(handed))
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
        await self._insist(lambda: self.queue.kill([parcel.message], outcome.reason))

    async def _defer(self, parcel: Parcel, outcome: Later) -> None:
        """Later: its due time moves, so the one that counts is kept as its memo."""
        self.counts.later += 1
        tries = tries_of(parcel.message)
        delay = random.uniform(0.5, 1) * min(AGAIN[0] * 2 ** min(tries, 10), AGAIN[1])
        until = self._clock() + int(delay * 1_000_000)
        memo = {"due": parcel.due_us, "tries": tries + 1, "until": until}
        log.warning(
            "message %d of queue %s has to wait %.1f s: %s",
            parcel.message.id, self.queue.name, delay, outcome.reason,
        )  # fmt: skip
        await self._insist(lambda: self.queue.defer([parcel.message], at=moment(until), memo=memo))

    async def _release(self, messages: Sequence[Message]) -> None:
        if messages:
            self.counts.released += len(messages)
            await self._insist(lambda: self.queue.release(messages))

    async def _insist(self, call: Callable[[], Any]) -> Any:
        """What became of a message must be told, also to a database that is away for a moment;
        verbs name the delivery, so that telling it twice does no harm."""
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
    async def _noticed(self, outcomes: Sequence[Outcome]) -> None:
        # (In one line: for logs and tables.)
        reasons = [
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
            await self._tell(self.down)
        elif any(one is None for one in outcomes):
            if self.down is not None:
                log.info("%s is back for queue %s", where, name)
                self.down, self._downs, self._probe = None, 0, (0, 0)
            await self._tell(None)

    async def _tell(self, trouble: str | None) -> None:
        """The first time, when it changes, and from time to time: another relay of this queue may
        have told the contrary, and died."""
        now = time.monotonic()
        if trouble != self._told or now >= self._tell_at:
            self._told, self._tell_at = trouble, now + TELL
            await remember(self.queue, trouble, self._since)


async def remember(queue: AsyncQueue, trouble: str | None, since_us: int = 0) -> None:
    """For people who look; it must stop nothing."""
    with contextlib.suppress(FairleadError):
        value = trouble and {"reason": trouble, "since": since_us}
        await queue.remember(TROUBLE, value, keep=86_400)


def parcel(message: Message) -> Parcel:
    """When it was turned away its due time is a pause, and the one that counts is in its memo:
    unless somebody has rescheduled it meanwhile."""
    memo = _memo(message)
    due = (message.due_at - EPOCH) // timedelta(microseconds=1)
    return Parcel(message, memo["due"] if memo.get("until") == due else due)


def tries_of(message: Message) -> int:
    return _memo(message).get("tries", 0)


def _memo(message: Message) -> dict[str, int]:
    """What ``_defer`` has left."""
    memo = message.memo
    return cast("dict[str, int]", memo) if isinstance(memo, dict) else {}
