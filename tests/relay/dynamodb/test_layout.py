"""The gem's tables and items, as they are: in both directions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from fairturn.core.errors import InvalidArgument
from fairturn.relay.destination import DestinationError
from fairturn.relay.dynamodb import DynamoStore, Waiting
from fairturn.relay.dynamodb.items import item
from tests.relay.dynamodb.original import Original
from tests.relay.dynamodb.stage import NOW, Stage, answer

WRAPPER = "ActiveJob::QueueAdapters::ShoryukenAdapter::JobWrapper"


def written_by_the_gem(queue: str, at: str) -> dict[str, Any]:
    """A job of Active Job, as the Ruby SDK writes what the gem gives it."""
    return {
        "scheduler": {"S": "shoryuken-waiter"},
        "job_id": {"S": "5a1f3c"},
        "perform_at": {"N": at},
        "sqs_message_body": {
            "M": {
                "job_class": {"S": "ReminderJob"},
                "job_id": {"S": "5a1f3c"},
                "provider_job_id": {"NULL": True},
                "queue_name": {"S": queue},
                "arguments": {"L": [{"N": "7"}, {"S": "naïve ☕\u0001"}, {"BOOL": True}]},
                "executions": {"N": "0"},
                "exception_executions": {"M": {}},
                "locale": {"S": "en"},
            }
        },
        "sqs_message_attributes": {
            "M": {
                "shoryuken_class": {
                    "M": {"string_value": {"S": WRAPPER}, "data_type": {"S": "String"}}
                }
            }
        },
    }


JOB = {
    "job_class": "ReminderJob",
    "job_id": "5a1f3c",
    "provider_job_id": None,
    "arguments": [7, "naïve ☕\u0001", True],
    "executions": 0,
    "exception_executions": {},
    "locale": "en",
}


def received(stage: Stage) -> list[dict[str, Any]]:
    answer = stage.sqs.receive_message(
        QueueUrl=stage.url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
    )
    return answer.get("Messages", [])


def test_a_table_is_as_the_gem_wants_it(stage: Stage) -> None:
    table = stage.dynamodb.describe_table(TableName=stage.queue)["Table"]
    kinds = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}
    assert kinds == {"scheduler": "S", "job_id": "S", "perform_at": "N"}
    assert table["KeySchema"] == [
        {"AttributeName": "scheduler", "KeyType": "HASH"},
        {"AttributeName": "job_id", "KeyType": "RANGE"},
    ]
    [index] = table["LocalSecondaryIndexes"]
    assert index["IndexName"] == "scheduler-perform_at-index"
    assert index["Projection"] == {"ProjectionType": "ALL"}
    assert index["KeySchema"] == [
        {"AttributeName": "scheduler", "KeyType": "HASH"},
        {"AttributeName": "perform_at", "KeyType": "RANGE"},
    ]
    store = DynamoStore(stage.dynamodb, stage.sqs)
    assert store.create_table(stage.queue) is False
    assert stage.queue in store.tables()


def test_what_the_gem_wrote_is_drained(stage: Stage) -> None:
    found = written_by_the_gem(stage.queue, "1899999999.1234567")
    stage.dynamodb.put_item(TableName=stage.queue, Item=found)
    [waiting] = stage.drain().waiting(stage.queue)
    assert waiting.at == datetime.fromtimestamp(1899999999.1234567, UTC)
    assert stage.drain().drain(stage.queue).sent == 1
    [message] = received(stage)
    assert json.loads(message["Body"]) == {**JOB, "queue_name": stage.queue}
    shoryuken = {"StringValue": WRAPPER, "DataType": "String"}
    assert message["MessageAttributes"] == {"shoryuken_class": shoryuken}


@pytest.mark.parametrize("as_text", [False, True])
def test_what_we_write_is_what_the_gem_writes(stage: Stage, as_text: bool) -> None:
    job = {**JOB, "queue_name": stage.queue}
    store = DynamoStore(stage.dynamodb, stage.sqs)
    at = datetime.fromtimestamp(1_900_000_000.5, UTC)
    assert store.put(stage.queue, json.dumps(job) if as_text else job, at) == "5a1f3c"
    assert stage.table() == {"5a1f3c": written_by_the_gem(stage.queue, "1900000000.5")}


def test_an_item_in_our_hands_still_is_for_the_gem(stage: Stage) -> None:
    stage.put(60, "job")

    def on_step(step: str, job_ids: Any) -> None:
        if step == "claimed":
            assert "fairturn_claim" in stage.table()["job"]
            Original(stage.dynamodb, stage.sqs, clock=lambda: stage.now).drain(stage.queue)

    stage.drain(on_step).drain(stage.queue)
    assert set(stage.arrived()) == {"job"}  # twice: the gem knows no claims
    assert not stage.table()


def test_numbers_keep_their_digits(stage: Stage) -> None:
    text = '{"job_id":"a","queue_name":"%s","n":[12345678901234567890.125,1e-7,-0.5,100]}'
    store = DynamoStore(stage.dynamodb, stage.sqs)
    store.put(stage.queue, text % stage.queue, NOW)
    [waiting] = store.waiting(stage.queue)
    read = json.loads(waiting.body, parse_float=Decimal, parse_int=Decimal)
    assert read["n"] == [Decimal(n) for n in ("12345678901234567890.125", "1e-7", "-0.5", "100")]


def test_any_text_and_binary_attributes_without_the_gem(stage: Stage) -> None:
    store = DynamoStore(stage.dynamodb, stage.sqs, gem=False, clock=lambda: NOW)
    attributes = {
        "a": {"DataType": "String", "StringValue": "é"},
        "b": {"DataType": "Binary.raw", "BinaryValue": b"\0\xff"},
        "n": {"DataType": "Number", "StringValue": "1.50"},
    }
    text = ' {"spaces":  "stay" } '
    id = store.put(stage.queue, text, NOW - 1, attributes=attributes)
    assert store.waiting(stage.queue) == [
        Waiting(id, datetime.fromtimestamp(NOW - 1, UTC), text, attributes)
    ]
    assert store.drain(stage.queue).sent == 1
    [message] = received(stage)
    assert (message["Body"], message["MessageAttributes"]) == (text, attributes)


def test_items_that_nobody_can_read_stay_and_stop_nothing(stage: Stage) -> None:
    broken = written_by_the_gem(stage.queue, "1900000000")
    del broken["sqs_message_body"]
    strange = item("strange", NOW, {"raw": b"x"}, {})
    misspelt = item("misspelt", NOW, {}, {})
    misspelt["sqs_message_attributes"]["M"]["a"] = {"M": {"StringValue": {"S": "x"}}}
    nil, untyped, number = (item(id, NOW, {}, {}) for id in ("nil", "untyped", "number"))
    kind = {"data_type": {"S": "String"}}
    for one, parts in (
        (nil, {**kind, "string_value": {"NULL": True}}),  # Ruby's nil
        (untyped, {"string_value": {"S": "x"}}),
        (number, {**kind, "binary_value": {"N": "1"}}),
    ):
        one["sqs_message_attributes"]["M"]["a"] = {"M": parts}
    for one in (broken, strange, misspelt, nil, untyped, number):
        stage.dynamodb.put_item(TableName=stage.queue, Item=one)
    stage.put(5, "sound")
    drained = stage.drain().drain(stage.queue)
    assert (drained.sent, drained.failed, drained.trouble) == (1, 6, None)
    reasons = "\n".join(sorted(drained.reasons))
    for said in (
        *("no sqs_message_body", "type B", "'StringValue', which SQS does not accept"),
        *("'nil': its attribute 'a' has a string_value that is no text", "'a' has no data_type"),
        "'a' has a binary_value that is not binary",
    ):
        assert said in reasons
    assert set(stage.table()) == {"5a1f3c", "strange", "misspelt", "nil", "untyped", "number"}
    assert not any("fairturn_claim" in one for one in stage.table().values())
    assert stage.drain().waiting(stage.queue) == []
    assert stage.drain().cancel(stage.queue, "strange")


def test_what_waits_can_be_seen_counted_and_cancelled(stage: Stage) -> None:
    store = DynamoStore(stage.dynamodb, stage.sqs, clock=lambda: NOW)
    for ahead in (-10, 0.5, 899, 900, 90_000):
        stage.put(ahead)
    summary = store.summary(stage.queue)
    assert (summary.waiting, summary.soon, summary.overdue) == (5, 3, 1)
    assert summary.oldest == datetime.fromtimestamp(NOW - 10, UTC)
    assert store.count(stage.queue) == 5
    assert [one.job_id for one in store.waiting(stage.queue, 2)] == ["job-0", "job-1"]
    assert len(store.waiting(stage.queue)) == 5
    assert store.cancel(stage.queue, "job-4")
    assert not store.cancel(stage.queue, "job-4")
    assert store.count(stage.queue) == 4
    assert store.waiting(stage.queue, 0) == []


def test_a_time_that_is_no_time_is_not_shown(stage: Stage) -> None:
    found = written_by_the_gem(stage.queue, "1900000000000")  # in milliseconds
    stage.dynamodb.put_item(TableName=stage.queue, Item=found)
    summary = stage.drain().summary(stage.queue)
    assert (summary.waiting, summary.soon, summary.oldest) == (1, 0, None)


def test_what_a_drain_has_in_hand_cannot_be_cancelled(stage: Stage) -> None:
    stage.put(5, "job")
    answers: dict[str, Any] = {}

    def on_step(step: str, job_ids: Any) -> None:
        other = DynamoStore(stage.dynamodb, stage.sqs, clock=lambda: NOW)
        if step == "claimed":
            answers["claimed"] = other.waiting(stage.queue)[0].claimed
            answers["cancelled"] = other.cancel(stage.queue, "job")

    stage.drain(on_step).drain(stage.queue)
    assert answers == {"claimed": True, "cancelled": False}
    assert set(stage.arrived()) == {"job"}


def test_send_message_as_boto3_has_it(stage: Stage) -> None:
    store = DynamoStore(stage.dynamodb, stage.sqs, gem=False, clock=lambda: NOW)
    attributes = {"a": {"DataType": "String", "StringValue": "x"}}
    far = {"MessageBody": "far", "DelaySeconds": 901, "MessageAttributes": attributes}
    sent = store.send_message(QueueUrl=stage.url, JobId="j", **far)
    assert sent == {"MessageId": "j"}
    [waiting] = store.waiting(stage.queue)
    assert (waiting.body, waiting.attributes) == ("far", attributes)
    # What goes straight to SQS replaces what waits, too.
    near = {"MessageBody": "near", "MessageAttributes": attributes}
    answer = store.send_message(QueueUrl=stage.url, JobId="j", **near)
    [message] = received(stage)
    assert answer["MessageId"] == message["MessageId"]
    assert (message["Body"], message["MessageAttributes"]) == ("near", attributes)
    assert store.count(stage.queue) == 0
    with pytest.raises(InvalidArgument, match="MessageGroupId: the gem's tables have no place"):
        store.send_message(QueueUrl=stage.url, MessageGroupId="g", **far)
    with pytest.raises(InvalidArgument, match="not both"):
        store.send_message(QueueUrl=stage.url, At=NOW, **far)


def test_no_delay_is_a_delay_too(stage: Stage) -> None:
    """Else the queue's own would apply."""
    sixty = {"DelaySeconds": "60"}
    stage.sqs.set_queue_attributes(QueueUrl=stage.url, Attributes=sixty)
    store = stage.drain()
    whens: dict[str, dict[str, Any]] = {
        "queue's": {},
        "none": {"DelaySeconds": 0},
        "now": {"At": stage.now},
    }
    for id, when in whens.items():
        text = json.dumps(stage.job(id))
        store.send_message(QueueUrl=stage.url, MessageBody=text, **when)
    assert stage.delays() == {"queue's": 60, "none": 0, "now": 0}
    stage.use(stage.world.name(".fifo"))
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    text = json.dumps(stage.job("now"))
    store.send_message(QueueUrl=stage.url, MessageBody=text, At=stage.now, **ids)
    assert set(stage.arrived()) == {"now"}


def test_a_queue_that_can_have_no_table(stage: Stage) -> None:
    url = stage.sqs.create_queue(QueueName="ab")["QueueUrl"]
    store = DynamoStore(stage.dynamodb, stage.sqs, gem=False)
    with pytest.raises(InvalidArgument, match="no DynamoDB table can be called 'ab'"):
        store.send_message(QueueUrl=url, MessageBody="job", JobId="j")
    assert stage.db.queue("ab").peek(10) == []
    store.send_message(QueueUrl=url, MessageBody="any")
    assert [one["Body"] for one in stage.sqs.receive_message(QueueUrl=url)["Messages"]] == ["any"]
    stage.sqs.delete_queue(QueueUrl=url)


def test_only_tables_of_others_are_left_out(stage: Stage) -> None:
    """A table that cannot be looked at just now is still there."""
    dynamodb = stage.dynamodb_client()
    store = DynamoStore(dynamodb, stage.sqs)
    for code in ("AccessDeniedException", "ResourceNotFoundException"):
        there = len(store.tables())
        answer(dynamodb, "DescribeTable", code)
        assert len(store.tables()) == there - 1
    for code in ("ThrottlingException", "InternalServerError", "ExpiredTokenException"):
        answer(dynamodb, "DescribeTable", code)
        with pytest.raises(DestinationError, match=code):
            store.tables()


@pytest.mark.parametrize(
    ("body", "job_id", "said"),
    [
        ("ahoy", None, "gem=False"),
        ([1], None, "gem=False"),
        ({"queue_name": "jobs"}, None, "own job_id is None"),
        ({"queue_name": "jobs", "job_id": "a"}, "b", "own job_id is 'a'"),
        ({"queue_name": "other", "job_id": "a"}, None, "queue_name is 'other', not 'jobs'"),
        ({"queue_name": "jobs", "job_id": "a", "n": float("nan")}, None, "not JSON"),
        ('{"queue_name": "jobs", "job_id": "a", "n": NaN}', None, "must be a JSON object"),
        ({"queue_name": "jobs", "job_id": "a", 1: 2}, None, "must be a string"),
    ],
)
def test_what_the_gem_could_not_read_is_not_written(body: Any, job_id: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        DynamoStore(None, None).put("jobs", body, NOW, job_id)


def test_mistakes_say_what_to_do(stage: Stage) -> None:
    store = DynamoStore(stage.dynamodb, stage.sqs)
    job = {"job_id": "a", "queue_name": "nowhere"}
    create = "Create it: fairturn relay dynamodb create-table nowhere"
    calls = [
        lambda: store.put("nowhere", job, NOW),
        lambda: store.cancel("nowhere", "a"),
        lambda: store.count("nowhere"),
        lambda: store.check_table("nowhere"),
        lambda: store.run(["nowhere"]),
    ]
    for call in calls:
        with pytest.raises(DestinationError, match=create):
            call()
    stage.sqs.create_queue(QueueName="nowhere")
    with pytest.raises(DestinationError, match=create):
        store.drain("nowhere")
    other = f"other-{stage.queue}"
    stage.dynamodb.create_table(
        TableName=other,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    assert other not in store.tables()
    for call in (lambda: store.create_table(other), lambda: store.count(other)):
        with pytest.raises(DestinationError, match="another layout"):
            call()
    with pytest.raises(DestinationError, match=r"does not exist\. Create it there"):
        store.drain(other)
    with pytest.raises(InvalidArgument, match="no DynamoDB table can be called 'a'"):
        store.put("a", {"job_id": "a", "queue_name": "a"}, NOW)
    with pytest.raises(InvalidArgument, match="attribute 'x' must have DataType"):
        DynamoStore(None, None, gem=False).put("jobs", "x", NOW, attributes={"x": {"S": "y"}})
