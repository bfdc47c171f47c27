"""Stops a worker: every message is settled or released, so that no lease has to expire."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from fairturn.core.errors import DatabaseError
from fairturn.tasks.verdicts import RELEASE
from fairturn.worker.delivery import STOP

if TYPE_CHECKING:
    from fairturn.worker.runtime import Worker

log = logging.getLogger("fairturn.worker")
UNWIND = 2.0  # seconds for cancelled handlers to end, and for the last acks to be written


async def shut_down(worker: Worker) -> None:
    """Release waiting messages, let handlers finish within the grace time, release the rest."""
    slots, settler = worker.slots, worker.settler
    settler.release_later(slots.drop())
    end = time.monotonic() + worker.grace
    while slots.running and not worker.aborted and time.monotonic() < end:
        if settler.acks:
            await _flush(worker)
        await worker.sleep(min(0.5, max(0.0, end - time.monotonic())))
    if slots.running:
        text = "%d handlers did not finish in time; their messages are released"
        log.warning(text, len(slots.running))
        await _cancel(worker)
    left = 0.0 if worker.aborted else end - time.monotonic()
    try:
        async with asyncio.timeout(max(UNWIND, left)):
            while settler.acks and not await _flush(worker):
                await asyncio.sleep(0.1)
            await settler.idle()
            await worker.claimer.close()
            await worker.heartbeat.close()
    except (TimeoutError, DatabaseError) as error:
        log.warning("the database did not answer; the leases will expire: %r", error)


async def _cancel(worker: Worker) -> None:
    slots = worker.slots
    for delivery in list(slots.running):
        delivery.cancel(STOP)
    end = time.monotonic() + UNWIND
    while slots.running and time.monotonic() < end:
        await worker.sleep(0.05)
    for delivery in list(slots.running):  # threads that cannot be interrupted
        slots.running.discard(delivery)
        worker.settler.settle(delivery.message, RELEASE)


async def _flush(worker: Worker) -> bool:
    try:
        await worker.settler.flush()
    except DatabaseError as error:
        log.debug("acks wait for the database: %s", error)
        return False
    return True
