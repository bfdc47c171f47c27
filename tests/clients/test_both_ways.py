"""The same rows by two doors: SQS and the library."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from typing import Any

import pytest

import fairturn
from tests.clients.serving import Served
from tests.clients.test_boto3 import ATTRIBUTES, BINARY, counts, receive
from tests.server.serve_programs import program, wait_for

pytestmark = pytest.mark.filterwarnings("error")


def test_boto3_calls_a_task_and_gets_its_answer(served: Served) -> None:
    extended = Served(served.backend, served.database, "--extended")
    sqs = extended.client()
    try:
        answers = sqs.create_queue(QueueName="bw-answers")["QueueUrl"]
        url = sqs.create_queue(QueueName="bw-greetings")["QueueUrl"]
        sqs.send_message(
            QueueUrl=url,
            MessageBody='{"name": "Jörg", "times": 2}',
            MessageAttributes={
                "Fairturn.Type": {"DataType": "String", "StringValue": "greet"},
                "lang": {"DataType": "String", "StringValue": "de"},
            },
        )
        words = ("worker", "tests.clients.tasks_app:app", "--log", "json")
        with program(*words, environment={"CLIENTS_DATABASE": served.database}) as worker:
            got: list[Any] = []
            asked = {"MessageAttributeNames": ["All"], "AttributeNames": ["MessageGroupId"]}

            def answered() -> bool:
                assert worker.process.poll() is None, worker.err
                got.extend(receive(sqs, answers, WaitTimeSeconds=2, **asked))
                return bool(got)

            wait_for(answered, lambda: f"no answer:\n{worker.err}")
            (message,) = got
            worker.signal()
            assert worker.end() == 0, worker.err
    finally:
        sqs.close()
        extended.close()
    assert json.loads(message["Body"]) == {"text": "Hello JörgHello Jörg", "attempt": 1}
    assert message["MessageAttributes"] == {
        "lang": {"DataType": "String", "StringValue": "de"},
        "times": {"DataType": "Number", "StringValue": "2"},
    }
    # A channel is a group, also one whose name SQS would have refused.
    assert message["Attributes"] == {"MessageGroupId": "Jörg"}
    with fairturn.connect(served.database) as db:
        left = db.queue("bw-greetings").stats()
        assert (left.ready, left.leased, left.dead) == (0, 0, 0)
    quarrels = [line for line in worker.logged() if line["level"] not in ("INFO", "DEBUG")]
    assert not quarrels


def test_the_library_sends_and_boto3_receives(served: Served, sqs: Any) -> None:
    bodies = ["text €", {"a": [1, None]}, b"utf-8 \xe2\x82\xac", BINARY, 7]
    shown = ["text €", '{"a":[1,null]}', "utf-8 €", b64encode(BINARY).decode(), "7"]
    with fairturn.connect(served.database) as db:
        queue = db.queue("bw-library")
        queue.create(lease=45)
        for body in bodies:
            queue.send(body, headers={"n": 1, "s": "x", "not a name": "hidden"})
    url = sqs.get_queue_url(QueueName="bw-library")["QueueUrl"]
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])
    assert told["Attributes"] == {"VisibilityTimeout": "45"}
    got: list[Any] = []
    while len(got) < len(bodies):
        got += receive(sqs, url, 10, MessageAttributeNames=["All"])
    assert [message["Body"] for message in got] == shown
    for message in got:
        assert message["MD5OfBody"] == hashlib.md5(message["Body"].encode()).hexdigest()
        assert message["MessageAttributes"] == {
            "n": {"DataType": "Number", "StringValue": "1"},
            "s": {"DataType": "String", "StringValue": "x"},
        }
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    with fairturn.connect(served.database) as db:
        assert db.queue("bw-library").stats().leased == 0


def test_boto3_sends_and_the_library_receives(served: Served, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="bw-sdk")["QueueUrl"]
    for body in ("plain", '{"a": [1, 2]}', "{not json"):
        sqs.send_message(
            QueueUrl=url, MessageBody=body, MessageAttributes=ATTRIBUTES, MessageGroupId="tenant"
        )
    with fairturn.connect(served.database) as db:
        messages = db.queue("bw-sdk").receive(10, wait=20)
        assert [message.body for message in messages] == ["plain", {"a": [1, 2]}, "{not json"]
        for message in messages:
            assert message.channel == "tenant"
            assert message.headers["text"] == ATTRIBUTES["text"]["StringValue"]
            assert message.headers["count"] == {"type": "Number", "value": "-12.50"}
            message.ack()
    assert counts(sqs, url) == [0, 0, 0]
