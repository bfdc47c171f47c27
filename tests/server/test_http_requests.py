"""Requests and answers of the HTTP door, byte by byte."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from fairturn.core.errors import DatabaseUnavailable
from fairturn.server.sqs.request import SqsRequest
from fairturn.sqs import errors
from tests.server.http_doors import Service, call, form, get, run, served

ORDERS = {"QueueUrl": "http://localhost:9324/000000000000/orders"}
SEND = {**ORDERS, "MessageBody": "confidential"}
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


async def sent(ask: SqsRequest) -> Mapping[str, Any]:
    return {"MessageId": "1", "MD5OfMessageBody": "2"}


def failing(error: Exception) -> Service:
    async def answer(_: SqsRequest) -> None:
        raise error

    return Service(answer)


def test_json() -> None:
    async def main() -> None:
        service = Service(sent)
        async with served(service) as server:
            reply = await server.ask(call("SendMessage", SEND, "X-Amzn-Trace-Id: Root=1-2-3"))
        assert reply.status == 200
        assert reply.json == {"MessageId": "1", "MD5OfMessageBody": "2"}
        assert sorted(name for name, _ in reply.headers) == [
            "content-length",
            "content-type",
            "date",
            "x-amzn-requestid",
        ]
        assert reply["content-type"] == "application/x-amz-json-1.0"
        assert parsedate_to_datetime(reply["date"]).tzinfo is not None
        assert ID.fullmatch(reply["x-amzn-requestid"])
        (ask,) = service.asked
        assert (ask.action, ask.input) == ("SendMessage", SEND)
        assert ask.base_url == "http://localhost:9324"
        assert (ask.caller.account, ask.caller.region, ask.trace) == (
            "000000000000",
            "us-east-1",
            "Root=1-2-3",
        )
        assert ask.caller.sender.startswith("AIDA")
        assert ask.caller.allows("DeleteQueue", "anything")
        assert "confidential" not in repr(ask)

    run(main())


def test_query_on_a_queues_url_and_by_get() -> None:
    async def main() -> None:
        service = Service(sent)
        text = "Action=SendMessage&MessageBody=a%20b"
        async with served(service) as server:
            one = await server.ask(form(text, path="/000000000000/orders"))
            other = await server.ask(get(f"/000000000000/orders?{text}"))
        for reply in (one, other):
            assert reply.status == 200
            assert reply["content-type"].startswith("text/xml")
            assert b"<MessageId>1</MessageId>" in reply.body
            assert f"<RequestId>{reply['x-amzn-requestid']}</RequestId>".encode() in reply.body
        for ask in service.asked:
            assert ask.input["QueueUrl"].endswith("/000000000000/orders")
            assert ask.input["MessageBody"] == "a b"

    run(main())


def test_a_connection_is_kept_and_pipelined() -> None:
    async def main() -> None:
        service = Service()
        async with served(service) as server:
            client = await server.connect()
            client.send(call("DeleteQueue", ORDERS) + call("PurgeQueue", ORDERS))
            client.send(get("/?Action=ListQueues"))
            statuses = [(await client.reply()).status for _ in range(3)]
            client.close()
        assert statuses == [200, 200, 200]
        assert [ask.action for ask in service.asked] == ["DeleteQueue", "PurgeQueue", "ListQueues"]

    run(main())


def test_a_body_in_pieces() -> None:
    async def main() -> None:
        service = Service()
        async with served(service) as server:
            client = await server.connect()
            whole = call("DeleteQueue", ORDERS)
            for at in range(0, len(whole), 40):
                client.send(whole[at : at + 40])
                await client.writer.drain()
                await asyncio.sleep(0)
            assert (await client.reply()).status == 200
            client.send(
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-amz-json-1.0\r\n"
                b"X-Amz-Target: AmazonSQS.ListQueues\r\nTransfer-Encoding: chunked\r\n"
                b"Expect: 100-continue\r\n\r\n"
            )
            assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.send(b"1\r\n{\r\n1\r\n}\r\n0\r\nX-Amz-Target: AmazonSQS.DeleteQueue\r\n\r\n")
            assert (await client.reply()).status == 200
            client.close()
        # What comes behind a body, which nobody signs, is no header.
        assert [ask.action for ask in service.asked] == ["DeleteQueue", "ListQueues"]

    run(main())


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (call("FooBar"), 400, "InvalidAction"),
        (call("SendMessage", {"QueueUrl": 5}), 400, "SerializationException"),
        (call("DeleteQueue", {"QueueUrl": "http://["}), 404, "InvalidAddress"),
        (call("ListQueues", {}, "Host: a b"), 400, "MalformedInput"),
        (form("Action=FooBar"), 400, "InvalidAction"),
        (form("nothing"), 404, "UnknownOperationException"),
        (get("/"), 404, "UnknownOperationException"),
        (get("/health/"), 404, "UnknownOperationException"),
        (b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 400, ""),
        (b"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", 404, "UnknownOperationException"),
        (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 404, "UnknownOperationException"),
        (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400, ""),
        (b"GET http://b HTTP/1.1\r\nHost: a\r\n\r\n", 400, ""),
        (b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400, ""),
        (b"nonsense\r\n\r\n", 400, ""),
        (get("/", "Connection: Upgrade", "Upgrade: websocket"), 404, "UnknownOperationException"),
    ],
)
def test_what_makes_no_sense_is_refused(request_bytes: bytes, status: int, code: str) -> None:
    async def main() -> None:
        service = Service()
        async with served(service) as server:
            reply = await server.ask(request_bytes)
            assert (await server.ask(call("ListQueues"))).status == 200  # it goes on
        assert reply.status == status
        assert len([name for name, _ in reply.headers if name == "date"]) == 1
        assert code.encode() in reply.body
        if code and b"__type" in reply.body:
            assert reply["x-amzn-query-error"] == f"{code};Sender"
        assert len(service.asked) == 1

    run(main())


def test_head_gets_no_body() -> None:
    async def main() -> None:
        async with served(Service()) as server:
            client = await server.connect()
            client.send(b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            whole = await client.reader.read()
            client.close()
        assert whole.startswith(b"HTTP/1.1 404 ")
        assert whole.endswith(b"\r\n\r\n")

    run(main())


def test_http_1_0_without_a_host() -> None:
    async def main() -> None:
        service = Service()
        async with served(service) as server:
            await server.ask(b"GET /?Action=ListQueues HTTP/1.0\r\n\r\n")
            assert service.asked[0].base_url == f"http://127.0.0.1:{server.port}"

    run(main())


@pytest.mark.parametrize("host", ["sqs.internal", "[::1]:9324", "fairturn:80"])
def test_urls_are_what_the_caller_calls_us(host: str) -> None:
    async def main() -> None:
        service = Service()
        async with served(service) as server:
            await server.ask(call("ListQueues", {}, f"Host: {host}"))
        assert service.asked[0].base_url == f"http://{host}"

    run(main())


@pytest.mark.parametrize(
    ("header", "code"),
    [("X-Amz-Target: AmazonSQS.ListQueues", "InvalidAction"), ("Host: b", "MalformedInput")],
)
def test_a_header_that_comes_twice_has_no_meaning(header: str, code: str) -> None:
    async def main() -> None:
        service = Service()
        async with served(service) as server:
            reply = await server.ask(call("ListQueues", {}, "Host: a", header))
        assert reply["x-amzn-query-error"] == f"{code};Sender"
        assert service.asked == []

    run(main())


def test_behind_a_proxy_the_url_is_configured() -> None:
    async def main() -> None:
        service = Service()
        async with served(service, url="https://sqs.example.com") as server:
            await server.ask(call("ListQueues"))
        assert service.asked[0].base_url == "https://sqs.example.com"

    run(main())


@pytest.mark.parametrize(
    ("credential", "region"),
    [
        ("any/20260101/eu-west-3/sqs/aws4_request", "eu-west-3"),
        ("any/20260101/EU WEST/sqs/aws4_request", "us-east-1"),
        ("any/20260101//sqs/aws4_request", "us-east-1"),
        ("any/eu-west-3", "us-east-1"),
        (f"any/20260101/{'a' * 65}/sqs/aws4_request", "us-east-1"),
    ],
)
def test_the_region_of_a_signature_that_nobody_verifies(credential: str, region: str) -> None:
    async def main() -> None:
        service = Service()
        signature = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0"
        async with served(service) as server:
            await server.ask(call("ListQueues", {}, f"Authorization: {signature}"))
        assert service.asked[0].caller.region == region

    run(main())


@pytest.mark.parametrize(
    "header",
    ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-origin"],
)
def test_web_pages_are_refused_where_there_are_no_keys(header: str) -> None:
    async def main() -> None:
        service = Service()
        async with served(service) as server:
            one = await server.ask(form("Action=ListQueues", header))
            other = await server.ask(get("/?Action=ListQueues", header))
            typed = await server.ask(get("/?Action=ListQueues", "Sec-Fetch-Site: none"))
        assert (one.status, other.status, typed.status) == (403, 403, 200)
        assert b"<Code>AccessDenied</Code>" in one.body
        assert len(service.asked) == 1

    run(main())


# --- trouble behind the door --------------------------------------------------------------------
def test_a_refusal_of_the_service() -> None:
    async def main() -> None:
        async with served(failing(errors.QUEUE_DOES_NOT_EXIST())) as server:
            one = await server.ask(call("SendMessage", SEND))
            other = await server.ask(form("Action=PurgeQueue", path="/0/orders"))
        assert (one.status, other.status) == (400, 400)
        assert one.json["__type"] == "com.amazonaws.sqs#QueueDoesNotExist"
        assert one["x-amzn-query-error"] == "AWS.SimpleQueueService.NonExistentQueue;Sender"
        assert b"for this wsdl version" in other.body

    run(main())


def test_a_mistake_of_ours_is_a_500_and_its_traceback_has_no_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(ask: SqsRequest) -> None:
        try:
            json.loads(ask.input["MessageBody"])
        except ValueError as error:
            raise RuntimeError(f"cannot store {ask.input['MessageBody']}") from error

    async def main() -> None:
        async with served(Service(answer)) as server:
            one = await server.ask(call("SendMessage", SEND))
            other = await server.ask(form("Action=SendMessage&MessageBody=secret", path="/0/a"))
        assert (one.status, other.status) == (500, 500)
        assert one.json["__type"].endswith("#InternalFailure")
        assert one["x-amzn-query-error"] == "InternalFailure;Receiver"
        assert b"<Code>InternalFailure</Code>" in other.body
        assert "confidential" not in one.body.decode()
        record, _ = (r for r in caplog.records if r.name == "fairturn.server")
        assert one["x-amzn-requestid"] in record.getMessage()
        assert record.exc_text is not None
        assert "builtins.RuntimeError" in record.exc_text
        assert "in answer" in record.exc_text
        assert "json.decoder.JSONDecodeError" in record.exc_text
        assert "confidential" not in caplog.text
        assert "secret" not in caplog.text

    run(main())


def test_a_result_that_the_table_lacks_is_a_mistake_too(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(_: SqsRequest) -> Mapping[str, Any]:
        return {"Nonsense": 1}

    async def main() -> None:
        async with served(Service(answer)) as server:
            assert (await server.ask(call("SendMessage", SEND))).status == 500

    run(main())
    assert "builtins.KeyError" in caplog.text


def test_without_the_database_requests_get_503_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "fairturn.server")
    away = True

    async def answer(_: SqsRequest) -> None:
        if away:
            raise DatabaseUnavailable("it is gone")

    async def main() -> None:
        nonlocal away
        async with served(Service(answer)) as server:
            one = await server.ask(call("ListQueues"))
            other = await server.ask(form("Action=ListQueues"))
            away = False
            again = [(await server.ask(call("ListQueues"))).status for _ in range(2)]
        assert (one.status, other.status, again) == (503, 503, [200, 200])
        assert one.json["__type"].endswith("#ServiceUnavailable")
        assert one["x-amzn-query-error"] == "ServiceUnavailable;Receiver"
        assert b"<Code>ServiceUnavailable</Code>" in other.body

    run(main())
    assert caplog.text.count("it is gone") == 1
    assert caplog.text.count("the database answers again") == 1
