"""The HTTP door with the real service behind it."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from typing import Any

import pytest

import fairturn
from fairturn.server.sqs.wire.action_table import ACTIONS
from tests import servers
from tests.server.http_doors import Served, call, form, get, run, served, until

ROUNDS = int(os.environ.get("FAIRTURN_FUZZ_EXAMPLES", "300"))
LOOKS = {"fairturn-gathering", "fairturn-polls"}  # tasks that look for those who receive


async def made(server: Served, name: str = "orders") -> str:
    reply = await server.ask(call("CreateQueue", {"QueueName": name}))
    return reply.json["QueueUrl"]


def receive(queue: str, wait: int = 20) -> bytes:
    names = ["ApproximateReceiveCount"]
    asked = {"QueueUrl": queue, "WaitTimeSeconds": wait, "MessageSystemAttributeNames": names}
    return call("ReceiveMessage", asked)


def test_the_message_of_a_client_that_has_gone_is_anothers(url: str) -> None:
    async def main() -> None:
        async with served(None, database=url) as server:
            queue = await made(server, f"gone-{random.randrange(10**9)}")
            gone = await server.connect()
            gone.send(receive(queue))
            await until(lambda: server.serving.snapshot()["polls"] == 1)
            gone.close()
            await until(lambda: server.serving.snapshot()["polls"] == 0)
            # A look that was under way would find the message, for nobody, and give it back.
            await until(lambda: not any(task.get_name() in LOOKS for task in asyncio.all_tasks()))
            sent = await server.ask(call("SendMessage", {"QueueUrl": queue, "MessageBody": "a"}))
            assert sent.status == 200
            (message,) = (await server.ask(receive(queue))).json["Messages"]
            assert message["Attributes"] == {"ApproximateReceiveCount": "1"}
            await server.ask(call("DeleteQueue", {"QueueUrl": queue}))

    run(main())


def test_a_thousand_open_polls() -> None:
    async def main() -> None:
        async with served(None) as server:
            queue = await made(server)
            clients = [await server.connect() for _ in range(1000)]
            for client in clients:
                client.send(receive(queue))
            await until(lambda: server.serving.snapshot()["polls"] == 1000)
            # Others are served meanwhile, and one of the thousand gets what they send.
            replies = [asyncio.create_task(client.reply()) for client in clients]
            await server.ask(call("SendMessage", {"QueueUrl": queue, "MessageBody": "a"}))
            await until(lambda: any(reply.done() for reply in replies))
            server.serving.stop()
            answers = [(await reply).json for reply in replies]
            assert [one["Messages"][0]["Body"] for one in answers if one] == ["a"]
            for client in clients:
                client.close()

    run(main())


@pytest.mark.server
def test_while_its_database_is_down() -> None:
    """503 in the caller's protocol, no traceback, and on as before when it is back."""

    async def main(postgres: Any, database: str) -> None:
        async with served(None, database=database) as server:
            queue = await made(server)
            postgres.kill9()
            send = call("SendMessage", {"QueueUrl": queue, "MessageBody": "a"})
            one = await server.ask(send)
            other = await server.ask(form("Action=ListQueues"))
            health = await server.ask(get("/health"))
            assert (one.status, other.status, health.status) == (503, 503, 503)
            assert one.json["__type"].endswith("#ServiceUnavailable")
            assert b"<Code>ServiceUnavailable</Code>" in other.body
            await asyncio.to_thread(postgres.start)
            async with asyncio.timeout(60):
                while (await server.ask(send)).status != 200:
                    await asyncio.sleep(0.05)
                while (await server.ask(get("/health"))).status != 200:
                    await asyncio.sleep(0.05)

    with servers.Postgres() as postgres:
        database = postgres.create_database("served")
        with fairturn.connect(database) as db:
            db.migrate()
        run(main(postgres, database))


def test_whatever_is_sent_is_no_mistake_of_ours(
    rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests with a few bytes changed, cut or doubled; longer with FAIRTURN_FUZZ_EXAMPLES."""

    async def main() -> Counter[int]:
        statuses: Counter[int] = Counter()
        # Whoever waits for more of a request does not wait long.
        bounds = {"header_seconds": 0.2, "body_seconds": 0.2, "keep_alive": 0.2}
        async with served(None, **bounds) as server:
            queue = await made(server)
            while statuses.total() < ROUNDS:
                requests = [_mutated(rng, _sensible(rng, queue)) for _ in range(50)]
                for found in await asyncio.gather(*(_asked(server, one) for one in requests)):
                    statuses.update(found)
            assert (await server.ask(call("ListQueues"))).status == 200
        return statuses

    statuses = run(main())
    assert not [status for status in statuses if status >= 500], statuses
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert statuses[200] > 0
    assert statuses[400] > 0


def _sensible(rng: random.Random, queue: str) -> bytes:
    action = rng.choice(sorted(ACTIONS))
    members: dict[str, Any] = {}
    for name in ACTIONS[action].input.members:
        if rng.random() < 0.7:
            members[name] = rng.choice(
                ["orders", queue, "1", 1, -1, True, None, [], ["All"], {}, {"a": "b"}, "x" * 300]
            )
    members["QueueUrl"] = queue
    if rng.random() < 0.5:
        return call(action, members, "Connection: close")
    fields = "&".join(f"{name}={value}" for name, value in members.items())
    return form(f"Action={action}&{fields}", "Connection: close")


def _mutated(rng: random.Random, request: bytes) -> bytes:
    found = bytearray(request)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 5, 20])):
        at = rng.randrange(len(found))
        match rng.randrange(4):
            case 0:
                found[at] = rng.randrange(256)
            case 1:
                del found[at : at + rng.randrange(1, 10)]
            case 2:
                found[at:at] = found[at : at + rng.randrange(1, 20)]
            case _:
                found[at:at] = rng.choice([b"\r\n", b"\0", b"%", b"{", b'"', b"\xff", b"&", b":"])
        if not found:
            break
    return bytes(found)


async def _asked(server: Served, request: bytes) -> list[int]:
    """The statuses of all answers: what was sent may look like several requests."""
    client = await server.connect()
    client.send(request)
    async with asyncio.timeout(60):
        try:
            whole = await client.reader.read()
        except ConnectionError:
            return []
        finally:
            client.close()
    starts = [part[:3] for part in whole.split(b"HTTP/1.1 ")[1:]]
    return [int(status) for status in starts if status.isdigit() and status != b"100"]
