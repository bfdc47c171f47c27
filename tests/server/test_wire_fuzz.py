"""Fuzzing the wire over real HTTP, against the real program, on each database.

Whatever is sent: no status of 500 and more, no traceback in the log, exactly one answer to what is
HTTP at all, and no memory, file or connection that stays. `make fuzz` takes ten minutes
(FAIRTURN_FUZZ=600 seconds, shared by the databases), `make test` a few seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import fairturn
from tests import servers
from tests.server.conftest import BACKENDS
from tests.server.fuzz_harm import spoil_bytes
from tests.server.fuzz_requests import QUEUES, Shot, Stock, shot
from tests.server.fuzz_target import Target, target
from tests.server.http_doors import Client, Reply, call, get
from tests.server.signing import FORM, KEY, TARGET, sign

FULL = "FAIRTURN_FUZZ" in os.environ
LASTING = float(os.environ.get("FAIRTURN_FUZZ", "4.5")) / len(BACKENDS)
WORKERS = 16
PATIENCE = 60.0  # for the answer to what is sound
GLANCE = 0.2  # for an answer to what may have none
WARM = 1 / 3  # of the time: then memory must not grow
GROWTH = 16 * 1024  # KiB, that are caches filling and the allocator's
MEMORY = 400 * 1024  # KiB, at any time: 16 requests of 4 MiB, and what reading them takes

Shots = Callable[[], Shot]


class Fuzzer:
    def __init__(self, rng: random.Random, server: Target, shots: Shots, stock: Stock) -> None:
        self.rng = rng
        self.server = server
        self.shots = shots
        self.stock = stock
        self.statuses: Counter[int] = Counter()
        self.fine: Counter[str] = Counter()  # actions that were answered with 200
        self.sent = 0
        self.memory: list[int] = []

    async def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.gather(*(self._work(end) for _ in range(WORKERS)))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            self.memory.append(self.server.memory())
            await asyncio.sleep(0.1)

    async def _work(self, end: float) -> None:
        client: Client | None = None
        while time.monotonic() < end:
            shot = self.shots()
            client = client or await self._connect()
            self.sent += 1
            keep = False
            try:
                keep = await self._fire(client, shot)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                if shot.sound and not shot.hasty:
                    raise AssertionError(f"no answer to {shot}") from error
            finally:
                if not keep:
                    client.close()
                    client = None
        if client is not None:
            client.close()

    async def _connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.server.port))

    async def _fire(self, client: Client, shot: Shot) -> bool:
        """Send it and read what comes; can the connection be used again?"""
        for number, piece in enumerate(shot.pieces):
            if number:
                await asyncio.sleep(0.001)
            client.send(piece)
            await client.writer.drain()
        if shot.hasty:
            return False
        if not shot.sound:
            await self._glance(client)
            return False
        async with asyncio.timeout(PATIENCE):
            reply = await client.reply()
        self._judge(shot, reply)
        return ("connection", "close") not in reply.headers

    async def _glance(self, client: Client) -> None:
        """What it looks like may be several requests, or the beginning of one."""
        whole = b""
        try:
            async with asyncio.timeout(GLANCE):
                while part := await client.reader.read(1 << 20):
                    whole += part
        except (TimeoutError, ConnectionError):
            pass
        for status in map(int, re.findall(rb"HTTP/1\.1 (\d{3}) ", whole)):
            self.statuses[status] += 1
            assert status < 500, whole

    def _judge(self, shot: Shot, reply: Reply) -> None:
        self.statuses[reply.status] += 1
        assert reply.status < 500, (shot, reply)
        assert len([name for name, _ in reply.headers if name == "date"]) == 1, reply.headers
        kind = dict(reply.headers).get("content-type", "")
        if kind.startswith("application/x-amz-json"):
            answer = reply.json
            assert reply.status == 200 or {"__type", "message"} <= answer.keys(), (shot, reply)
            assert (reply.status == 200) != ("x-amzn-query-error" in dict(reply.headers))
            self.stock.learn(answer)
        elif kind == "text/xml":
            ElementTree.fromstring(reply.body)
        else:  # refused before it was a request
            assert reply.status in (400, 408, 431), (shot, reply)
            return
        assert reply["x-amzn-requestid"]
        if reply.status == 200:
            self.fine[shot.action] += 1


# --- the servers ----------------------------------------------------------------------------------
async def ask(server: Target, request: bytes) -> Reply:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    try:
        client.send(request)
        reply = await client.reply()
    finally:
        client.close()
    assert reply.status == 200, reply
    return reply


async def healthy(server: Target) -> None:
    assert server.process.poll() is None
    assert (await ask(server, get("/health"))).json == {"healthy": True}


async def lives(server: Target) -> None:
    """It is healthy, and a message goes through."""
    await healthy(server)
    create = call("CreateQueue", {"QueueName": "in-the-end"})
    url = (await ask(server, create)).json["QueueUrl"]
    await ask(server, call("SendMessage", {"QueueUrl": url, "MessageBody": "still there"}))
    (message,) = (await ask(server, call("ReceiveMessage", {"QueueUrl": url}))).json["Messages"]
    assert message["Body"] == "still there"
    await ask(server, call("DeleteQueue", {"QueueUrl": url}))


async def quiet(server: Target) -> None:
    """Nobody is left behind: one connection, which asks, and no poll."""
    async with asyncio.timeout(PATIENCE):
        while True:
            page = (await ask(server, get("/metrics"))).body.decode()
            numbers = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[0] != "#")
            polls, connections = (
                numbers[f"fairturn_sqs_open_{it}"] for it in ("polls", "connections")
            )
            if (float(polls), float(connections)) == (0, 1):
                return
            await asyncio.sleep(0.05)


async def prepared(server: Target) -> Stock:
    for name in QUEUES:
        fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        tags = {"fairturn:extended": "true"} if name == "wide" else {}
        given = {"QueueName": name, "Attributes": fifo if name.endswith(".fifo") else {}}
        await ask(server, call("CreateQueue", {**given, "tags": tags}))
    return Stock(server.url)


def signed_shot(rng: random.Random, server: Target) -> Shot:
    """Signed by botocore, in the header or in the query; then, mostly, spoiled."""
    expires = rng.choice([None, None, 600])
    url = f"{server.url}/"
    if expires is None and rng.random() < 0.5:
        signed = sign("POST", url, TARGET, b'{"QueueUrl":"a","MessageBody":"b"}')
    elif expires is None:
        signed = sign("POST", url, FORM, b"Action=ListQueues")
    else:
        signed = sign("GET", f"{url}?Action=ListQueues", {}, expires=expires)
    line = b" ".join([signed.method.encode(), signed.path + b"?" + signed.query, b"HTTP/1.1"])
    length = (b"Content-Length", b"%d" % len(signed.body))
    given = [(name, value) for name, value in signed.headers if name.lower() != b"content-length"]
    headers = b"".join(b"%s: %s\r\n" % pair for pair in [*given, length])
    data = b"%s\r\n%s\r\n%s" % (line, headers, signed.body)
    spoiled = rng.random() < 0.9
    return Shot([spoil_bytes(rng, data) if spoiled else data], "signed", sound=not spoiled)


# --- the judgement --------------------------------------------------------------------------------
def judge_memory(memory: list[int]) -> str:
    warm = memory[: max(1, int(len(memory) * WARM))]
    end = statistics.median(memory[-max(1, len(memory) // 10) :])
    told = f"memory {warm[0] // 1024} MiB, warm {max(warm) // 1024}, end {end / 1024:.0f}"
    assert max(memory) < MEMORY, told
    if FULL:  # a few seconds are all warm-up
        assert end <= max(warm) + GROWTH, told
    return told


def judge_log(text: str) -> None:
    assert "Traceback" not in text, text[text.index("Traceback") - 2000 :][:6000]
    for line in text.splitlines():
        level = json.loads(line)["level"].lower()
        assert level in ("info", "warning"), line


def fuzz(
    server: Target,
    seconds: float,
    start: Callable[[], Awaitable[Fuzzer]],
    after: Callable[[Target], Awaitable[None]],
) -> str:
    async def main() -> Fuzzer:
        fuzzer = await start()
        await fuzzer.run(seconds)
        await after(server)
        await quiet(server)
        return fuzzer

    fuzzer = asyncio.run(main())
    judge_log(server.log)
    told = judge_memory(fuzzer.memory)
    statuses = " ".join(f"{status}:{n}" for status, n in sorted(fuzzer.statuses.items()))
    return f"{fuzzer.sent} requests, {statuses}, {len(fuzzer.fine)} actions answered, {told}"


def database(backend: str, tmp_path: Path) -> str:
    if backend == "sqlite":
        return f"sqlite:///{tmp_path}/fuzz.db"
    url = (servers.postgres_url if backend == "postgresql" else servers.mysql_url)("fuzz")
    with fairturn.connect(url) as db:
        db.migrate()
    return url


@pytest.mark.timeout(LASTING + 300)
def test_whatever_is_sent(backend: str, tmp_path: Path, rng: random.Random) -> None:
    with target(database(backend, tmp_path), tmp_path / "log") as server:

        async def start() -> Fuzzer:
            stock = await prepared(server)
            return Fuzzer(rng, server, lambda: shot(rng, stock), stock)

        print(f"\n{backend}: " + fuzz(server, LASTING, start, lives))


@pytest.mark.timeout(LASTING + 300)
def test_whatever_is_signed(tmp_path: Path, rng: random.Random) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'[keys.{KEY.id}]\nsecret = "{KEY.secret}"\n')
    with target(database("sqlite", tmp_path), tmp_path / "log", f"--config={file}") as server:

        async def start() -> Fuzzer:
            return Fuzzer(rng, server, lambda: signed_shot(rng, server), Stock(server.url))

        print("\nsigned: " + fuzz(server, LASTING / 4, start, healthy))
