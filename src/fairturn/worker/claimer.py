"""Receives messages: one receive at a time, which also carries the acks of finished messages."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from fairturn import internal
from fairturn.core.errors import DatabaseError, OutcomeUnknown, PermitLost, QueueNotFound
from fairturn.execution.aio.waker import AsyncTicket
from fairturn.worker.plan import STALE, Claim

if TYPE_CHECKING:
    from fairturn.worker.runtime import Worker

log = logging.getLogger("fairturn.worker")


class Wakeup(asyncio.Event):
    """An event for the waker: to set it wakes the worker, which asks the queue again."""

    def __init__(self, worker: Worker, queue: str) -> None:
        super().__init__()
        self._worker = worker
        self._queue = queue

    def set(self) -> None:
        self._worker.plan.woken(self._queue)
        self._worker.wake()


class Claimer:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._tickets: dict[str, AsyncTicket] = {}

    async def until_stopped(self) -> None:
        """Carry out the plan's decisions."""
        worker = self._worker
        plan, settler, slots = worker.plan, worker.settler, worker.slots
        while not plan.stopping:
            now = time.monotonic()
            claim = plan.claim(now, settler.acks)
            try:
                if claim is not None:
                    await self._receive(claim)
                elif settler.acks and not plan.in_outage_pause(now):
                    await settler.flush()
                elif slots.buffer and now - slots.moved_at > STALE:
                    self._release_prefetched()
                else:
                    pause = plan.pause(now)
                    if slots.buffer:
                        pause = STALE if pause is None else min(pause, STALE)
                    await worker.sleep(pause)
            except QueueNotFound as error:
                await self._recreate(error.queue)
            except DatabaseError as error:
                worker.database_failed(error)

    async def _recreate(self, queue: str) -> None:
        """Create a dropped queue again, as at the start."""
        log.warning("queue %s was dropped; creating it again", queue)
        try:
            await self._worker.db.queue(queue).create()
        except DatabaseError as error:
            self._worker.database_failed(error)

    async def _receive(self, claim: Claim) -> None:
        worker = self._worker
        settler, heartbeat = worker.settler, worker.heartbeat
        acks = settler.acks.pop(claim.queue, [])
        held_permit = heartbeat.held_permits[-1]  # the newest
        asked = time.monotonic()
        try:
            messages = await worker.db.queue(claim.queue).receive(
                claim.n, min_priority=claim.min_priority, permit=held_permit.permit, ack=acks
            )
        except PermitLost:
            settler.put_back(claim.queue, acks, unsure=False)
            heartbeat.replace_permit()
            return
        except BaseException as error:
            settler.put_back(claim.queue, acks, unsure=isinstance(error, DatabaseError))
            if isinstance(error, OutcomeUnknown):
                heartbeat.replace_permit()
            raise
        if acks:
            settler.acked(acks, messages.lost)
        if worker.plan.stopping or held_permit not in heartbeat.held_permits:
            # During the receive the worker was stopped, or the permit was dropped, and no heartbeat
            # would extend these leases.
            settler.release_later(messages)
            return
        count = len(messages)
        worker.metrics.receives += 1
        worker.metrics.received[claim.queue] += count
        ticket = self._tickets.get(claim.queue)
        notified = ticket is not None and ticket.live
        now = time.monotonic()
        worker.plan.received(claim, count, messages.retry_after, notified, now, now - asked)
        if count:
            worker.slots.take(messages, held_permit)
        await self._subscribe(claim.queue, count == claim.n)

    def _release_prefetched(self) -> None:
        """Handlers take longer than expected: let other workers have the prefetched messages."""
        self._worker.settler.release_later(self._worker.slots.drop())
        self._worker.plan.stop_prefetching(time.monotonic())

    # --- notifications ---------------------------------------------------------------------------
    async def _subscribe(self, queue: str, full: bool) -> None:
        """Subscribe to notifications, unless the queue is so full that we always ask again."""
        ticket = self._tickets.get(queue)
        if full:
            if ticket is not None:
                del self._tickets[queue]
                await ticket.leave()
        elif ticket is None:
            event = Wakeup(self._worker, queue)
            self._tickets[queue] = ticket = await internal.ticket(
                self._worker.db.queue(queue), event
            )
            if ticket.live:
                # A message may have come before the subscription: ask once more before sleeping.
                self._worker.plan.woken(queue)
        else:
            await ticket.stay()

    async def close(self) -> None:
        for ticket in self._tickets.values():
            await ticket.leave()
