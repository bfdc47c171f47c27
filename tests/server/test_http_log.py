"""The access log: what it says, and what it must not."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from fairturn.observe import logs
from tests.server.http_doors import Poller, Service, call, form, get, run, served, until
from tests.server.signing import KEY, KEYS, TARGET, sign

SEND = {"QueueUrl": "http://localhost:9324/0/orders", "MessageBody": "confidential"}


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What a program that logs in JSON prints."""
    stream = io.StringIO()
    root = logging.getLogger()
    level = root.level
    handler = logs.setup(True, "INFO", stream)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def accesses(lines: io.StringIO) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    return [line for line in found if line["logger"] == "fairturn.access"]


def test_a_line_for_each_request(lines: io.StringIO) -> None:
    async def main() -> list[str]:
        async with served(Service(), access_log=True) as server:
            replies = [
                await server.ask(call("SendMessage", SEND)),
                await server.ask(form("Action=FooBar&MessageBody=confidential")),
                await server.ask(get("/health")),
            ]
            return [len(reply.body) for reply in replies[:2]] + [
                reply["x-amzn-requestid"] for reply in replies[:2]
            ]

    given, refused, first, second = run(main())
    one, two, three = accesses(lines)
    assert one.pop("time")
    assert one.pop("ms") >= 0
    assert one.pop("message").startswith("POST SendMessage orders 200 ")
    assert one == {
        "level": "INFO",
        "logger": "fairturn.access",
        "method": "POST",
        "action": "SendMessage",
        "queue": "orders",
        "status": 200,
        "bytes_in": len(json.dumps(SEND)),
        "bytes_out": given,
        "key": "-",
        "request_id": first,
    }
    assert (two["action"], two["status"], two["bytes_out"]) == ("-", 400, refused)
    assert two["request_id"] == second
    assert two["error"] == "InvalidAction"
    assert two["message"].endswith(" error=InvalidAction")
    assert (three["action"], three["status"]) == ("/health", 200)
    assert "confidential" not in lines.getvalue()


def test_nothing_secret_is_logged(lines: io.StringIO) -> None:
    body = json.dumps(SEND).encode()
    good = sign("POST", "http://localhost:9324/", TARGET, body)
    presigned = sign("GET", "http://localhost:9324/?Action=ListQueues", {}, expires=60)

    def raw(signed: Any) -> bytes:
        target = signed.path + (b"?" + signed.query if signed.query else b"")
        head = [signed.method.encode() + b" " + target + b" HTTP/1.1"]
        head += [name + b": " + value for name, value in signed.headers]
        return b"\r\n".join([*head, b"", b""]) + signed.body

    async def main() -> list[int]:
        async with served(Service(), access_log=True, keys=KEYS) as server:
            wrong = raw(good).replace(b"confidential", b"confidentiaL")
            asked = (raw(good), raw(presigned), wrong)
            return [(await server.ask(request)).status for request in asked]

    assert run(main()) == [200, 200, 403]
    text = lines.getvalue()
    assert [line["key"] for line in accesses(lines)] == [KEY.id, KEY.id, f"?{KEY.id}"]
    codes = [line.get("error") for line in accesses(lines)]
    assert codes == [None, None, "SignatureDoesNotMatch"]
    for secret in (KEY.secret, "confidentia", "Signature=", "X-Amz-"):
        assert secret not in text


def test_a_queue_cannot_break_the_line(lines: io.StringIO) -> None:
    async def main() -> None:
        async with served(Service(), access_log=True) as server:
            await server.ask(call("GetQueueUrl", {"QueueName": "a\nb\x1b[31m" + "c" * 500}))

    run(main())
    (line,) = accesses(lines)
    assert line["queue"].startswith("a?b?[31mccc")
    assert len(line["queue"]) < 220


def test_a_client_that_goes_is_logged(lines: io.StringIO) -> None:
    async def main() -> None:
        service = Poller()
        async with served(service, access_log=True) as server:
            client = await server.connect()
            client.send(call("ReceiveMessage", {"QueueUrl": "http://localhost/0/orders"}))
            await until(lambda: bool(service.asked))
            client.close()
            await until(lambda: bool(accesses(lines)))

    run(main())
    assert [line["status"] for line in accesses(lines)] == [499]


def test_it_can_be_switched_off(lines: io.StringIO) -> None:
    async def main() -> None:
        async with served(Service(), access_log=False) as server:
            await server.ask(call("ListQueues"))

    run(main())
    assert not accesses(lines)
