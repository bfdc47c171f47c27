"""The worker's HTTP port, from outside: real sockets, good clients and bad ones."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import fairturn
from fairturn.observe.worker_metrics import Metrics
from fairturn.observe.worker_metrics import ready as all_ready
from fairturn.worker import http_pages
from fairturn.worker.http_pages import serve


def snapshots() -> list[dict[str, Any]]:
    return [Metrics().snapshot()]


def ready() -> tuple[bool, str]:
    return True, ""


async def ask(port: int, data: bytes, *, end: bool = False) -> bytes:
    """Everything that comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        if end:
            writer.write_eof()
        return await reader.read()
    finally:
        writer.close()


async def heard(port: int) -> bool:
    """Is a good client answered, or turned away?"""
    try:
        return (await ask(port, request("/health"))).startswith(b"HTTP/1.1 200 ")
    except ConnectionError:
        return False


def request(target: str, method: str = "GET") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def with_server(use: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with serve(None, 0, snapshots, ready) as port:
            await use(port)
            # Whatever came before, a good client is answered.
            assert status(await ask(port, request("/health"))) == 200

    asyncio.run(main())


def test_what_there_is() -> None:
    async def use(port: int) -> None:
        answer = await ask(port, request("/metrics"))
        head, body = answer.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in head
        assert f"\r\nContent-Length: {len(body)}\r\n".encode() in head
        assert b"\r\nConnection: close" in head
        assert list(text_string_to_metric_families(body.decode()))

        answer = await ask(port, request("/health?verbose=1"))
        assert json.loads(answer.split(b"\r\n\r\n", 1)[1]) == {"alive": True}
        answer = await ask(port, request("http://worker:9100/ready"))
        assert json.loads(answer.split(b"\r\n\r\n", 1)[1]) == {"ready": True}

        answer = await ask(port, request("/metrics", "HEAD"))
        assert answer.endswith(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}".encode() in answer

    with_server(use)


def test_it_says_why_it_is_not_ready() -> None:
    async def main() -> None:
        async with serve("127.0.0.1", 0, snapshots, lambda: (False, "no permit")) as port:
            answer = await ask(port, request("/ready"))
            assert status(answer) == 503
            told = json.loads(answer.split(b"\r\n\r\n", 1)[1])
            assert told == {"ready": False, "reason": "no permit"}
            assert status(await ask(port, request("/health"))) == 200

    asyncio.run(main())


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (request("/"), 404),
        (request("/metrics/"), 404),
        (request("/../metrics"), 404),
        (request("/metrics", "POST"), 405),
        (request("/metrics", "get"), 405),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1 extra\r\n\r\n", 400),
        (b"GET http://[/metrics HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # a TLS hello
        ("GET /mätrics HTTP/1.1\r\n\r\n".encode(), 400),
        (b"\x00" * 100 + b"\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /metrics HTTP/0.9\r\n\r\n", 505),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (b"a" * 5_000_000, 431),
        (b"GET /metrics HTTP/1.1\r\n" * 100_000, 431),
    ],
)
def test_bad_requests_are_told_so(data: bytes, code: int) -> None:
    async def use(port: int) -> None:
        answer = await ask(port, data)
        assert status(answer) == code
        head, body = answer.split(b"\r\n\r\n", 1)
        assert json.loads(body)["error"]
        assert (b"\r\nAllow: GET, HEAD" in head) is (code == 405)

    with_server(use)


def test_a_client_that_says_all_before_it_listens() -> None:
    """A reset because of what nobody read would take the answer away from it."""

    def talk(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"a" * 5_000_000)
            return client.recv(1000)

    async def use(port: int) -> None:
        assert status(await asyncio.to_thread(talk, port)) == 431

    with_server(use)


def test_half_a_request() -> None:
    async def use(port: int) -> None:
        assert status(await ask(port, b"GET /metr", end=True)) == 400
        assert await ask(port, b"", end=True) == b""  # is the port open?

    with_server(use)


def test_a_client_that_never_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_pages, "SECONDS", 0.05)

    async def use(port: int) -> None:
        assert status(await ask(port, b"GET /metrics HTTP/1.1\r\nX: ")) == 408

    with_server(use)


def test_a_client_that_never_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer does not fit the sockets' buffers; it is dropped, and nothing of it stays."""
    monkeypatch.setattr(http_pages, "SECONDS", 0.05)
    metrics = Metrics()
    for n in range(1_000):
        metrics.tasks["emails", f"{n:0500}"].add("ack", False, 0.0)

    async def main() -> None:
        async with serve(None, 0, lambda: [metrics.snapshot()], ready) as port:
            before = asyncio.all_tasks()
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(slow, ("127.0.0.1", port))
                await loop.sock_sendall(slow, request("/metrics"))
                while len(asyncio.all_tasks()) == len(before):
                    await asyncio.sleep(0)  # it is accepted
                while len(asyncio.all_tasks()) > len(before):
                    await asyncio.sleep(0.01)  # and given up
            assert status(await ask(port, request("/health"))) == 200

    asyncio.run(main())


def test_clients_that_reset() -> None:
    async def use(port: int) -> None:
        loop = asyncio.get_running_loop()
        for data in (b"", b"GET /met", request("/metrics"), b"x" * 100_000):
            with socket.socket() as rude:
                rude.setblocking(False)
                await loop.sock_connect(rude, ("127.0.0.1", port))
                await loop.sock_sendall(rude, data)
                # Closing is now a reset.
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with_server(use)


def test_too_many_at_once_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_pages, "CONNECTIONS", 2)

    async def use(port: int) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        assert not await heard(port)
        for _, writer in idle:
            writer.close()
        while not await heard(port):
            pass  # the two have not gone yet

    with_server(use)


def test_leaving_does_not_wait_for_clients() -> None:
    async def main() -> None:
        async with serve(None, 0, snapshots, ready) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await ask(port, request("/health"))  # the other is accepted by now, too
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(main())


def test_an_error_inside_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> list[dict[str, Any]]:
        raise RuntimeError("a secret")

    async def main() -> None:
        async with serve(None, 0, broken, ready) as port:
            answer = await ask(port, request("/metrics"))
            assert status(answer) == 500
            assert b"secret" not in answer
            assert status(await ask(port, request("/health"))) == 200

    asyncio.run(main())
    assert "a secret" in caplog.text


def test_it_is_for_this_machine_unless_told_otherwise() -> None:
    async def main() -> None:
        async with serve(None, 0, snapshots, ready) as port:
            with socket.socket() as other:
                # The whole of 127.0.0.0/8 is this machine, but only one address listens.
                other.setblocking(False)
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.get_running_loop().sock_connect(other, ("127.0.0.2", port))

    asyncio.run(main())


@given(st.one_of(st.binary(), st.binary().map(lambda data: b"GET " + data + b" HTTP/1.1\r\n\r\n")))
def test_any_head_has_an_answer(head: bytes) -> None:
    answer = http_pages._Connections(snapshots, ready).answer(head)
    assert answer.status is not HTTPStatus.INTERNAL_SERVER_ERROR


def test_a_worker_from_its_start_to_its_end(tmp_path: Path) -> None:
    app = fairturn.App(f"sqlite:///{tmp_path}/jobs.db")
    done = asyncio.Event()

    @app.task(queue="emails")
    async def welcome(to: str) -> None:
        done.set()

    def get(url: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(url) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    async def main() -> None:
        worker = app.worker()

        def snapshots() -> list[dict[str, Any]]:
            return [worker.snapshot()]

        async with serve(None, 0, snapshots, lambda: all_ready(snapshots())) as port:
            url = f"http://127.0.0.1:{port}"

            async def look(path: str) -> tuple[int, str]:
                return await asyncio.to_thread(get, url + path)

            code, text = await look("/ready")
            assert code == 503
            assert "it has no permit yet" in text
            async with worker:
                while (await look("/ready"))[0] != 200:
                    await asyncio.sleep(0.01)
                await welcome.send_async("ann")
                await done.wait()
                while 'outcome="acked"} 1\n' not in (await look("/metrics"))[1]:
                    await asyncio.sleep(0.01)
                worker.stop()
                code, text = await look("/ready")
                assert code == 503
                assert "it is stopping" in text
                assert (await look("/health"))[0] == 200
        await app.close_async()

    asyncio.run(main())
