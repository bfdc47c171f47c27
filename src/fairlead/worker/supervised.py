"""The line from a process to its supervisor: one socket, JSON lines up, words down.

Up: ``{"hello": …}`` when the app is loaded, ``{"hopeless": true}`` when starting again would not
help, and ``{"snapshot": …}`` each second. Down: ``stop`` and ``abort``. When the socket ends, the
supervisor is gone, and nobody would ever stop or replace us: we stop. Those who listen for it are
also told facts, a JSON object a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, Protocol

log = logging.getLogger("fairlead.worker")
VARIABLE = "FAIRLEAD_SUPERVISOR"  # the socket's number, and "piped" if it also reads our output
REPORT = 1.0  # seconds between two reports
EAGER = 0.1  # and until it is ready
LINE = 1 << 24  # bytes of one line
Heard = Callable[[dict[str, Any]], None]


class Running(Protocol):
    """What can be supervised: a worker, a server."""

    @property
    def ready(self) -> bool: ...
    async def run(self) -> None: ...
    def stop(self) -> None: ...
    def abort(self) -> None: ...
    def snapshot(self) -> dict[str, Any]: ...


class Link:
    """A worker process's end."""

    def __init__(self, connection: socket.socket, piped: bool) -> None:
        self._socket = connection
        self._piped = piped

    @classmethod
    def from_environment(cls) -> Link | None:
        """The line that we were started with; None: nobody supervises us."""
        told = os.environ.pop(VARIABLE, None)  # it is ours alone, not for programs that we start
        if told is None:
            return None
        number, _, piped = told.partition(",")
        connection = socket.socket(fileno=int(number))
        connection.set_inheritable(False)
        return cls(connection, piped == "piped")

    def tell(self, **facts: Any) -> None:
        """One line, before ``run``."""
        with contextlib.suppress(OSError):  # it has gone; run() finds that out
            self._socket.sendall(json.dumps(facts).encode() + b"\n")

    async def run(self, worker: Running, heard: Heard | None = None) -> None:
        """Run a worker, report, and obey."""
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection(sock=self._socket, limit=LINE)
        for number in (signal.SIGTERM, signal.SIGINT):
            # Never more than a stop: whoever signals all processes at once, as systemd does,
            # reaches us twice, through our supervisor, too.
            loop.add_signal_handler(number, worker.stop)
        sides = [
            asyncio.create_task(self._obey(reader, worker, heard)),
            asyncio.create_task(self._report(writer, worker)),
        ]
        try:
            await worker.run()
        finally:
            for side in sides:
                side.cancel()
            await asyncio.gather(*sides, return_exceptions=True)
            with contextlib.suppress(OSError):
                writer.write(_line(worker))
                await writer.drain()
            writer.close()

    async def _obey(
        self, reader: asyncio.StreamReader, worker: Running, heard: Heard | None
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                if heard is not None and line.startswith(b"{"):
                    heard(json.loads(line))
                else:
                    (worker.abort if line.strip() == b"abort" else worker.stop)()
        if self._piped:
            # Nobody reads what we print: a handler's print() must not fail for that.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        log.warning("the supervisor is gone: stopping")
        worker.stop()

    async def _report(self, writer: asyncio.StreamWriter, worker: Running) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(_line(worker))
                await writer.drain()
                # That it is ready is told soon: others wait for it.
                ready = worker.ready
                for _ in range(round(REPORT / EAGER)):
                    await asyncio.sleep(EAGER)
                    if worker.ready is not ready:
                        break


def _line(worker: Running) -> bytes:
    return json.dumps({"snapshot": worker.snapshot()}).encode() + b"\n"
