"""Plain pages beside the SQS door: /health for load balancers, /metrics for Prometheus."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from fairturn.core.errors import DatabaseError
from fairturn.observe.prometheus import CONTENT_TYPE
from fairturn.server.http.metrics import Snapshot, render
from fairturn.server.sqs.wire.protocols import Response

log = logging.getLogger("fairturn.server")
PATIENCE = 2.0  # seconds for the database to answer
FRESH = 1.0  # seconds for which the result is reused, however often /health is requested
HEALTH, METRICS = b"/health", b"/metrics"
_VIA = (b"forwarded", b"x-forwarded-for", b"via")  # headers that a proxy adds


class Pages:
    def __init__(
        self,
        query: Callable[[], Awaitable[Any]],
        snapshots: Callable[[], Sequence[Snapshot]],
        *,
        metrics_open: bool = False,
    ) -> None:
        """``query`` runs a cheap query, to check the database."""
        self._query = query
        self._snapshots = snapshots
        self._metrics_open = metrics_open
        self._check: asyncio.Task[bool] | None = None
        self._last = (False, float("-inf"))  # whether the database answered, until when it is fresh

    async def answer(
        self, path: bytes, headers: Mapping[bytes, bytes], client: str | None
    ) -> Response:
        if path == HEALTH:
            healthy = await self._healthy()
            text = json.dumps({"healthy": healthy}) + "\n"
            return _response(200 if healthy else 503, text, "application/json")
        if self._metrics_open or _local(headers, client):
            return _response(200, render(self._snapshots()), CONTENT_TYPE)
        text = "metrics are for this machine only, unless the server has --metrics-open\n"
        return _response(403, text, "text/plain; charset=utf-8")

    async def _healthy(self) -> bool:
        """Check the database. Concurrent requests share one check. It is never cancelled: a driver
        may need long to notice that, and a second check would start meanwhile."""
        healthy, until = self._last
        if time.monotonic() < until:
            return healthy
        if self._check is None:
            self._check = asyncio.get_running_loop().create_task(self._check_database())
        done, _ = await asyncio.wait({self._check}, timeout=PATIENCE)
        return bool(done) and done.pop().result()

    async def _check_database(self) -> bool:
        try:
            await self._query()
            healthy = True
        except DatabaseError as error:
            log.warning("health: %s", error)
            healthy = False
        finally:
            self._check = None
        self._last = healthy, time.monotonic() + FRESH
        return healthy

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            await asyncio.gather(self._check, return_exceptions=True)


def _local(headers: Mapping[bytes, bytes], client: str | None) -> bool:
    """Whether a request comes from this machine, and not through a proxy on it."""
    if client is None or any(name in headers for name in _VIA):
        return False
    try:
        return ip_address(client).is_loopback
    except ValueError:
        return False


def _response(status: int, text: str, kind: str) -> Response:
    headers = [(b"content-type", kind.encode()), (b"cache-control", b"no-store")]
    return Response(status, headers, text.encode())
