"""Clients that send too much, too slowly, or do not read."""

from __future__ import annotations

import asyncio
import socket

import pytest

from fairturn.server.sqs.request import SqsRequest
from tests.server.http_doors import Client, Poller, Service, call, form, get, run, served, until

LONG = "x" * 5000
BRIEF = 0.1  # seconds; what is waited for comes after them, however late


# --- sizes --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "head",
    [
        get("/", f"X-Long: {LONG}"),
        get(f"/?Action=ListQueues&x={LONG}"),
        get("/", *(f"X-{n}: {'y' * 90}" for n in range(50))),
        get("/", f"X-Long: {LONG}").removesuffix(b"\r\n\r\n"),  # and more is to come
    ],
)
def test_headers_that_are_too_long(head: bytes) -> None:
    async def main() -> None:
        service = Service()
        async with served(service, header_bytes=4096) as server:
            client = await server.connect()
            client.send(head)
            reply = await client.reply()
            assert reply.status == 431
            assert reply["connection"] == "close"
            assert await client.ended()
            client.close()
            assert server.serving.snapshot()["requests"] == [["-", 431, 1]]
        assert not service.asked

    run(main())


def test_headers_within_the_bound_with_a_long_body_behind_them() -> None:
    async def main() -> None:
        service = Service()
        text = "Action=SendMessage&MessageBody=" + "x" * 100_000
        async with served(service, header_bytes=4096) as server:
            assert (await server.ask(form(text, path="/0/orders"))).status == 200
        assert len(service.asked[0].input["MessageBody"]) == 100_000

    run(main())


@pytest.mark.parametrize("size", [2000, 3_000_000])
def test_a_body_that_is_too_long_by_its_own_word(size: int) -> None:
    """Whoever sends it all before reading, as most clients do, can still read why."""

    async def main() -> None:
        service = Service()
        async with served(service, body_bytes=1024) as server:
            client = await server.connect()
            client.send(form("x" * size))
            reply = await client.reply()
            assert reply.status == 413
            assert reply["connection"] == "close"
            assert b"<Code>RequestEntityTooLarge</Code>" in reply.body
            assert await client.ended()
            client.close()
        assert not service.asked

    run(main())


def test_nobody_is_asked_to_continue_with_too_much() -> None:
    async def main() -> None:
        async with served(Service(), body_bytes=1024) as server:
            client = await server.connect()
            client.send(
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-amz-json-1.0\r\n"
                b"X-Amz-Target: AmazonSQS.ListQueues\r\nContent-Length: 99999999999999999999\r\n"
                b"Expect: 100-continue\r\n\r\n"
            )
            head = await client.reader.readline()
            client.close()
        # 413, or 400 from a parser that cannot count so far
        assert head.split()[1] in (b"413", b"400")

    run(main())


def test_a_body_that_grows_too_long_chunk_by_chunk() -> None:
    async def main() -> None:
        service = Service()
        async with served(service, body_bytes=1024) as server:
            client = await server.connect()
            head = form("").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
            client.send(head + b"200\r\n" + b"x" * 512 + b"\r\n")
            client.send((b"200\r\n" + b"x" * 512 + b"\r\n") * 3)
            assert (await client.reply()).status == 413
            client.close()
        assert not service.asked

    run(main())


@pytest.mark.parametrize(
    "endless",
    [
        b"1;" + b"e" * 1_000_000 + b"\r\nx\r\n",  # an extension of a chunk
        b"0\r\nX-Trailer: " + b"t" * 1_000_000 + b"\r\n",
    ],
)
def test_what_is_around_a_body_is_bounded_too(endless: bytes) -> None:
    async def main() -> None:
        service = Service()
        async with served(service, body_bytes=1024) as server:
            client = await server.connect()
            head = form("").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
            client.send(head)
            client.send(endless)
            assert await _turned_away(client)
            client.close()
        assert not service.asked

    run(main())


async def _turned_away(client: Client) -> bool:
    whole = b""
    try:
        whole = await client.reader.read()
    except ConnectionError:
        return True
    return whole == b"" or whole.split()[1] in (b"400", b"413")


def test_connections_are_counted() -> None:
    async def main() -> None:
        async with served(Service(), connections=2) as server:
            first, second = await server.connect(), await server.connect()
            for client in (first, second):
                client.send(call("ListQueues"))
                assert (await client.reply()).status == 200
            third = await server.connect()
            reply = await third.reply()
            assert (reply.status, reply["connection"]) == (503, "close")
            assert len([name for name, _ in reply.headers if name == "date"]) == 1
            assert await third.ended()
            third.close()
            first.close()
            await until(lambda: server.serving.snapshot()["connections"] < 2)
            assert (await server.ask(call("ListQueues"))).status == 200
            second.close()

    run(main())


# --- times --------------------------------------------------------------------------------------
@pytest.mark.parametrize("sent", [b"POST / HT", b"POST / HTTP/1.1\r\nHost: a\r\n", b"\r\n"])
def test_slow_headers(sent: bytes) -> None:
    async def main() -> None:
        async with served(Service(), header_seconds=BRIEF) as server:
            client = await server.connect()
            client.send(sent)
            reply = await client.reply()
            assert (reply.status, reply["connection"]) == (408, "close")
            assert await client.ended()
            client.close()

    run(main())


def test_slow_headers_of_a_second_request() -> None:
    async def main() -> None:
        async with served(Service(), header_seconds=BRIEF) as server:
            client = await server.connect()
            client.send(call("ListQueues"))
            assert (await client.reply()).status == 200
            client.send(b"POST ")
            assert (await client.reply()).status == 408
            client.close()

    run(main())


def test_headers_that_trickle_have_no_more_time() -> None:
    async def main() -> None:
        async with served(Service(), header_seconds=BRIEF) as server:
            client = await server.connect()
            reply = asyncio.create_task(client.reply())
            client.send(b"GET / HTTP/1.1\r\n")
            while not reply.done():
                client.send(b"X-More: 1\r\n")
                await asyncio.sleep(BRIEF / 10)
            assert (await reply).status == 408
            client.close()

    run(main())


def test_who_says_nothing_is_closed_without_a_word() -> None:
    async def main() -> None:
        async with served(Service(), header_seconds=BRIEF) as server:
            client = await server.connect()
            assert await client.ended()
            client.close()

    run(main())


def test_an_idle_connection_is_closed() -> None:
    async def main() -> None:
        async with served(Service(), keep_alive=BRIEF) as server:
            client = await server.connect()
            client.send(call("ListQueues"))
            assert (await client.reply()).status == 200
            assert await client.ended()
            client.close()

    run(main())


@pytest.mark.parametrize("part", [0, 20])
def test_a_slow_body(part: int) -> None:
    async def main() -> None:
        service = Service()
        async with served(service, body_seconds=BRIEF) as server:
            client = await server.connect()
            whole = call("DeleteQueue", {"QueueUrl": "http://localhost/0/orders"})
            client.send(whole[: whole.index(b"\r\n\r\n") + 4 + part])
            reply = await client.reply()
            assert (reply.status, reply["connection"]) == (408, "close")
            assert reply.json["__type"].endswith("#RequestTimeoutException")
            assert await client.ended()
            client.close()
        assert not service.asked

    run(main())


def test_the_start_of_the_next_request_does_not_cut_an_answer() -> None:
    async def main() -> None:
        service = Poller()
        async with served(service, header_seconds=BRIEF) as server:
            client = await server.connect()
            client.send(call("ReceiveMessage", {"QueueUrl": "http://localhost/0/orders"}))
            await until(lambda: bool(service.asked))
            client.send(b"POST / HT")
            await asyncio.sleep(BRIEF * 3)  # longer than headers may take
            service.closed.set()
            assert (await client.reply()).status == 200
            client.close()

    run(main())


def test_a_client_that_does_not_read_is_dropped() -> None:
    async def answer(_: SqsRequest) -> dict[str, list[dict[str, str]]]:
        return {"Messages": [{"Body": "x" * 1_000_000}] * 10}

    async def main() -> None:
        async with served(Service(answer), body_seconds=BRIEF, keep_alive=3600) as server:
            deaf = socket.socket()
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(deaf, ("127.0.0.1", server.port))
            await loop.sock_sendall(
                deaf, call("ReceiveMessage", {"QueueUrl": "http://localhost/0/orders"})
            )
            await until(lambda: bool(server.serving.snapshot()["requests"]))
            await until(lambda: server.serving.snapshot()["connections"] == 0)
            deaf.close()

    run(main())
