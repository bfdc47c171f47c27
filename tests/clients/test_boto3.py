"""boto3's client, with a key it signs with: what an application does all day."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any

import boto3
import httpx
import pytest
from botocore.exceptions import ClientError

from tests.clients.serving import ACCOUNT, Served
from tests.server.serve_programs import SECONDS, wait_for

pytestmark = pytest.mark.filterwarnings("error")  # deprecations of any kind
BINARY = bytes(range(256))
ATTRIBUTES = {
    "text": {"DataType": "String", "StringValue": "grüße\t€"},
    "label": {"DataType": "String.colour", "StringValue": "blue"},
    "count": {"DataType": "Number", "StringValue": "-12.50"},
    "blob": {"DataType": "Binary", "BinaryValue": BINARY},
    "photo": {"DataType": "Binary.png", "BinaryValue": b"\x00"},
}


def receive(sqs: Any, url: str, most: int = 1, **more: Any) -> list[Any]:
    given = {"WaitTimeSeconds": 20, **more}
    return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=most, **given).get("Messages", [])


def code_of(call: Any, **given: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**given)
    return caught.value.response["Error"]["Code"]


def counts(sqs: Any, url: str) -> list[int]:
    names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return [int(told[name]) for name in names]


def test_a_message_with_attributes(served: Served, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="b3-attributes")["QueueUrl"]
    assert url == served.queue_url("b3-attributes")
    assert sqs.get_queue_url(QueueName="b3-attributes")["QueueUrl"] == url
    body = "<ahoy> & \r\n\u00a0\U0001f6a2"
    sent = sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=ATTRIBUTES)
    (message,) = receive(sqs, url, AttributeNames=["All"], MessageAttributeNames=["All"])
    assert message["Body"] == body
    assert message["MessageId"] == sent["MessageId"]
    md5 = hashlib.md5(body.encode()).hexdigest()
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"] == md5
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert message["Attributes"]["SenderId"] not in ("", ACCOUNT)
    assert counts(sqs, url) == [0, 1, 0]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert counts(sqs, url) == [0, 0, 0]


def test_only_the_key_is_let_in(served: Served) -> None:
    told = served.connection()
    for wrong, code in (
        ({"aws_secret_access_key": "another"}, "SignatureDoesNotMatch"),
        ({"aws_access_key_id": "AKIDSTRANGER"}, "InvalidClientTokenId"),
    ):
        stranger = boto3.client("sqs", **{**told, **wrong})
        assert code_of(stranger.list_queues) == code
        stranger.close()


def test_batches(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="b3-batches")["QueueUrl"]
    entries = [
        {"Id": f"n{n}", "MessageBody": f"body {n}", "MessageAttributes": ATTRIBUTES}
        for n in range(9)
    ]
    late = {"Id": "late", "MessageBody": "x", "DelaySeconds": 901}
    sent = sqs.send_message_batch(QueueUrl=url, Entries=[*entries, late])
    assert [entry["Id"] for entry in sent["Successful"]] == [entry["Id"] for entry in entries]
    assert [(entry["Id"], entry["SenderFault"]) for entry in sent["Failed"]] == [("late", True)]
    got: list[Any] = []
    while len(got) < 9:
        got += receive(sqs, url, 10, MessageAttributeNames=["bl.*", "count"])
    assert sorted(message["Body"] for message in got) == [f"body {n}" for n in range(9)]
    assert all(message["MessageAttributes"].keys() == {"blob", "count"} for message in got)
    handles = [
        {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(got)
    ]
    changed = sqs.change_message_visibility_batch(
        QueueUrl=url,
        Entries=[{**handle, "VisibilityTimeout": 600} for handle in handles[:8]]
        + [{"Id": "bad", "ReceiptHandle": "nonsense", "VisibilityTimeout": 1}],
    )
    assert len(changed["Successful"]) == 8
    assert [entry["Code"] for entry in changed["Failed"]] == ["ReceiptHandleIsInvalid"]
    assert "Failed" not in sqs.delete_message_batch(QueueUrl=url, Entries=handles)
    assert counts(sqs, url) == [0, 0, 0]
    assert code_of(sqs.send_message_batch, QueueUrl=url, Entries=[]).endswith("EmptyBatchRequest")


def test_a_long_poll_ends_with_the_first_message(served: Served, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="b3-poll", Attributes={"ReceiveMessageWaitTimeSeconds": "20"})[
        "QueueUrl"
    ]
    got: list[Any] = []
    poll = threading.Thread(target=lambda: got.extend(receive(sqs, url, 10)))
    poll.start()
    wait_for(lambda: _open_polls(served) == 1)
    other = served.client()
    other.send_message(QueueUrl=url, MessageBody="at last")
    poll.join(SECONDS)
    other.close()
    assert [message["Body"] for message in got] == ["at last"]


def _open_polls(served: Served) -> int:
    text = httpx.get(f"{served.url}/metrics").text
    return sum(
        int(line.split()[-1])
        for line in text.splitlines()
        if "open_polls" in line and not line.startswith("#")
    )


def test_delays_and_visibility(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="b3-delays", Attributes={"VisibilityTimeout": "600"})[
        "QueueUrl"
    ]
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=900)
    sqs.send_message(QueueUrl=url, MessageBody="soon", DelaySeconds=1)
    assert receive(sqs, url, WaitTimeSeconds=0) == []
    assert counts(sqs, url) == [0, 0, 2]
    (message,) = receive(sqs, url)
    assert message["Body"] == "soon"
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
    )
    (again,) = receive(sqs, url, AttributeNames=["ApproximateReceiveCount"])
    assert again["MessageId"] == message["MessageId"]
    assert again["Attributes"] == {"ApproximateReceiveCount": "2"}
    # The first handle is still good on a standard queue.
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert counts(sqs, url) == [0, 0, 1]


def test_fifo(sqs: Any) -> None:
    url = sqs.create_queue(
        QueueName="b3.fifo",
        Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"},
    )["QueueUrl"]
    sent = [
        sqs.send_message(QueueUrl=url, MessageBody=f"{group}{n}", MessageGroupId=group)
        for n in range(3)
        for group in ("a", "b")
    ]
    numbers = [answer["SequenceNumber"] for answer in sent]
    assert numbers == sorted(set(numbers))
    again = sqs.send_message(QueueUrl=url, MessageBody="a0", MessageGroupId="a")
    assert again["MessageId"] == sent[0]["MessageId"]
    named = {"MessageGroupId": "a", "MessageDeduplicationId": "mine"}
    for body in ("a3", "not this one"):
        sqs.send_message(QueueUrl=url, MessageBody=body, **named)
    got: dict[str, list[str]] = {}
    while sum(map(len, got.values())) < 7:
        messages = receive(sqs, url, 10, MessageSystemAttributeNames=["All"])
        for message in messages:
            group = message["Attributes"]["MessageGroupId"]
            got.setdefault(group, []).append(message["Body"])
            assert message["Attributes"]["SequenceNumber"].isdigit()
        sqs.delete_message_batch(
            QueueUrl=url,
            Entries=[
                {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]}
                for n, message in enumerate(messages)
            ],
        )
    assert got == {"a": ["a0", "a1", "a2", "a3"], "b": ["b0", "b1", "b2"]}
    assert counts(sqs, url) == [0, 0, 0]
    refused = code_of(sqs.send_message, QueueUrl=url, MessageBody="x")
    assert refused == "MissingParameter"


def test_a_receive_that_is_repeated(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="b3-repeat.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    sqs.send_message(
        QueueUrl=url, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="one"
    )
    first = receive(sqs, url, ReceiveRequestAttemptId="try")
    assert receive(sqs, url, ReceiveRequestAttemptId="try") == first
    assert receive(sqs, url, WaitTimeSeconds=0) == []


def test_dead_letters_and_the_way_back(served: Served, sqs: Any) -> None:
    dead = sqs.create_queue(QueueName="b3-dead")["QueueUrl"]
    policy = {"deadLetterTargetArn": served.arn("b3-dead"), "maxReceiveCount": 2}
    url = sqs.create_queue(QueueName="b3-work", Attributes={"RedrivePolicy": json.dumps(policy)})[
        "QueueUrl"
    ]
    listed = sqs.list_dead_letter_source_queues(QueueUrl=dead)
    assert listed["queueUrls"] == [url]
    for n in range(3):
        sqs.send_message(QueueUrl=url, MessageBody=str(n), MessageAttributes=ATTRIBUTES)
    for _ in range(2):
        for _ in range(3):
            assert receive(sqs, url, VisibilityTimeout=0)
    assert receive(sqs, url, WaitTimeSeconds=0) == []
    assert (counts(sqs, url), counts(sqs, dead)) == ([0, 0, 0], [3, 0, 0])
    (message,) = receive(sqs, dead, AttributeNames=["All"], VisibilityTimeout=0)
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == served.arn("b3-work")

    handle = sqs.start_message_move_task(SourceArn=served.arn("b3-dead"))["TaskHandle"]
    wait_for(lambda: _task(served, sqs)["Status"] == "COMPLETED")
    task = _task(served, sqs)
    assert task["ApproximateNumberOfMessagesMoved"] == 3
    assert "DestinationArn" not in task
    assert (counts(sqs, url), counts(sqs, dead)) == ([3, 0, 0], [0, 0, 0])
    (message,) = receive(sqs, url, AttributeNames=["All"], MessageAttributeNames=["All"])
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert message["MessageAttributes"] == ATTRIBUTES
    with pytest.raises(sqs.exceptions.UnsupportedOperation):
        sqs.cancel_message_move_task(TaskHandle=handle)


def _task(served: Served, sqs: Any) -> Any:
    return sqs.list_message_move_tasks(SourceArn=served.arn("b3-dead"))["Results"][0]


def test_a_move_task_is_cancelled(served: Served, sqs: Any) -> None:
    dead = sqs.create_queue(QueueName="b3-slow-dead")["QueueUrl"]
    policy = {"deadLetterTargetArn": served.arn("b3-slow-dead"), "maxReceiveCount": 1}
    sqs.create_queue(QueueName="b3-slow", Attributes={"RedrivePolicy": json.dumps(policy)})
    other = sqs.create_queue(QueueName="b3-slow-target")["QueueUrl"]
    for batch in range(3):
        sqs.send_message_batch(
            QueueUrl=dead,
            Entries=[{"Id": str(n), "MessageBody": f"{batch} {n}"} for n in range(10)],
        )
    handle = sqs.start_message_move_task(
        SourceArn=served.arn("b3-slow-dead"),
        DestinationArn=served.arn("b3-slow-target"),
        MaxNumberOfMessagesPerSecond=1,
    )["TaskHandle"]
    wait_for(lambda: counts(sqs, other)[0] > 0)
    moved = sqs.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]

    def task() -> Any:
        return sqs.list_message_move_tasks(SourceArn=served.arn("b3-slow-dead"))["Results"][0]

    wait_for(lambda: task()["Status"] == "CANCELLED")
    gone = counts(sqs, other)[0]
    assert moved <= gone == task()["ApproximateNumberOfMessagesMoved"] < 30
    assert counts(sqs, dead)[0] == 30 - gone


def test_purge(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="b3-purge")["QueueUrl"]
    for delay in (0, 0, 900):
        sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=delay)
    receive(sqs, url)
    assert counts(sqs, url) == [1, 1, 1]
    sqs.purge_queue(QueueUrl=url)
    assert counts(sqs, url) == [0, 0, 0]
    with pytest.raises(sqs.exceptions.PurgeQueueInProgress):
        sqs.purge_queue(QueueUrl=url)


def test_attributes_and_tags_of_a_queue(served: Served, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="b3-set", tags={"team": "blue"})["QueueUrl"]
    sqs.set_queue_attributes(
        QueueUrl=url, Attributes={"VisibilityTimeout": "7", "MessageRetentionPeriod": "60"}
    )
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert told["QueueArn"] == served.arn("b3-set")
    assert (told["VisibilityTimeout"], told["MessageRetentionPeriod"]) == ("7", "60")
    assert "FifoQueue" not in told
    sqs.tag_queue(QueueUrl=url, Tags={"stage": "", "Team": "red"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["team", "unknown"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"stage": "", "Team": "red"}
    sqs.add_permission(
        QueueUrl=url, Label="them", AWSAccountIds=["111122223333"], Actions=["SendMessage"]
    )
    policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]
    assert json.loads(policy["Policy"])["Statement"][0]["Sid"] == "them"
    sqs.remove_permission(QueueUrl=url, Label="them")
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])
    assert "Attributes" not in told
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName="b3-set", Attributes={"VisibilityTimeout": "8"})
    sqs.delete_queue(QueueUrl=url)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName="b3-set")
