"""One serving process: the database, the service, uvicorn, and an orderly end.

How it ends: no new connections; those that are open get their last answer; open polls are answered
at once, empty; what is being done is finished within the grace time, and what is not by then gets
a 503. Only then is the database closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import uvicorn

from fairlead.aio.database import AsyncDatabase
from fairlead.errors import InvalidArgument
from fairlead.server import declaring, listening
from fairlead.server.access import AccessLog
from fairlead.server.bounds import Bounds
from fairlead.server.callers import Callers
from fairlead.server.config import Settings
from fairlead.server.http import Answers, Door
from fairlead.server.metrics import Metrics, Snapshot
from fairlead.server.pages import Pages
from fairlead.server.protocol import HttpProtocol
from fairlead.server.sqs.asking import Options

log = logging.getLogger("fairlead.server")
LOOK = 0.02  # seconds between two looks whether all is answered
LAST = 1.0  # seconds for the last answers to be read
FILES = 256  # open files that a process needs beside its connections


class Service(Answers, Protocol):
    """The SQS service, or what a test puts in its place."""

    async def start(self) -> None: ...
    async def close(self) -> None: ...


class Serving:
    """One process's server; a supervisor can run it, too."""

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
            _config(settings, self._door), settings, sockets, self._leave, self._refused
        )

    # --- as a supervisor sees it ---------------------------------------------------------------
    @property
    def ready(self) -> bool:
        return self._server.started and not self._server.should_exit

    def snapshot(self) -> dict[str, Any]:
        reason = "" if self.ready else "it is starting or stopping"
        return {**self._metrics.snapshot(), "name": "sqs", "ready": self.ready, "reason": reason}

    def heard(self, facts: dict[str, Any]) -> None:
        self._others = facts["others"]

    def _snapshots(self) -> list[Snapshot]:
        return [self.snapshot(), *self._others]

    # --- life ----------------------------------------------------------------------------------
    async def prepare(self) -> None:
        """Whatever can be wrong with the database or the configuration is found here."""
        await self._db.queues()
        await self._sqs.start()
        if self._declare:
            await declaring.declare(self._sqs, self._settings.options, self._settings.queues)

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
        """Leave at once: what is not answered yet never will be."""
        self._server.should_exit = self._server.force_exit = True

    def _refused(self, status: int) -> None:
        self._metrics.count("-", status, 0.0)

    async def _leave(self) -> None:
        self._door.leaving = True
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

        def told() -> None:
            if self._server.should_exit:
                self.abort()
            else:
                log.info("stopping; a second signal leaves at once")
                self.stop()

        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, told)
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
        log_level="error",  # the protocol counts what it refuses
        access_log=False,
        # Who a client is decides over /metrics: never what a header says.
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
        leaving: Callable[[], Awaitable[None]],
        refused: Callable[[int], None],
    ) -> None:
        super().__init__(config)
        self.cut = 0
        self._bounds: Bounds = settings.bounds
        self._grace = settings.grace
        self._sockets = sockets
        self._leaving = leaving
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
                backlog=listening.BACKLOG,
                ssl_handshake_timeout=self._bounds.header_seconds if secured else None,
            )
            for one in self._sockets
        ]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        listening.close(self._sockets)
        # Before the polls are answered: so each answer says that it is the last one here, and no
        # client sends its next request into a connection that is about to be closed.
        for connection in list(self.server_state.connections):
            connection.shutdown()
        leaving = asyncio.ensure_future(self._leaving())
        await self._until(lambda: leaving.done() and not self.server_state.tasks, self._grace)
        await self._cut()
        if not leaving.done():
            leaving.cancel()
        outcome = (await asyncio.gather(leaving, return_exceptions=True))[0]
        if isinstance(outcome, Exception):
            log.error("the service did not end well", exc_info=outcome)
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
            await asyncio.sleep(LOOK)


def allow_files(count: int) -> None:
    """A connection is an open file, and the usual soft limit is 1,024."""
    with contextlib.suppress(ImportError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it exists."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
