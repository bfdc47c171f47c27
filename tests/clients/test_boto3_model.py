"""What botocore's model offers besides its calls, and boto3's resources on top of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore import xform_name

from tests.clients.serving import Served
from tests.clients.test_boto3 import ATTRIBUTES

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def sqs_resource(served: Served) -> Iterator[Any]:
    resource = served.resource()
    yield resource
    resource.meta.client.close()


def test_every_paginator(served: Served, sqs: Any) -> None:
    """botocore's model has these two; a third one would have to be tested here."""
    names = sqs.meta.service_model.operation_names
    pageable = {name for name in map(xform_name, names) if sqs.can_paginate(name)}
    assert pageable == {"list_queues", "list_dead_letter_source_queues"}

    dead = sqs.create_queue(QueueName="b3-pages-dead")["QueueUrl"]
    policy = {"deadLetterTargetArn": served.arn("b3-pages-dead"), "maxReceiveCount": 2}
    urls = [
        sqs.create_queue(
            QueueName=f"b3-pages-{n}", Attributes={"RedrivePolicy": json.dumps(policy)}
        )["QueueUrl"]
        for n in range(5)
    ]
    for name, given, key, whole in (
        ("list_queues", {"QueueNamePrefix": "b3-pages-"}, "QueueUrls", {*urls, dead}),
        ("list_dead_letter_source_queues", {"QueueUrl": dead}, "queueUrls", set(urls)),
    ):
        paginator = sqs.get_paginator(name)
        pages = list(paginator.paginate(**given, PaginationConfig={"PageSize": 2}))
        found = [url for page in pages for url in page[key]]
        assert len(pages) == 3, name
        assert (len(found), set(found)) == (len(whole), whole), name
        # Stopped after three, and gone on from the token, as a web page does.
        config = {"PageSize": 2, "MaxItems": 3}
        first = paginator.paginate(**given, PaginationConfig=config).build_full_result()
        token = {"StartingToken": first["NextToken"], "PageSize": 2}
        rest = paginator.paginate(**given, PaginationConfig=token).build_full_result()
        assert first[key] + rest[key] == found, name


def test_every_waiter(sqs: Any) -> None:
    """botocore has no waiter for SQS; one that appears would have to be tested here."""
    assert sqs.waiter_names == []


# --- resources --------------------------------------------------------------------------------
def test_the_resource_of_a_queue(served: Served, sqs_resource: Any) -> None:
    made = sqs_resource.create_queue(QueueName="b3r-queue", Attributes={"VisibilityTimeout": "60"})
    queue = sqs_resource.get_queue_by_name(QueueName="b3r-queue")
    assert queue == made == sqs_resource.Queue(served.queue_url("b3r-queue"))
    assert queue.attributes["VisibilityTimeout"] == "60"
    queue.send_message(MessageBody="one", MessageAttributes=ATTRIBUTES)
    sent = queue.send_messages(
        Entries=[{"Id": "a", "MessageBody": "two"}, {"Id": "b", "MessageBody": "three"}]
    )
    assert len(sent["Successful"]) == 2
    got: list[Any] = []
    while len(got) < 3:
        got += queue.receive_messages(
            MaxNumberOfMessages=10, WaitTimeSeconds=20, MessageAttributeNames=["All"]
        )
    first = next(message for message in got if message.body == "one")
    assert first.message_attributes == ATTRIBUTES
    assert {message.body for message in got} == {"one", "two", "three"}
    assert first.Queue() == queue
    first.change_visibility(VisibilityTimeout=0)
    (again,) = queue.receive_messages(WaitTimeSeconds=20)
    assert again.message_id == first.message_id
    queue.change_message_visibility_batch(
        Entries=[{"Id": "a", "ReceiptHandle": again.receipt_handle, "VisibilityTimeout": 90}]
    )
    again.delete()
    others = [message for message in got if message is not first]
    deleted = queue.delete_messages(
        Entries=[
            {"Id": str(n), "ReceiptHandle": message.receipt_handle}
            for n, message in enumerate(others)
        ]
    )
    assert len(deleted["Successful"]) == 2
    queue.set_attributes(Attributes={"VisibilityTimeout": "61"})
    queue.add_permission(Label="l", AWSAccountIds=["111122223333"], Actions=["*"])
    queue.reload()
    assert queue.attributes["ApproximateNumberOfMessages"] == "0"
    assert queue.attributes["ApproximateNumberOfMessagesNotVisible"] == "0"
    assert queue.attributes["VisibilityTimeout"] == "61"
    assert "Policy" in queue.attributes
    queue.remove_permission(Label="l")
    queue.purge()
    queue.delete()
    assert list(sqs_resource.queues.filter(QueueNamePrefix="b3r-queue")) == []


def test_the_collections_of_resources(served: Served, sqs_resource: Any) -> None:
    dead = sqs_resource.create_queue(QueueName="b3r-many-dead")
    policy = {"deadLetterTargetArn": dead.attributes["QueueArn"], "maxReceiveCount": 3}
    queues = [
        sqs_resource.create_queue(
            QueueName=f"b3r-many-{n}", Attributes={"RedrivePolicy": json.dumps(policy)}
        )
        for n in range(3)
    ]
    found = list(sqs_resource.queues.filter(QueueNamePrefix="b3r-many-").page_size(2))
    assert sorted(queue.url for queue in found) == sorted(q.url for q in [*queues, dead])
    assert {queue.url for queue in dead.dead_letter_source_queues.all()} == {q.url for q in queues}
    assert len(list(sqs_resource.queues.limit(2))) == 2
    assert {queue.url for queue in found} <= {queue.url for queue in sqs_resource.queues.all()}
