"""A raw HTTP load generator: some connections, each with one open request, without an SDK."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Supply = Callable[[], bytes | None]  # the next request; None: no more
Take = Callable[[int, bytes], None]  # status and body of an answer


@dataclass
class Result:
    requests: int = 0
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list[float])
    refused: list[bytes] = field(default_factory=list[bytes])

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    def percentile(self, share: float) -> float:
        return sorted(self.waits)[min(int(len(self.waits) * share), len(self.waits) - 1)]


def request(action: str, members: dict[str, Any], host: str) -> bytes:
    """One call in the JSON protocol, unsigned."""
    body = json.dumps(members).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-amz-json-1.0\r\n"
        f"X-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {len(body)}\r\n"
        "Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/sqs/aws4_request, "
        "SignedHeaders=host, Signature=0\r\n\r\n"
    )
    return head.encode() + body


class _Connection(asyncio.Protocol):
    def __init__(
        self, supply: Supply, take: Take, result: Result, done: Callable[[], None]
    ) -> None:
        self._supply = supply
        self._take = take
        self._result = result
        self._done = done
        self._received = b""
        self._sent_at = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def _next(self) -> None:
        assert self._transport is not None
        wanted = self._supply()
        if wanted is None:
            self._transport.close()
            return
        self._sent_at = time.perf_counter()
        self._transport.write(wanted)

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        end = received.find(b"\r\n\r\n")
        if end >= 0:
            head = received[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(received) >= end + 4 + length:
                self._received = b""
                status = int(received[9:12])
                body = received[end + 4 : end + 4 + length]
                self._result.requests += 1
                self._result.waits.append(time.perf_counter() - self._sent_at)
                if status != 200 and len(self._result.refused) < 5:
                    self._result.refused.append(body)
                self._take(status, body)
                if b"connection: close" in head and self._transport is not None:
                    self._transport.close()
                else:
                    self._next()
                return
        self._received = received

    def connection_lost(self, exc: Exception | None) -> None:
        self._done()


async def drive(port: int, connections: int, supply: Supply, take: Take) -> Result:
    """Send requests until the supply ends, and wait for all answers."""
    result = Result()
    loop = asyncio.get_running_loop()
    finished = asyncio.Event()
    open_ = connections

    def done() -> None:
        nonlocal open_
        open_ -= 1
        if not open_:
            finished.set()

    began = time.perf_counter()
    for _ in range(connections):
        await loop.create_connection(
            lambda: _Connection(supply, take, result, done), "127.0.0.1", port
        )
    await finished.wait()
    result.seconds = time.perf_counter() - began
    return result
