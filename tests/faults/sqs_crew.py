"""Real ``fairturn serve`` processes that may be killed and come back, and raw clients of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests import server_process, servers
from tests.server.serve_programs import Program, wait_for

KINDS = ["sqlite", "postgresql", "mysql"]
SECONDS = 60.0  # for anything to happen, on a busy machine
# What a client meets when its server is killed under it: a cut or refused connection, or the rest
# of an answer that never comes.
CUT = (ConnectionError, asyncio.IncompleteReadError)


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status, body[:500])
        self.is_late = b"The receipt handle has expired" in body


class Server:
    """One server on a port that stays the same: ``kill`` and ``start`` as often as you like."""

    def __init__(self, database: str, *words: str) -> None:
        self.database = database
        self.port = servers.free_port()
        self._words = ("--no-access-log", *words)
        self.starts = 0
        self.errors: list[str] = []
        self.program: Program

    def start(self) -> None:
        port = str(self.port)
        self.program = Program("serve", "--db", self.database, "--port", port, *self._words)
        self.starts += 1
        try:
            assert self.program.url
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self.program.process.pid

    def children(self) -> list[int]:
        """The serving processes of a fleet."""
        return server_process.descendants(self.pid)[1:]

    def kill(self) -> None:
        """All its processes at once, as the machine's end would."""
        for pid in server_process.descendants(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.program.kill()
        self.errors += [line for line in self.program.err.splitlines() if '"ERROR"' in line]

    def kill_one(self) -> None:
        """One process of a fleet; the supervisor replaces it."""
        old = self.children()
        os.kill(old[0], signal.SIGKILL)
        wait_for(lambda: old[0] not in self.children() and len(self.children()) == len(old))

    def metric(self, name: str) -> float:
        """A number of this server's /metrics."""

        async def ask() -> bytes:
            async with asyncio.timeout(SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                try:
                    return await reader.read()
                finally:
                    writer.close()

        lines = asyncio.run(ask()).decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        if error[0] is not None:
            print(f"--- the server's log\n{self.program.err[-5000:]}")
        assert not self.errors, self.errors


class Client:
    """One connection at a time to a server, in the JSON protocol; opened again when it was cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def url(self, queue: str) -> str:
        return f"http://127.0.0.1:{self._port}/000000000000/{queue}"

    async def ask(self, action: str, queue: str = "", /, **given: Any) -> dict[str, Any]:
        """The answer to a request. It is asked once: what was cut may have been done."""
        if queue:
            given["QueueUrl"] = self.url(queue)
        body = json.dumps(given).encode()
        head = (
            f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"X-Amz-Target: AmazonSQS.{action}\r\n"
            f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            async with asyncio.timeout(SECONDS):
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self._port)
                reader, writer = self._streams
                writer.write(head.encode() + body)
                status, answer = await _reply(reader)
        except BaseException:
            self.close()
            raise
        if status != 200:
            raise Refused(status, answer)
        return json.loads(answer)

    async def surely(self, action: str, queue: str = "", /, **given: Any) -> dict[str, Any]:
        """Ask until there is an answer: for what may be done twice."""
        async with asyncio.timeout(2 * SECONDS):
            while True:
                try:
                    return await self.ask(action, queue, **given)
                except CUT:
                    await asyncio.sleep(0.1)  # until the server is there again

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


async def _reply(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
    return int(head.split(b" ", 2)[1]), await reader.readexactly(length)


async def together(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """All of them at once; the first failure ends all."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in work]
    return [task.result() for task in tasks]


async def until(met: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            while not met():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"not within {SECONDS} s: {what}")
