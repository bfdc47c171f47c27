"""uvicorn's HTTP protocol, with limits on clients before the application sees a request.

uvicorn waits for headers without a limit of time or size. Here headers have a time limit from their
first byte (408) and a size limit (431), connections above the limit are refused (503), and a client
that does not read its answers is disconnected. The application limits the body; what surrounds it
(chunk sizes, trailers) is limited here. Trailers are dropped: they are not signed, and must not be
taken for headers.

A request whose headers come in one read, as nearly all do, costs no timer. An answer is sent in one
write, headers and body, where uvicorn would use two.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from fairturn.server.http.bounds import Bounds

log = logging.getLogger("fairturn.server")
_WRAPPING = 64 * 1024  # bytes of chunk sizes and trailers, in addition to the body


class _JoiningTransport:
    """A transport that holds back an answer's headers until its body comes."""

    __slots__ = ("_head", "_started", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._started = False
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        elif self._started or data.startswith(b"HTTP/1.1 100"):
            self._transport.write(data)
        else:
            self._started = True
            self._head = data

    def close(self) -> None:
        if self._head:
            self.write(b"")
        self._transport.close()


class HttpProtocol(HttpToolsProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        bounds: Bounds,
        count: Callable[[int], None],
    ) -> None:
        """``count`` gets the status of each refusal that never becomes a request."""
        super().__init__(config, server_state, {}, asyncio.get_running_loop())
        self._bounds = bounds
        self._count = count
        self._in_head = True  # False: in a body, or while a request is answered
        self._in_body = False
        self._refused = False
        self._raw = 0  # bytes since the start of the headers or the body, counted by whole reads
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # --- connections ---------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._bounds.connections:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._write_timer is not None:
            self._write_timer.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        # close() would wait until the client reads the rest, perhaps for ever.
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(
                self._bounds.body_seconds, self.transport.abort
            )

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # --- requests ------------------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._raw += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_body:
            if self._raw > 2 * self._bounds.body_bytes + _WRAPPING:
                self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        elif self._in_head:
            if self._raw > self._bounds.header_bytes:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            elif self._head_timer is None and self._idle():
                self._wait_for_head()

    def on_headers_complete(self) -> None:
        if self._refused:
            return
        self._stop_waiting()
        self._in_head, self._in_body = False, True
        if self._raw > self._bounds.header_bytes:
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > self._bounds.header_bytes:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return
        self._raw = 0
        super().on_headers_complete()
        self.headers = []  # from now on only trailers come
        if self.scope["method"] != "HEAD":  # HEAD has no body to wait for
            joining: Any = _JoiningTransport(self.transport)
            self.cycle.transport = joining

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._in_body = True, False
        self._raw = 0
        if not self._refused:
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Answer requests for an upgrade in HTTP, without a warning."""

    # --- bounds --------------------------------------------------------------------------------
    def _idle(self) -> bool:
        """Whether no request is being answered. The headers of the next request must not interrupt
        an answer."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(self._bounds.header_seconds, self._slow_head)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _slow_head(self) -> None:
        self._head_timer = None
        if self._raw:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()  # no request has started: there is nothing to answer

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer before there is a complete request, and close the connection."""
        self._stop_waiting()
        self._refused = True
        self._count_refusal(status)
        if self._idle():
            lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
            lines += [name + b": " + value for name, value in self.server_state.default_headers]
            lines += [b"content-length: 0", b"connection: close", b"", b""]
            self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._count_refusal(HTTPStatus.BAD_REQUEST)
        super().send_400_response(msg)

    def _count_refusal(self, status: HTTPStatus) -> None:
        """Count it, and log it for debugging only: a port scanner causes many of them."""
        self._count(status.value)
        log.debug("%s was refused: %d %s", self.client, status.value, status.phrase)
