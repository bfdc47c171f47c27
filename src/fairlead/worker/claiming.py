"""Ask the database for messages: one receive at a time, which carries the acks of what is done."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fairlead.aio.waking import AsyncTicket
from fairlead.errors import DatabaseError, OutcomeUnknown, PermitLost, QueueNotFound
from fairlead.worker.plan import STALE, Claim

if TYPE_CHECKING:
    from fairlead.worker.runtime import Worker

log = logging.getLogger("fairlead.worker")


class Wakes(asyncio.Event):
    """Set by the waker when something happens in a queue."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self._tell = tell

    def set(self) -> None:
        self._tell()


class Claimer:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._tickets: dict[str, AsyncTicket] = {}

    async def until_stopped(self) -> None:
        """Do what the plan says."""
        worker = self._worker
        plan, settler, slots = worker.plan, worker.settler, worker.slots
        while not plan.stopping:
            now = time.monotonic()
            claim = plan.claim(now, settler.acks)
            try:
                if claim is not None:
                    await self._receive(claim)
                elif settler.acks and not plan.in_trouble(now):
                    await settler.flush()
                elif slots.buffer and now - slots.moved_at > STALE:
                    self._give_back()
                else:
                    pause = plan.pause(now)
                    if slots.buffer:
                        pause = STALE if pause is None else min(pause, STALE)
                    await worker.sleep(pause)
            except QueueNotFound as error:
                await self._make(error.queue)
            except DatabaseError as error:
                worker.trouble(error)

    async def _make(self, queue: str) -> None:
        """Somebody dropped a queue of ours: make it again, as we did when we started."""
        log.warning("queue %s was dropped; it is made again", queue)
        try:
            await self._worker.db.queue(queue).create()
        except DatabaseError as error:
            self._worker.trouble(error)

    async def _receive(self, claim: Claim) -> None:
        worker = self._worker
        settler, heart = worker.settler, worker.heart
        acks = settler.take(claim.queue)
        pulse = heart.pulse
        asked = time.monotonic()
        try:
            messages = await worker.db.queue(claim.queue).receive(
                claim.n, min_priority=claim.min_priority, permit=pulse.permit, ack=acks
            )
        except PermitLost:
            settler.put_back(claim.queue, acks, unsure=False)
            heart.doubt()
            return
        except BaseException as error:
            settler.put_back(claim.queue, acks, unsure=isinstance(error, DatabaseError))
            if isinstance(error, OutcomeUnknown):
                heart.doubt()
            raise
        if acks:
            settler.acked(acks, messages.lost)
        if worker.plan.stopping or pulse not in heart.pulses:
            # While we waited for the answer we were told to stop, or the permit was given up and
            # nothing keeps these alive.
            settler.give_back(messages)
            return
        given = len(messages)
        worker.metrics.add_received(claim.queue, given)
        listens = self._listens(claim.queue)
        now = time.monotonic()
        worker.plan.gave(claim, given, messages.retry_after, listens, now, now - asked)
        if given:
            worker.slots.take(messages, pulse)
        await self._subscribe(claim.queue, given == claim.n)

    def _give_back(self) -> None:
        """The handlers take longer than was thought: others may have what waits here."""
        works = self._worker.slots.drop(lambda _: True)
        self._worker.plan.be_shy(time.monotonic())
        self._worker.settler.give_back([work.message for work in works])

    # --- being woken -----------------------------------------------------------------------------
    def _listens(self, queue: str) -> bool:
        ticket = self._tickets.get(queue)
        return ticket is not None and ticket.live

    async def _subscribe(self, queue: str, full: bool) -> None:
        """Be woken when something comes, unless there is so much that we ask all the time."""
        ticket = self._tickets.get(queue)
        if full:
            if ticket is not None:
                del self._tickets[queue]
                await ticket.leave()
        elif ticket is None:
            wakes = Wakes(functools.partial(self._woken, queue))
            self._tickets[queue] = ticket = await self._worker.db.core.waker.ticket(queue, wakes)
            if ticket.live:
                self._worker.plan.woken(queue)  # subscribed: look once more before sleeping
        else:
            await ticket.stay()

    def _woken(self, queue: str) -> None:
        self._worker.plan.woken(queue)
        self._worker.wake()

    async def leave(self) -> None:
        for ticket in self._tickets.values():
            await ticket.leave()
