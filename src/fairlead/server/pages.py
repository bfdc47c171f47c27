"""/health for whoever balances the load, /metrics for Prometheus: plain pages beside the door."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from fairlead.errors import DatabaseError
from fairlead.server.metrics import Snapshot, render
from fairlead.server.sqs.wire import Response
from fairlead.worker.prometheus import CONTENT_TYPE

log = logging.getLogger("fairlead.server")
PATIENCE = 2.0  # seconds that a database has to answer
FRESH = 1.0  # seconds that its answer is good for: health costs nothing, however often it is asked
HEALTH, METRICS = b"/health", b"/metrics"
_VIA = (b"forwarded", b"x-forwarded-for", b"via")  # what a proxy on this machine adds


class Pages:
    def __init__(
        self,
        ask: Callable[[], Awaitable[Any]],
        snapshots: Callable[[], Sequence[Snapshot]],
        *,
        metrics_open: bool = False,
    ) -> None:
        """``ask`` asks the database something small."""
        self._ask = ask
        self._snapshots = snapshots
        self._metrics_open = metrics_open
        self._asking: asyncio.Task[bool] | None = None
        self._known = (False, float("-inf"))  # whether it answered, and until when that is fresh

    async def answer(
        self, path: bytes, headers: Mapping[bytes, bytes], client: str | None
    ) -> Response:
        if path == HEALTH:
            healthy = await self._healthy()
            text = json.dumps({"healthy": healthy}) + "\n"
            return _response(200 if healthy else 503, text, "application/json")
        if self._metrics_open or _local(headers, client):
            return _response(200, render(self._snapshots()), CONTENT_TYPE)
        text = "metrics are shown to this machine only: start the server with --metrics-open\n"
        return _response(403, text, "text/plain; charset=utf-8")

    async def _healthy(self) -> bool:
        """Everybody who asks while the database is being asked waits for that one question; it is
        never cancelled, since a driver may need long to notice, and then it would be two."""
        healthy, until = self._known
        if time.monotonic() < until:
            return healthy
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._look())
        done, _ = await asyncio.wait({self._asking}, timeout=PATIENCE)
        return bool(done) and done.pop().result()

    async def _look(self) -> bool:
        try:
            await self._ask()
            healthy = True
        except DatabaseError as error:
            log.warning("health: %s", error)
            healthy = False
        finally:
            self._asking = None
        self._known = healthy, time.monotonic() + FRESH
        return healthy

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)


def _local(headers: Mapping[bytes, bytes], client: str | None) -> bool:
    """Does it come from this machine, and not through a proxy that runs here?"""
    if client is None or any(name in headers for name in _VIA):
        return False
    try:
        return ip_address(client).is_loopback
    except ValueError:
        return False


def _response(status: int, text: str, kind: str) -> Response:
    return Response(status, [("content-type", kind), ("cache-control", "no-store")], text.encode())
