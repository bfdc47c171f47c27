"""Signatures and permissions at the HTTP door, with requests that the SDKs sign."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from fairturn.server.auth.callers import sender
from fairturn.server.auth.keys import AccessKey, Keys
from fairturn.server.sqs.request import SqsRequest
from tests.server.http_doors import Served, Service, call, form, get, run, served
from tests.server.signing import KEY, presign

LIMITED = AccessKey(
    "AKIDLIMITED", "hush", queues=("billing-",), actions=frozenset({"SendMessage", "GetQueueUrl"})
)
KEYS = Keys([KEY, LIMITED])


def sdk(server: Served, key: AccessKey, **changes: Any) -> Any:
    arguments = {
        "endpoint_url": f"http://127.0.0.1:{server.port}",
        "region_name": "eu-central-1",
        "aws_access_key_id": key.id,
        "aws_secret_access_key": key.secret,
        "config": Config(retries={"total_max_attempts": 1}),
        **changes,
    }
    return boto3.client("sqs", **arguments)


def queue(server: Served, name: str) -> str:
    return f"http://127.0.0.1:{server.port}/123456789012/{name}"


def code(call: Callable[..., Any], **input: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as refused:
        call(**input)
    answer: Mapping[str, Any] = refused.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def with_server(use: Callable[[Served, Service], None], service: Service | None = None) -> None:
    """``use`` blocks, so it has a thread."""

    async def main() -> None:
        found = service or Service()
        async with served(found, keys=KEYS) as server:
            await asyncio.to_thread(use, server, found)

    run(main())


def test_a_signed_request() -> None:
    def use(server: Served, service: Service) -> None:
        client = sdk(server, KEY)
        client.purge_queue(QueueUrl=queue(server, "größe & mehr"))
        client.close()
        (ask,) = service.asked
        assert ask.caller.account == "123456789012"
        assert ask.caller.region == "eu-central-1"
        assert ask.caller.sender == sender(KEY.id)
        assert len(ask.caller.sender) == 21
        assert ask.caller.allows("DeleteQueue", "anything")

    with_server(use)


def test_a_presigned_get() -> None:
    def use(server: Served, service: Service) -> None:
        url = presign(f"http://127.0.0.1:{server.port}/?Action=ListQueues&Version=2012-11-05", 60)
        assert httpx.get(url).status_code == 200
        assert httpx.get(url.replace("ListQueues", "DeleteQueue")).status_code == 403
        assert [ask.action for ask in service.asked] == ["ListQueues"]

    with_server(use)


def test_refused_signatures() -> None:
    def use(server: Served, service: Service) -> None:
        wrong = sdk(server, KEY, aws_secret_access_key="wrong")
        stranger = sdk(server, KEY, aws_access_key_id="AKIDNOBODY")
        elsewhere = boto3.client(
            "sns",
            endpoint_url=f"http://127.0.0.1:{server.port}",
            region_name="eu-central-1",
            aws_access_key_id=KEY.id,
            aws_secret_access_key=KEY.secret,
            config=Config(retries={"total_max_attempts": 1}),
        )
        assert code(wrong.list_queues) == ("SignatureDoesNotMatch", 403)
        assert code(stranger.list_queues) == ("InvalidClientTokenId", 403)
        assert code(elsewhere.list_topics) == ("SignatureDoesNotMatch", 403)
        for client in (wrong, stranger, elsewhere):
            client.close()
        assert not service.asked

    with_server(use)


@pytest.mark.parametrize(
    "request_bytes",
    [call("ListQueues"), form("Action=ListQueues"), get("/?Action=ListQueues"), call("FooBar")],
)
def test_unsigned_requests_are_refused_before_they_are_read(request_bytes: bytes) -> None:
    async def main() -> None:
        service = Service()
        async with served(service, keys=KEYS) as server:
            reply = await server.ask(request_bytes)
        assert reply.status == 403
        assert b"MissingAuthenticationToken" in reply.body
        assert not service.asked

    run(main())


def test_a_key_sees_its_own_queues_and_actions() -> None:
    def use(server: Served, service: Service) -> None:
        client = sdk(server, LIMITED)
        client.send_message(QueueUrl=queue(server, "billing-eu"), MessageBody="a")
        client.get_queue_url(QueueName="billing-eu")
        assert len(service.asked) == 2
        assert not service.asked[0].caller.allows("SendMessage", "orders")
        denied = ("AccessDenied", 403)
        orders = queue(server, "orders")
        assert code(client.send_message, QueueUrl=orders, MessageBody="a") == denied
        assert code(client.get_queue_url, QueueName="orders") == denied
        assert code(client.purge_queue, QueueUrl=queue(server, "billing-eu")) == denied
        assert code(client.list_queues) == denied
        client.close()
        assert len(service.asked) == 2

    async def answer(ask: SqsRequest) -> Mapping[str, Any]:
        if ask.action == "GetQueueUrl":
            return {"QueueUrl": "http://x"}
        return {"MessageId": "1", "MD5OfMessageBody": "0cc175b9c0f1b6a831c399e269772661"}

    with_server(use, Service(answer))
