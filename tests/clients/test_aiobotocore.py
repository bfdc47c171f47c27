"""aiobotocore: many calls at once in one event loop, over aiohttp."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from tests.clients.serving import Served
from tests.clients.test_boto3 import ATTRIBUTES
from tests.server.serve_programs import SECONDS

pytestmark = pytest.mark.filterwarnings("error")
MANY = 40


def test_aiobotocore(served: Served) -> None:
    async def main() -> None:
        config = AioConfig(read_timeout=SECONDS, max_pool_connections=20)
        client = get_session().create_client("sqs", config=config, **served.connection())
        async with client as sqs:
            await traffic(sqs, "aio")
            await pages(sqs, "aio")
            await refusals(sqs)

    asyncio.run(main())


async def traffic(sqs: Any, name: str) -> None:
    """Four consumers that poll from the start, and forty senders at once."""
    url = (await sqs.create_queue(QueueName=name))["QueueUrl"]
    got: list[Any] = []

    async def consume() -> None:
        while len(got) < MANY:
            answer = await sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=3,
                WaitTimeSeconds=1,
                MessageAttributeNames=["All"],
            )
            messages = answer.get("Messages", [])
            got.extend(messages)
            for message in messages:
                await sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    async def send(n: int) -> str:
        answer = await sqs.send_message(
            QueueUrl=url, MessageBody=f"body {n}", MessageAttributes=ATTRIBUTES
        )
        return answer["MessageId"]

    async with asyncio.TaskGroup() as group:
        consumers = [group.create_task(consume()) for _ in range(4)]
        senders = [group.create_task(send(n)) for n in range(MANY)]
    assert all(consumer.done() for consumer in consumers)
    assert sorted(message["MessageId"] for message in got) == sorted(s.result() for s in senders)
    assert {message["Body"] for message in got} == {f"body {n}" for n in range(MANY)}
    assert all(message["MessageAttributes"] == ATTRIBUTES for message in got)
    told = await sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    assert told["Attributes"]["ApproximateNumberOfMessages"] == "0"
    assert told["Attributes"]["ApproximateNumberOfMessagesNotVisible"] == "0"


async def pages(sqs: Any, name: str) -> None:
    names = [f"{name}-page-{n}" for n in range(3)]
    urls = {(await sqs.create_queue(QueueName=name))["QueueUrl"] for name in names}
    found: list[str] = []
    paginator = sqs.get_paginator("list_queues")
    given = {"QueueNamePrefix": f"{name}-page-", "PaginationConfig": {"PageSize": 2}}
    async for page in paginator.paginate(**given):
        found += page["QueueUrls"]
    assert (len(found), set(found)) == (3, urls)


async def refusals(sqs: Any) -> None:
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        await sqs.get_queue_url(QueueName="aio-nowhere")
