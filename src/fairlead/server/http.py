"""The SQS door as an ASGI application: HTTP in, an Ask to the service, bytes out.

There is one route, so there is no framework. A request goes through these gates, cheapest first:
its length, its body (within a time), its signature, the wire's parser, the key's permissions. What
is refused is refused in the protocol it came in. Nothing that somebody sends gives a 500: that is
what our own mistakes become, with a request id and a traceback in the log.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from fairlead.errors import DatabaseError, FairleadError
from fairlead.server.access import AccessLog, Visit
from fairlead.server.bounds import Bounds
from fairlead.server.callers import Callers, Who
from fairlead.server.metrics import Metrics
from fairlead.server.pages import HEALTH, METRICS, Pages
from fairlead.server.refusals import Refusal, Refused, denied, shown
from fairlead.server.sigv4 import SignedRequest
from fairlead.server.sqs import checks, errors, wire
from fairlead.server.sqs.asking import Ask
from fairlead.server.sqs.errors import Kind, SqsError
from fairlead.server.watching import Receive, Watch
from fairlead.worker.logs import say

log = logging.getLogger("fairlead.server")
GONE = 499  # the status of a request whose client did not wait, in the log only
DISCARD = 16 * 1024 * 1024  # bytes that a client may still send to read that it sent too many
SLOW = Kind(
    "RequestTimeoutException",
    "RequestTimeout",
    408,
    usual="The request's body did not arrive in time.",
    namespace="com.amazon.coral.service#",
)
_UNREAD = (408, 413)  # the rest of the body is still to come: nothing else can be read
_HOST = re.compile(rb"[A-Za-z0-9._-]{1,255}(:[0-9]{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:[0-9]{1,5})?")

Scope = Mapping[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Answers(Protocol):
    """What is behind the door: the service."""

    async def answer(self, ask: Ask) -> Mapping[str, Any] | None: ...


class _Gone(Exception):
    """The client has closed its connection."""


class Door:
    def __init__(
        self,
        sqs: Answers,
        callers: Callers,
        pages: Pages,
        metrics: Metrics,
        bounds: Bounds,
        *,
        url: str | None = None,
        access_log: AccessLog | None = None,
    ) -> None:
        """``url``: how clients call us, where that is not the Host header and our own scheme."""
        self._sqs = sqs
        self._callers = callers
        self._pages = pages
        self._metrics = metrics
        self._bounds = bounds
        self._url = url
        self._access_log = access_log
        self.leaving = False  # then every answer is the last on its connection, and says so
        self._away = False  # is the database? Said once, not by every request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        visit = Visit(scope["method"], str(uuid.uuid4()))
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        if path in (HEALTH, METRICS) and visit.method in ("GET", "HEAD"):
            visit.action = path.decode()
            client = scope["client"][0] if scope.get("client") else None
            response = await self._pages.answer(path, dict(scope["headers"]), client)
        else:
            response = await self._respond(scope, path, receive, visit)
        if response is None:
            visit.status = GONE
        else:
            await self._send(send, receive, response, visit)
        seconds = time.perf_counter() - began
        self._metrics.count(visit.action, visit.status, seconds)
        if self._access_log is not None:
            self._access_log.add(visit, seconds)

    async def _send(
        self, send: Send, receive: Receive, response: wire.Response, visit: Visit
    ) -> None:
        visit.status, visit.given = response.status, len(response.body)
        headers = [(name.lower().encode(), value.encode()) for name, value in response.headers]
        headers.append((b"content-length", b"%d" % len(response.body)))
        unread = response.status in _UNREAD
        if unread or self.leaving:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body, "more_body": unread})
        if unread:
            await _discard(receive)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    # --- one request ---------------------------------------------------------------------------
    async def _respond(
        self, scope: Scope, path: bytes, receive: Receive, visit: Visit
    ) -> wire.Response | None:
        """The answer to a request, whatever happens; None: nobody is there to read it."""
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(pairs)
        refusal: SqsError | Refusal
        try:
            body = await self._body(headers, receive)
            visit.taken = len(body)
            query: bytes = scope["query_string"]
            signed = SignedRequest(visit.method, path, query, pairs, body)
            who = self._callers.who(signed, headers)
            if isinstance(who, Refusal):
                visit.key = self._callers.claimed(headers)
                raise Refused(who)
            visit.key = who.key or "-"
            request = wire.parse(visit.method, path, query, pairs, body)
            visit.action = request.action
            ask = self._ask(scope, headers, request, who, visit)
            result = await self._answer(ask, receive)
            response = wire.render(request, result, visit.request_id)
            if self._away:
                self._away = False
                log.info("the database answers again")
            return response
        except SqsError as error:
            refusal = error
        except Refused as error:
            refusal = error.refusal
        except _Gone:
            return None
        except DatabaseError as error:
            self._tell_away(error)
            refusal = errors.SERVICE_UNAVAILABLE()
        except asyncio.CancelledError:
            # The server leaves and has waited long enough: the client may ask another one.
            refusal = errors.SERVICE_UNAVAILABLE("The server is being stopped. Please try again.")
        except Exception as error:
            _tell_mistake(visit, error)
            refusal = errors.INTERNAL_FAILURE()
        visit.error = refusal.code
        return wire.render_error(wire.protocol_of(pairs), refusal, visit.request_id)

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
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
            raise SLOW() from None

    def _ask(
        self,
        scope: Scope,
        headers: Mapping[bytes, bytes],
        request: wire.Request,
        who: Who,
        visit: Visit,
    ) -> Ask:
        """What is asked, by somebody who may: existing or not, a queue is refused alike."""
        members = request.members
        url: str | None = members.get("QueueUrl")
        queue: str | None = checks.queue_of(url) if url else members.get("QueueName")
        if queue:
            visit.queue = shown(queue)
        if not who.allows(request.action, queue or None):
            raise Refused(denied(url or queue or request.action))
        return Ask(
            action=request.action,
            input=members,
            base_url=self._url or _base_url(scope, headers),
            account=who.account,
            region=who.region,
            sender=who.sender,
            trace=request.trace,
            allows=who.allows,
        )

    async def _answer(self, ask: Ask, receive: Receive) -> Mapping[str, Any] | None:
        if ask.action != "ReceiveMessage":
            return await self._sqs.answer(ask)
        watch = Watch(receive)
        self._metrics.polls += 1
        try:
            return await self._sqs.answer(ask)
        except asyncio.CancelledError:
            if watch.gone:
                watch.forgive()
                raise _Gone from None
            raise
        finally:
            self._metrics.polls -= 1
            watch.end()

    def _tell_away(self, error: DatabaseError) -> None:
        if not self._away:
            self._away = True
            log.warning("requests get 503 until the database is back: %s", error)


def _base_url(scope: Scope, headers: Mapping[bytes, bytes]) -> str:
    host = headers.get(b"host", b"")
    if _HOST.fullmatch(host):
        return f"{scope['scheme']}://{host.decode()}"
    if host:
        raise errors.MALFORMED_INPUT("The Host header is not the name of a host.")
    name, port = scope["server"]  # HTTP/1.0 may leave it out
    return f"{scope['scheme']}://{f'[{name}]' if ':' in name else name}:{port}"


async def _discard(receive: Receive) -> None:
    """Let a client finish its sentence. Closed in the middle of it, many never read the answer."""
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


def _tell_mistake(visit: Visit, error: Exception) -> None:
    """A traceback without values: a driver's text may quote the row, and so somebody's message."""
    lines: list[str] = []
    known: BaseException | None = error
    while known is not None:
        lines += traceback.format_tb(known.__traceback__)
        text = f": {known}" if isinstance(known, FairleadError) else ""
        lines.append(f"{type(known).__module__}.{type(known).__qualname__}{text}\n")
        known = known.__cause__ or (None if known.__suppress_context__ else known.__context__)
    text = f"{visit.action} failed: a mistake of the server (request id {visit.request_id})"
    extra = {"action": visit.action, "request_id": visit.request_id}
    say(log, logging.ERROR, text, extra, "".join(lines))
