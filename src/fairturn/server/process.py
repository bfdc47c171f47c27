"""One server process: the database, the service, uvicorn, and a graceful shutdown.

The shutdown: no new connections are accepted, and each open one gets its last answer. Open polls
get an empty answer immediately. Requests have the grace time to finish; then they get a 503. The
database is closed last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import uvicorn

from fairturn.aio.database import AsyncDatabase
from fairturn.core.errors import InvalidArgument
from fairturn.server import declared_queues, listen_sockets
from fairturn.server.auth.callers import Callers
from fairturn.server.config import Settings
from fairturn.server.http.access_log import AccessLog
from fairturn.server.http.bounds import Bounds
from fairturn.server.http.door import Door
from fairturn.server.http.metrics import Metrics, Snapshot
from fairturn.server.http.pages import Pages
from fairturn.server.http.protocol import HttpProtocol
from fairturn.server.sqs.request import Options, Service

log = logging.getLogger("fairturn.server")
CHECK = 0.02  # seconds between two checks whether all requests are answered
LAST = 1.0  # seconds for clients to read the last answers
FILES = 256  # open files that a process needs in addition to its connections


class Serving:
    """The server of one process, with or without a supervisor."""

    def __init__(
        self,
        settings: Settings,
        db: AsyncDatabase,
        sockets: Sequence[socket.socket],
        service: Callable[[AsyncDatabase, Options], Service],
        *,
        declare: bool = True,
    ) -> None:
        self._settings = settings
        self._db = db
        self._declare = declare
        self._sockets = sockets
        self._sqs = service(db, settings.options)
        self._others: list[Snapshot] = []  # of our supervisor's other processes
        self._metrics = Metrics(lambda: len(self._server.server_state.connections))
        self._access_log = AccessLog()
        self._pages = Pages(db.clock, self._snapshots, metrics_open=settings.metrics_open)
        self._door = Door(
            self._sqs,
            Callers(settings.keys, settings.options),
            self._pages,
            self._metrics,
            settings.bounds,
            url=settings.url,
            access_log=self._access_log if settings.access_log else None,
        )
        self._server = _Server(
            _config(settings, self._door), settings, sockets, self._close_service, self._refused
        )

    # --- for the supervisor --------------------------------------------------------------------
    @property
    def ready(self) -> bool:
        return self._server.started and not self._server.should_exit

    def snapshot(self) -> dict[str, Any]:
        reason = "" if self.ready else "it is starting or stopping"
        return {**self._metrics.snapshot(), "name": "sqs", "ready": self.ready, "reason": reason}

    def heard(self, facts: dict[str, Any]) -> None:
        """Take the other processes' snapshots from the supervisor."""
        self._others = facts["others"]

    def _snapshots(self) -> list[Snapshot]:
        return [self.snapshot(), *self._others]

    # --- running -------------------------------------------------------------------------------
    async def prepare(self) -> None:
        """Connect and declare the queues: errors of the database or the configuration come here."""
        await self._db.queues()
        await self._sqs.start()
        if self._declare:
            await declared_queues.declare(self._sqs, self._settings.options, self._settings.queues)

    async def run(self) -> None:
        """Serve until ``stop``."""
        allow_files(self._settings.connections + FILES)
        await self._server.startup()
        await self._server.main_loop()
        await self._server.shutdown()
        self._access_log.write()

    def stop(self) -> None:
        self._server.should_exit = True

    def abort(self) -> None:
        """Stop immediately, without answers to open requests."""
        self._server.should_exit = self._server.force_exit = True

    def _refused(self, status: int) -> None:
        self._metrics.count("-", status, 0.0)

    async def _close_service(self) -> None:
        self._door.shutting_down = True
        await self._sqs.close()

    @property
    def aborted(self) -> bool:
        return self._server.force_exit

    @property
    def cut(self) -> int:
        """How many requests could not be finished."""
        return self._server.cut

    async def close(self) -> None:
        await self._sqs.close()
        await self._pages.close()
        await self._db.close()

    async def run_until_signalled(self) -> None:
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            if self._server.should_exit:
                self.abort()
            else:
                log.info("stopping; a second signal stops immediately")
                self.stop()

        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, on_signal)
        try:
            await self.run()
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


def _config(settings: Settings, door: Door) -> uvicorn.Config:
    app: Any = door
    config = uvicorn.Config(
        app,
        http=HttpProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",  # our protocol counts refused requests itself
        access_log=False,
        # A client's address decides over access to /metrics: no header may change it.
        proxy_headers=False,
        server_header=False,
        date_header=True,
        timeout_keep_alive=settings.keep_alive,  # type: ignore[arg-type]  # a fraction is fine
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or getattr(error, "reason", None) or error
        raise InvalidArgument(
            f"tls_cert {settings.tls_cert} and tls_key {settings.tls_key} cannot be used: {why}"
        ) from None
    return config


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        settings: Settings,
        sockets: Sequence[socket.socket],
        close_service: Callable[[], Awaitable[None]],
        refused: Callable[[int], None],
    ) -> None:
        super().__init__(config)
        self.cut = 0
        self._bounds: Bounds = settings.bounds
        self._grace = settings.grace
        self._sockets = sockets
        self._close_service = close_service
        self._refused = refused

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.on_tick(0)  # the Date header, before the first request
        loop = asyncio.get_running_loop()
        secured = self.config.ssl
        self.servers = [
            await loop.create_server(
                lambda: HttpProtocol(self.config, self.server_state, self._bounds, self._refused),
                sock=one,
                ssl=secured,
                backlog=listen_sockets.BACKLOG,
                ssl_handshake_timeout=self._bounds.header_seconds if secured else None,
            )
            for one in self._sockets
        ]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        listen_sockets.close(self._sockets)
        # Before the polls are answered: so each answer has "connection: close", and no client sends
        # its next request on a connection that is about to be closed.
        for connection in list(self.server_state.connections):
            connection.shutdown()
        closing = asyncio.ensure_future(self._close_service())
        await self._until(lambda: closing.done() and not self.server_state.tasks, self._grace)
        await self._cut()
        if not closing.done():
            closing.cancel()
        [outcome] = await asyncio.gather(closing, return_exceptions=True)
        if isinstance(outcome, Exception):
            log.error("closing the service failed", exc_info=outcome)
        await self._until(lambda: not self.server_state.connections, LAST)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def _cut(self) -> None:
        tasks = list(self.server_state.tasks)
        if not tasks:
            return
        self.cut = len(tasks)
        log.warning("%d requests were not finished in time and are answered with 503", self.cut)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=LAST)

    async def _until(self, met: Callable[[], bool], seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        while not met() and clock() < end and not self.force_exit:
            await asyncio.sleep(CHECK)


def allow_files(count: int) -> None:
    """Raise the soft limit of open files, usually 1,024: each connection is an open file."""
    with contextlib.suppress(ImportError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def new_loop() -> asyncio.AbstractEventLoop:
    """Create an event loop, of uvloop if it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
