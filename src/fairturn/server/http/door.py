"""The SQS door as an ASGI application: HTTP in, a request to the service, bytes out.

There is one route, so there is no framework. A request passes these checks, the cheapest first: its
length, the time of its body, its signature, the wire's parser, the key's permissions. A refusal is
sent in the protocol of the request. No request causes a 500: only our own bugs do, with a request
id and a traceback in the log.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fairturn.core.errors import DatabaseError, FairturnError
from fairturn.observe.logs import log_with_trace
from fairturn.server.auth.callers import Callers
from fairturn.server.auth.sigv4 import SignedRequest
from fairturn.server.http.access_log import AccessLog, LogEntry
from fairturn.server.http.bounds import Bounds
from fairturn.server.http.client_watch import ClientWatch, Receive
from fairturn.server.http.metrics import Metrics
from fairturn.server.http.pages import HEALTH, METRICS, Pages
from fairturn.server.sqs.request import Service, SqsRequest
from fairturn.server.sqs.wire import protocols
from fairturn.sqs import checks, errors
from fairturn.sqs.characters import printable
from fairturn.sqs.errors import SqsError

log = logging.getLogger("fairturn.server")
GONE = 499  # the status of a request whose client disconnected, in the log only
DISCARD = 16 * 1024 * 1024  # bytes of a too large body that are read and discarded
_UNREAD = (408, 413)  # the rest of the body has not been read: the connection cannot be reused
_HOST = re.compile(rb"[A-Za-z0-9._-]{1,255}(:[0-9]{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:[0-9]{1,5})?")

Scope = Mapping[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class _Gone(Exception):
    """The client has closed its connection."""


class Door:
    def __init__(
        self,
        sqs: Service,
        callers: Callers,
        pages: Pages,
        metrics: Metrics,
        bounds: Bounds,
        *,
        url: str | None = None,
        access_log: AccessLog | None = None,
    ) -> None:
        """``url``: how clients reach us, if not by the Host header and our own scheme."""
        self._sqs = sqs
        self._callers = callers
        self._pages = pages
        self._metrics = metrics
        self._bounds = bounds
        self._url = url
        self._access_log = access_log
        self.shutting_down = False  # then every answer is the last on its connection
        self._outage = False  # the database is unreachable: logged once, not for every request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        entry = LogEntry(scope["method"], str(uuid.uuid4()))
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        if path in (HEALTH, METRICS) and entry.method in ("GET", "HEAD"):
            entry.action = path.decode()
            client, _ = scope.get("client") or (None, None)
            response = await self._pages.answer(path, dict(scope["headers"]), client)
        else:
            response = await self._respond(scope, path, receive, entry)
        if response is None:
            entry.status = GONE
        else:
            await self._send(send, receive, response, entry)
        seconds = time.perf_counter() - began
        self._metrics.count(entry.action, entry.status, seconds)
        if self._access_log is not None:
            self._access_log.add(entry, seconds)

    async def _send(
        self, send: Send, receive: Receive, response: protocols.Response, entry: LogEntry
    ) -> None:
        entry.status, entry.bytes_out = response.status, len(response.body)
        headers = [*response.headers, (b"content-length", b"%d" % len(response.body))]
        unread = response.status in _UNREAD
        if unread or self.shutting_down:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body, "more_body": unread})
        if unread:
            await _discard(receive)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    # --- one request ---------------------------------------------------------------------------
    async def _respond(
        self, scope: Scope, path: bytes, receive: Receive, entry: LogEntry
    ) -> protocols.Response | None:
        """Return the answer to a request, also if it fails; None if the client is gone."""
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        headers: protocols.Headers = dict(pairs)
        if len(headers) < len(pairs):
            headers = protocols.joined(pairs)
        try:
            response = await self._serve(scope, path, headers, receive, entry)
            if self._outage:
                self._outage = False
                log.info("the database answers again")
            return response
        except SqsError as error:
            refusal = error
        except _Gone:
            return None
        except DatabaseError as error:
            self._log_outage(error)
            refusal = errors.SERVICE_UNAVAILABLE()
        except asyncio.CancelledError:
            # The server stops and its grace time is over: the client may try another server.
            refusal = errors.SERVICE_UNAVAILABLE("The server is being stopped. Please try again.")
        except Exception as error:
            _log_bug(entry, error)
            refusal = errors.INTERNAL_FAILURE()
        entry.error = refusal.code
        return protocols.render_error(protocols.protocol_of(headers), refusal, entry.request_id)

    async def _serve(
        self,
        scope: Scope,
        path: bytes,
        headers: protocols.Headers,
        receive: Receive,
        entry: LogEntry,
    ) -> protocols.Response:
        """Check a request, the cheapest check first, and run its action."""
        body = await self._body(headers, receive)
        entry.bytes_in = len(body)
        query: bytes = scope["query_string"]
        signed = SignedRequest(entry.method, path, query, scope["headers"], body)
        try:
            caller = self._callers.identify(signed, headers)
        except SqsError:
            entry.key = self._callers.claimed(headers)
            raise
        entry.key = caller.key or "-"
        parsed = protocols.parse(entry.method, path, query, headers, body)
        entry.action = parsed.action
        url: str | None = parsed.members.get("QueueUrl")
        queue = parsed.members.get("QueueName", "") if url is None else checks.queue_of(url)
        entry.queue = printable(queue) or "-"
        # Before a lookup: a queue that does not exist and one that the caller may not use get the
        # same refusal.
        if not caller.allows(parsed.action, queue or None):
            raise errors.denied(url or queue or parsed.action)
        base_url = self._url or _base_url(scope, headers)
        request = SqsRequest(parsed.action, queue, parsed.members, base_url, caller, parsed.trace)
        answer = (
            self._poll(request, receive)
            if parsed.action == "ReceiveMessage"
            else self._sqs.answer(request)
        )
        return protocols.render(parsed, await answer, entry.request_id)

    async def _body(self, headers: protocols.Headers, receive: Receive) -> bytes:
        length = headers.get(b"content-length", b"")
        most = self._bounds.body_bytes
        if length.isdigit() and (len(length) > 18 or int(length) > most):
            raise errors.REQUEST_TOO_LARGE()
        body = bytearray()
        try:
            async with asyncio.timeout(self._bounds.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise errors.REQUEST_TOO_LARGE()
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise errors.REQUEST_TIMEOUT() from None

    async def _poll(self, request: SqsRequest, receive: Receive) -> Mapping[str, Any] | None:
        watch = ClientWatch(receive)
        self._metrics.polls += 1
        try:
            return await self._sqs.answer(request)
        except asyncio.CancelledError:
            if watch.gone:
                watch.uncancel()
                raise _Gone from None
            raise
        finally:
            self._metrics.polls -= 1
            watch.end()

    def _log_outage(self, error: DatabaseError) -> None:
        if not self._outage:
            self._outage = True
            log.warning("requests get a 503 until the database can be reached: %s", error)


def _base_url(scope: Scope, headers: protocols.Headers) -> str:
    host = headers.get(b"host", b"")
    if _HOST.fullmatch(host):
        return f"{scope['scheme']}://{host.decode()}"
    if host:
        raise errors.MALFORMED_INPUT("The Host header is not the name of a host.")
    name, port = scope["server"]  # HTTP/1.0 may leave out the header
    return f"{scope['scheme']}://{f'[{name}]' if ':' in name else name}:{port}"


async def _discard(receive: Receive) -> None:
    """Let a client finish sending. If the connection is closed before, many never read the
    answer."""
    left = DISCARD
    try:
        async with asyncio.timeout(1):
            while left > 0:
                message = await receive()
                if not message.get("more_body", False):
                    return
                left -= len(message.get("body", b""))
    except TimeoutError:
        return


def _log_bug(entry: LogEntry, error: Exception) -> None:
    """Log a traceback without values: a driver's text may quote a row, and so a user's message."""
    lines: list[str] = []
    known: BaseException | None = error
    while known is not None:
        lines += traceback.format_tb(known.__traceback__)
        text = f": {known}" if isinstance(known, FairturnError) else ""
        lines.append(f"{type(known).__module__}.{type(known).__qualname__}{text}\n")
        known = known.__cause__ or (None if known.__suppress_context__ else known.__context__)
    text = f"{entry.action} failed: a bug in the server (request id {entry.request_id})"
    extra = {"action": entry.action, "request_id": entry.request_id}
    log_with_trace(log, logging.ERROR, text, extra, "".join(lines))
