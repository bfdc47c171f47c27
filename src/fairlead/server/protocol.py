"""uvicorn's HTTP protocol, with bounds on what a client may do before the application is asked.

uvicorn waits for headers without end and takes them however long they are. Here the headers have a
time from their first byte on (408) and a size (431), a connection too many is turned away (503),
and a client that does not read its answers is dropped. The body's bounds are the application's;
what is around it (chunk sizes, trailers) is bounded here. Trailers are dropped: nobody signs them,
and they must not look like headers.

A request whose headers come in one piece, as nearly all do, costs no timer; and an answer leaves in
one piece, headers and body, where uvicorn would send two.
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

from fairlead.server.bounds import Bounds

log = logging.getLogger("fairlead.server")
_WRAPPING = 64 * 1024  # bytes of chunk sizes and trailers, beside a body's own


class _Whole:
    """A transport, as an answer sees it, that keeps the headers until the body comes."""

    __slots__ = ("_begun", "_head", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._begun = False
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        elif self._begun or data.startswith(b"HTTP/1.1 100"):
            self._transport.write(data)
        else:
            self._begun = True
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
        """``count`` is told the status of what never becomes a request."""
        super().__init__(config, server_state, {}, asyncio.get_running_loop())
        self._bounds = bounds
        self._count = count
        self._in_head = True  # else: in a body, or a request is being answered
        self._in_body = False
        self._refused = False
        self._raw = 0  # bytes since the headers, or the body, began; about, for whole reads
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
        # A close would wait for ever until what it does not read is sent.
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
        self.headers = []  # whatever comes now is a trailer
        if self.scope["method"] != "HEAD":  # which has no body to wait for
            whole: Any = _Whole(self.transport)
            self.cycle.transport = whole

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._in_body = True, False
        self._raw = 0
        if not self._refused:
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Whoever would like to speak another protocol is answered in this one."""

    # --- bounds --------------------------------------------------------------------------------
    def _idle(self) -> bool:
        """Is no request being answered? An answer must not be cut by the next one's headers."""
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
            self.transport.close()  # it never began: nothing to answer

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer before there is a request to answer, and close."""
        self._stop_waiting()
        self._refused = True
        self._tell(status)
        if self._idle():
            lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
            lines += [name + b": " + value for name, value in self.server_state.default_headers]
            lines += [b"content-length: 0", b"connection: close", b"", b""]
            self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._tell(HTTPStatus.BAD_REQUEST)
        super().send_400_response(msg)

    def _tell(self, status: HTTPStatus) -> None:
        """A number, and a line only for who looks closely: whoever scans ports makes many."""
        self._count(status.value)
        log.debug("%s was refused: %d %s", self.client, status.value, status.phrase)
