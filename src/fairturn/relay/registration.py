"""The permit that shows that a relay runs. No message is leased with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterable

from fairturn.aio.database import AsyncDatabase
from fairturn.aio.queue import AsyncPermit
from fairturn.core.errors import DatabaseError, PermitLost
from fairturn.core.values import PermitStatus

log = logging.getLogger("fairturn.relay")
TTL = 30.0  # seconds for which a killed relay is still shown
BEATS = 3  # heartbeats within these seconds
GOODBYE = 5.0  # seconds for the last heartbeat when the relay is stopped
_PREFIX = "relay "


async def show_presence(db: AsyncDatabase) -> None:
    """Keep the permit until this is cancelled. Errors of the database are only logged."""
    name = f"{_PREFIX}{socket.gethostname()}:{os.getpid()}"
    permit: AsyncPermit | None = None
    beating = asyncio.create_task(_beat(db, name, permit))
    try:
        while True:
            try:
                permit = await asyncio.shield(beating)
            except DatabaseError as error:
                log.debug("the relay cannot register: %s", str(error))
            await asyncio.sleep(TTL / BEATS)
            beating = asyncio.create_task(_beat(db, name, permit))
    finally:
        # The current heartbeat may be making a permit, which must be closed.
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
    """The names of the running relays, as ``host:process``."""
    return [one.name.removeprefix(_PREFIX) for one in permits if one.name.startswith(_PREFIX)]
