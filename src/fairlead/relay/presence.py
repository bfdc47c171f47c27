"""That a relay runs, for people who look: a permit under which nothing is leased."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterable

from fairlead.aio.database import AsyncDatabase
from fairlead.aio.queue import AsyncPermit
from fairlead.errors import DatabaseError, PermitLost
from fairlead.permits import PermitStatus

log = logging.getLogger("fairlead.relay")
TTL = 30.0  # seconds for which a killed relay is still shown
BEATS = 3  # within that
GOODBYE = 5.0  # seconds for a last beat when we are stopped
_PREFIX = "relay "


async def show_presence(db: AsyncDatabase) -> None:
    """Until cancelled. A database that is away, or that does not let us, stops nothing."""
    name = f"{_PREFIX}{socket.gethostname()}:{os.getpid()}"
    permit: AsyncPermit | None = None
    beating = asyncio.create_task(_beat(db, name, permit))
    try:
        while True:
            try:
                permit = await asyncio.shield(beating)
            except DatabaseError as error:
                log.debug("the relay cannot show that it runs: %s", str(error))
            await asyncio.sleep(TTL / BEATS)
            beating = asyncio.create_task(_beat(db, name, permit))
    finally:
        # The beat that is under way may be making a permit, which somebody has to close.
        with contextlib.suppress(DatabaseError, TimeoutError):
            permit = await asyncio.wait_for(beating, GOODBYE)
        if permit is not None:
            with contextlib.suppress(DatabaseError):
                await permit.close()


async def _beat(db: AsyncDatabase, name: str, permit: AsyncPermit | None) -> AsyncPermit:
    if permit is not None:
        with contextlib.suppress(PermitLost):
            await permit.extend()
            return permit
    return await db.permit(name, ttl=TTL)


def relays(permits: Iterable[PermitStatus]) -> list[str]:
    """The names of those that run, as ``host:process``."""
    return [one.name.removeprefix(_PREFIX) for one in permits if one.name.startswith(_PREFIX)]
