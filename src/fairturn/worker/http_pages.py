"""A worker's own small HTTP server: /metrics for Prometheus, /health and /ready for Kubernetes.

It answers GET and HEAD, one request per connection, and supports nothing else of HTTP. Requests are
limited in size and time, so that a port scanner or a slow client costs one short-lived task.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from fairturn.observe.prometheus import CONTENT_TYPE
from fairturn.observe.worker_metrics import Snapshot
from fairturn.worker import metrics_page

__all__ = ["serve"]

log = logging.getLogger("fairturn.worker")
LOCAL = "127.0.0.1"
HEAD_BYTES = 16 * 1024  # limit of a request line with its headers
SECONDS = 5.0  # for a client to send its request, and again to read the answer
LINGER = 1.0  # seconds in which further bytes of a client are discarded (see _discard)
CONNECTIONS = 100  # open at the same time; further ones are closed
PATHS = ("/metrics", "/health", "/ready")

Snapshots = Callable[[], Sequence[Snapshot]]
Ready = Callable[[], tuple[bool, str]]


class Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    kind: str = "application/json"


@contextlib.asynccontextmanager
async def serve(
    host: str | None, port: int, snapshots: Snapshots, ready: Ready
) -> AsyncGenerator[int]:
    """Serve while the block runs: ``async with serve(…) as port:``. Port 0 takes a free port.
    Without a host only this machine can connect; in a cluster use "0.0.0.0" or "::"."""
    connections = _Connections(snapshots, ready)
    connected = connections.connected
    server = await asyncio.start_server(connected, host or LOCAL, port, limit=HEAD_BYTES)
    try:
        _, port, *_ = server.sockets[0].getsockname()
        yield port
    finally:
        server.close()
        await connections.close()
        await server.wait_closed()


class _Connections:
    def __init__(self, snapshots: Snapshots, ready: Ready) -> None:
        self._snapshots = snapshots
        self._ready = ready
        self._open: set[asyncio.Task[None]] = set()

    # Not a coroutine function: on Python 3.11 asyncio logs its cancellation as an error.
    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._handle(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def close(self) -> None:
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # drain() then waits until all is sent
        try:
            head = b""
            try:
                async with asyncio.timeout(SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                answer = _error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            except TimeoutError:
                answer = _error(HTTPStatus.REQUEST_TIMEOUT)
            except asyncio.IncompleteReadError as broken:
                if not broken.partial:
                    return  # the client only checked whether the port is open
                answer = _error(HTTPStatus.BAD_REQUEST)
            else:
                answer = self.answer(head)
            writer.write(_response(answer, with_body=not head.startswith(b"HEAD ")))
            async with asyncio.timeout(SECONDS):
                await writer.drain()
                writer.write_eof()
                await _discard(reader)
        except (OSError, TimeoutError) as error:
            log.debug("a client of the metrics port went away: %s", error)
        finally:
            writer.transport.abort()  # all is sent: do not wait for the client to close

    def answer(self, head: bytes) -> Answer:
        """Return the answer to a request, given its request line and headers."""
        try:
            method, target, version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
            path = urlsplit(target).path
        except ValueError:
            return _error(HTTPStatus.BAD_REQUEST)
        if not version.startswith("HTTP/1."):
            return _error(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        if method not in ("GET", "HEAD"):
            return _error(HTTPStatus.METHOD_NOT_ALLOWED)
        if path not in PATHS:
            return _error(HTTPStatus.NOT_FOUND, f"the pages are {', '.join(PATHS)}")
        try:
            return self._page(path)
        except Exception:
            log.exception("%s could not be answered", path)
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "see the worker's log")

    def _page(self, path: str) -> Answer:
        if path == "/metrics":
            text = metrics_page.render(self._snapshots())
            return Answer(HTTPStatus.OK, text.encode(), CONTENT_TYPE)
        if path == "/health":
            return _json(HTTPStatus.OK, {"alive": True})  # the event loop runs: that is the check
        ready, reason = self._ready()
        if ready:
            return _json(HTTPStatus.OK, {"ready": True})
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"ready": False, "reason": reason})


def _json(status: HTTPStatus, value: object) -> Answer:
    return Answer(status, json.dumps(value).encode() + b"\n")


def _error(status: HTTPStatus, hint: str = "") -> Answer:
    return _json(status, {"error": hint or status.phrase})


def _response(answer: Answer, *, with_body: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.kind}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    return head + answer.body if with_body else head


async def _discard(reader: asyncio.StreamReader) -> None:
    """Read and discard further bytes of the client. Closing a socket with unread bytes resets the
    connection, and the client may then never see the answer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER):
            while await reader.read(HEAD_BYTES):
                pass
