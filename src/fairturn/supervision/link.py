"""The link between a process and its supervisor: one socket with lines of text.

The process sends JSON: ``{"hello": …}`` when it has loaded the app, ``{"hopeless": true}`` when
starting it again would not help, and ``{"snapshot": …}`` each second. The supervisor sends ``stop``
and ``abort``, and may send facts as JSON. When the supervisor closes the socket it has ended: the
process stops, since nothing would stop or replace it later.
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

log = logging.getLogger("fairturn.worker")
VARIABLE = "FAIRTURN_SUPERVISOR"  # the socket's number, and "piped" if the output is a pipe
REPORT = 1.0  # seconds between two reports
CHECK = 0.1  # seconds after which a change of readiness is reported
LINE = 1 << 24  # bytes of one line, at most
OnFacts = Callable[[dict[str, Any]], None]


class Running(Protocol):
    """A program that can be supervised: a worker or a server."""

    @property
    def ready(self) -> bool: ...
    async def run(self) -> None: ...
    def stop(self) -> None: ...
    def abort(self) -> None: ...
    def snapshot(self) -> dict[str, Any]: ...


class Link:
    """The process's end of the link."""

    def __init__(self, connection: socket.socket, piped: bool) -> None:
        self._socket = connection
        self._piped = piped

    @classmethod
    def from_environment(cls) -> Link | None:
        """Return the link with which this process was started; None without a supervisor."""
        value = os.environ.pop(VARIABLE, None)  # programs that we start must not inherit it
        if value is None:
            return None
        number, _, piped = value.partition(",")
        connection = socket.socket(fileno=int(number))
        connection.set_inheritable(False)
        return cls(connection, piped == "piped")

    def tell(self, **facts: Any) -> None:
        """Send one line. Only before ``run``."""
        with contextlib.suppress(OSError):  # the supervisor has ended; run() notices that
            self._socket.sendall(json.dumps(facts).encode() + b"\n")

    async def run(self, worker: Running, on_facts: OnFacts | None = None) -> None:
        """Run a worker, send its reports, and obey the supervisor."""
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection(sock=self._socket, limit=LINE)
        for number in (signal.SIGTERM, signal.SIGINT):
            # A second signal does not abort: systemd signals all processes, so that we are asked to
            # stop twice, the second time by our supervisor.
            loop.add_signal_handler(number, worker.stop)
        sides = [
            asyncio.create_task(self._obey(reader, worker, on_facts)),
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
        self, reader: asyncio.StreamReader, worker: Running, on_facts: OnFacts | None
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                if on_facts is not None and line.startswith(b"{"):
                    on_facts(json.loads(line))
                else:
                    (worker.abort if line.strip() == b"abort" else worker.stop)()
        if self._piped:
            # The pipe has no reader any more: a handler's print() must not fail for that.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
        log.warning("the supervisor has ended: stopping")
        worker.stop()

    async def _report(self, writer: asyncio.StreamWriter, worker: Running) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(_line(worker))
                await writer.drain()
                # Report a change of readiness early: other processes wait for it.
                ready = worker.ready
                for _ in range(round(REPORT / CHECK)):
                    await asyncio.sleep(CHECK)
                    if worker.ready is not ready:
                        break


def _line(worker: Running) -> bytes:
    return json.dumps({"snapshot": worker.snapshot()}).encode() + b"\n"
