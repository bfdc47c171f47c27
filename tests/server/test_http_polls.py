"""Polls whose clients go away, and how a server leaves."""

from __future__ import annotations

import asyncio
import logging

import pytest

from fairturn.server.sqs.request import SqsRequest
from tests.server.http_doors import Poller, Service, call, get, run, served, until

RECEIVE = call("ReceiveMessage", {"QueueUrl": "http://localhost/0/orders", "WaitTimeSeconds": 20})


def test_a_poll_whose_client_goes_is_cancelled() -> None:
    async def main() -> None:
        service = Poller()
        async with served(service) as server:
            client, patient = await server.connect(), await server.connect()
            client.send(RECEIVE)
            patient.send(RECEIVE)
            await until(lambda: len(service.asked) == 2)
            assert server.serving.snapshot()["polls"] == 2
            client.close()
            await until(lambda: server.serving.snapshot()["polls"] == 1)
            assert service.left == 1
            await until(lambda: bool(server.serving.snapshot()["requests"]))
            assert server.serving.snapshot()["requests"] == [["ReceiveMessage", 499, 1]]
            service.closed.set()
            assert (await patient.reply()).json == {}
            patient.close()
        assert service.left == 1

    run(main())


def test_a_send_whose_client_goes_is_finished() -> None:
    async def main() -> None:
        begun, go, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def answer(_: SqsRequest) -> None:
            begun.set()
            await go.wait()
            finished.set()

        async with served(Service(answer)) as server:
            client = await server.connect()
            client.send(call("PurgeQueue", {"QueueUrl": "http://localhost/0/orders"}))
            await begun.wait()
            client.close()
            await until(lambda: server.serving.snapshot()["connections"] == 0)
            go.set()
            await finished.wait()

    run(main())


def test_leaving_answers_the_open_polls_and_closes() -> None:
    async def main() -> None:
        service = Poller()
        async with served(service) as server:
            clients = [await server.connect() for _ in range(50)]
            idle = await server.connect()
            idle.send(get("/health"))
            assert (await idle.reply()).status == 200
            for client in clients:
                client.send(RECEIVE)
            await until(lambda: len(service.asked) == 50)
            server.serving.stop()
            for client in clients:
                reply = await client.reply()
                assert (reply.status, reply.json, reply["connection"]) == (200, {}, "close")
                assert await client.ended()
                client.close()
            assert await idle.ended()
            idle.close()
            await server.running
            assert server.serving.cut == 0
            with pytest.raises(ConnectionRefusedError):
                await server.connect()

    run(main())


def test_what_is_asked_is_finished_while_leaving() -> None:
    async def main() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def answer(_: SqsRequest) -> None:
            begun.set()
            await go.wait()

        service = Service(answer)
        async with served(service) as server:
            client = await server.connect()
            client.send(call("PurgeQueue", {"QueueUrl": "http://localhost/0/orders"}))
            await begun.wait()
            server.serving.stop()
            await service.closed.wait()
            assert not server.running.done()
            go.set()
            assert (await client.reply()).status == 200
            await server.running
            assert server.serving.cut == 0
            client.close()

    run(main())


@pytest.mark.parametrize("abort", [False, True])
def test_what_takes_too_long_gets_503(abort: bool, caplog: pytest.LogCaptureFixture) -> None:
    """After the grace time, or at the second signal."""

    asked = asyncio.Event()

    async def answer(_: SqsRequest) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def main() -> None:
        async with served(Service(answer), grace=3600 if abort else 0.05) as server:
            client = await server.connect()
            client.send(call("ListQueues"))
            await asked.wait()
            server.serving.stop()
            if abort:
                server.serving.abort()
            reply = await client.reply()
            assert (reply.status, reply["connection"]) == (503, "close")
            await server.running
            assert server.serving.cut == 1
            client.close()

    caplog.set_level(logging.WARNING)
    run(main())
    assert "1 requests were not finished in time" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_service_that_does_not_end_well_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Service):
        closes = 0

        async def close(self) -> None:
            self.closes += 1
            if self.closes == 1:
                raise RuntimeError("broken")

    async def main() -> None:
        async with served(Broken()):
            pass

    run(main())
    assert "closing the service failed" in caplog.text
