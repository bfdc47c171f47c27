"""A worker's own small HTTP server: /metrics for Prometheus, /health and /ready for Kubernetes.

It answers GET and HEAD, one request for each connection, and knows nothing else of HTTP. What comes
in is bounded in size and time, so that a port scanner or a slow client costs one short-lived task.
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

from fairlead.worker import prometheus
from fairlead.worker.health import Snapshot

log = logging.getLogger("fairlead.worker")
LOCAL = "127.0.0.1"
HEAD_BYTES = 16 * 1024  # of a request line with its headers
SECONDS = 5.0  # for a client to ask, and again to read its answer
LINGER = 1.0  # seconds in which what a client still sends is thrown away, so that it can read
CONNECTIONS = 100  # at once; more are turned away
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
    """Serve while the block runs: ``async with serve(…) as port:``. Port 0 takes a free one.
    Without a host only this machine can ask; "0.0.0.0" or "::" are for a cluster that has to."""
    serving = _Serving(snapshots, ready)
    server = await asyncio.start_server(serving.connected, host or LOCAL, port, limit=HEAD_BYTES)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await serving.close()
        await server.wait_closed()


class _Serving:
    def __init__(self, snapshots: Snapshots, ready: Ready) -> None:
        self._snapshots = snapshots
        self._ready = ready
        self._open: set[asyncio.Task[None]] = set()

    # A plain function: asyncio would log a cancelled coroutine as an error, on Python 3.11.
    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def close(self) -> None:
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # drained is then really sent
        try:
            head = b""
            try:
                async with asyncio.timeout(SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                answer = _mistake(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            except TimeoutError:
                answer = _mistake(HTTPStatus.REQUEST_TIMEOUT)
            except asyncio.IncompleteReadError as broken:
                if not broken.partial:
                    return  # it looked whether the port is open
                answer = _mistake(HTTPStatus.BAD_REQUEST)
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
            writer.transport.abort()  # all that was to be said is said: nobody waits for a close

    def answer(self, head: bytes) -> Answer:
        """To a request's head."""
        try:
            method, target, version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
            path = urlsplit(target).path
        except ValueError:
            return _mistake(HTTPStatus.BAD_REQUEST)
        if not version.startswith("HTTP/1."):
            return _mistake(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        if method not in ("GET", "HEAD"):
            return _mistake(HTTPStatus.METHOD_NOT_ALLOWED)
        if path not in PATHS:
            return _mistake(HTTPStatus.NOT_FOUND, f"there are {', '.join(PATHS)}")
        try:
            return self._look(path)
        except Exception:
            log.exception("%s could not be answered", path)
            return _mistake(HTTPStatus.INTERNAL_SERVER_ERROR, "the worker's log says why")

    def _look(self, path: str) -> Answer:
        if path == "/metrics":
            text = prometheus.render(self._snapshots())
            return Answer(HTTPStatus.OK, text.encode(), prometheus.CONTENT_TYPE)
        if path == "/health":
            return _json(HTTPStatus.OK, {"alive": True})  # this event loop has just answered
        ready, reason = self._ready()
        if ready:
            return _json(HTTPStatus.OK, {"ready": True})
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"ready": False, "reason": reason})


def _json(status: HTTPStatus, value: object) -> Answer:
    return Answer(status, json.dumps(value).encode() + b"\n")


def _mistake(status: HTTPStatus, hint: str = "") -> Answer:
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
    """Read to the end what nobody asked for. Closing a socket with unread bytes resets it, and the
    client may then never see its answer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER):
            while await reader.read(HEAD_BYTES):
                pass
