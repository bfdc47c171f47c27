"""A server in this event loop with a service that answers as a test says, and a raw client."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import fairturn
from fairturn.server import listen_sockets
from fairturn.server.config import Settings
from fairturn.server.process import Serving, new_loop
from fairturn.server.sqs.request import Options, SqsRequest
from fairturn.server.sqs.service import Sqs

SECONDS = 30.0  # for anything to happen, on a busy machine
T = TypeVar("T")
Answer = Callable[[SqsRequest], Awaitable[Mapping[str, Any] | None]]


class Service:
    """In place of Sqs: keeps what it was asked."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.asked: list[SqsRequest] = []
        self.closed = asyncio.Event()
        self._answer = answer

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        self.closed.set()

    async def answer(self, ask: SqsRequest) -> Mapping[str, Any] | None:
        self.asked.append(ask)
        return None if self._answer is None else await self._answer(ask)


class Poller(Service):
    """Its receives wait until the service is closed; ``left`` counts those that were cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0

    async def answer(self, ask: SqsRequest) -> Mapping[str, Any] | None:
        self.asked.append(ask)
        try:
            await self.closed.wait()
        except asyncio.CancelledError:
            self.left += 1
            raise
        return {"Messages": []}


@dataclass
class Served:
    serving: Serving
    port: int
    running: asyncio.Task[None]

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))

    async def ask(self, request: bytes) -> Reply:
        """One request on a connection of its own."""
        client = await self.connect()
        try:
            client.send(request)
            return await client.reply()
        finally:
            client.close()


@dataclass
class Reply:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def __getitem__(self, name: str) -> str:
        """The one header of this name."""
        (found,) = [value for known, value in self.headers if known == name]
        return found

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def reply(self) -> Reply:
        async with asyncio.timeout(SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")[:-2]
            headers = [(name, value) for name, _, value in (one.partition(": ") for one in lines)]
            length = int(dict(headers).get("content-length", 0))
            return Reply(int(first.split()[1]), headers, await self.reader.readexactly(length))

    async def ended(self) -> bool:
        """Wait until the server closes the connection; did it say nothing more?"""
        async with asyncio.timeout(SECONDS):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.close()


@contextlib.asynccontextmanager
async def served(
    service: Service | None, *, database: str = "sqlite://", **settings: Any
) -> AsyncGenerator[Served]:
    """A server over this service; None: over the real one."""
    chosen = Settings(**{"port": 0, "access_log": False, **settings})
    sockets = listen_sockets.listeners(chosen)
    port = sockets[0].getsockname()[1]

    def made(db: fairturn.AsyncDatabase, options: Options) -> Service | Sqs:
        return Sqs(db, options) if service is None else service

    serving = Serving(chosen, fairturn.connect_async(database), sockets, made)
    if service is None:
        await serving.prepare()
    running = asyncio.get_running_loop().create_task(serving.run())
    try:
        await until(lambda: serving.ready)
        yield Served(serving, port, running)
    finally:
        serving.stop()
        await running
        await serving.close()


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not met():
            await asyncio.sleep(0.005)


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def call(action: str, input: Mapping[str, Any] | None = None, *more: str) -> bytes:
    """A request in AWS JSON."""
    body = json.dumps(input or {}).encode()
    return _request("POST", "/", body, "application/x-amz-json-1.0", *more, target=action)


def form(text: str, *more: str, path: str = "/") -> bytes:
    return _request("POST", path, text.encode(), "application/x-www-form-urlencoded", *more)


def get(path: str, *more: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: localhost:9324", *more, "", ""]
    return "\r\n".join(lines).encode()


def _request(method: str, path: str, body: bytes, kind: str, *more: str, target: str = "") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    if not any(line.lower().startswith("host:") for line in more):
        lines.append("Host: localhost:9324")
    if target:
        lines.append(f"X-Amz-Target: AmazonSQS.{target}")
    return "\r\n".join([*lines, *more, "", ""]).encode() + body
