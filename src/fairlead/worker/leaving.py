"""How a worker stops: nothing it holds may have to wait for a lease to expire."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from fairlead.errors import DatabaseError
from fairlead.tasks.verdicts import RELEASE
from fairlead.worker.work import STOP

if TYPE_CHECKING:
    from fairlead.worker.runtime import Worker

log = logging.getLogger("fairlead.worker")
UNWIND = 2.0  # seconds that cancelled handlers have to leave, and the last acks to be written


async def leave(worker: Worker) -> None:
    """Give back what has not started, let the rest finish, give back what does not."""
    slots, settler = worker.slots, worker.settler
    settler.give_back([work.message for work in slots.drop(lambda _: True)])
    end = time.monotonic() + worker.grace
    while slots.running and not worker.aborted and time.monotonic() < end:
        if settler.acks:
            await _flush(worker)
        await worker.sleep(min(0.5, max(0.0, end - time.monotonic())))
    if slots.running:
        log.warning("%d handlers have not finished in time; they are released", len(slots.running))
        await _cancel(worker)
    left = 0.0 if worker.aborted else end - time.monotonic()
    try:
        async with asyncio.timeout(max(UNWIND, left)):
            while settler.acks and not await _flush(worker):
                await asyncio.sleep(0.1)
            await settler.idle()
            await worker.claimer.leave()
            await worker.heart.close()
    except (TimeoutError, DatabaseError) as error:
        log.warning("left without the database; the leases expire by themselves: %r", error)


async def _cancel(worker: Worker) -> None:
    slots = worker.slots
    for work in list(slots.running):
        work.cancel(STOP)
    end = time.monotonic() + UNWIND
    while slots.running and time.monotonic() < end:
        await worker.sleep(0.05)
    for work in list(slots.running):  # threads that do not listen; the process ends soon
        slots.running.discard(work)
        worker.settler.settle(work, RELEASE)


async def _flush(worker: Worker) -> bool:
    try:
        await worker.settler.flush()
    except DatabaseError as error:
        log.debug("acks have to wait: %s", error)
        return False
    return True
