"""What SQS refuses without looking into a database: names, numbers, batches, ids."""

from __future__ import annotations

from typing import Any

import pytest

from fairturn.sqs import checks, limits
from tests.server.sqs_asking import refusal

STANDARD_NAME = (
    "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
)


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 80])
def test_names_of_standard_queues(name: str) -> None:
    checks.queue_name(name, fifo=False)


@pytest.mark.parametrize("name", ["", "x" * 81, "a b", "a.b", "ü", "a/b", "a\n", "a.fifo", ".fifo"])
def test_names_that_standard_queues_cannot_have(name: str) -> None:
    error = refusal(checks.queue_name, name, fifo=False)
    assert (error.code, error.message) == ("InvalidParameterValue", STANDARD_NAME)


@pytest.mark.parametrize("name", ["a.fifo", "x" * 75 + ".fifo"])
def test_names_of_fifo_queues(name: str) -> None:
    checks.queue_name(name, fifo=True)


@pytest.mark.parametrize("name", ["a", ".fifo", "x" * 76 + ".fifo", "a.b.fifo", "a.FIFO"])
def test_names_that_fifo_queues_cannot_have(name: str) -> None:
    error = refusal(checks.queue_name, name, fifo=True)
    assert error.code == "InvalidParameterValue"
    assert "must end with .fifo suffix" in error.message


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:9324/123456789012/orders",
        "https://sqs.eu-west-1.amazonaws.com/123456789012/orders",
        "https://queue.amazonaws.com/123456789012/orders/",
        "http://elsewhere/queue/orders",
        "/123456789012/orders",
        "123456789012/orders",
        "orders",
        "http://localhost/orders?x=1#y",
    ],
)
def test_the_queue_that_a_url_means(url: str) -> None:
    assert checks.queue_of(url) == "orders"


@pytest.mark.parametrize("url", ["", "/", "http://localhost:9324", "http://localhost/", "http://["])
def test_a_url_that_means_no_queue(url: str) -> None:
    error = refusal(checks.queue_of, url)
    assert (error.code, error.status) == ("InvalidAddress", 404)
    assert error.message == f"The address {url} is not valid for this endpoint."


def entries(*ids: str) -> list[dict[str, Any]]:
    return [{"Id": id} for id in ids]


def test_a_batch() -> None:
    checks.batch("SendMessageBatch", entries("a", "A", "1-_", "x" * 80))
    checks.batch("SendMessageBatch", entries(*map(str, range(10))))


@pytest.mark.parametrize("action", ["SendMessageBatch", "DeleteMessageBatch"])
def test_an_empty_batch(action: str) -> None:
    error = refusal(checks.batch, action, [])
    assert error.code == "AWS.SimpleQueueService.EmptyBatchRequest"
    assert error.message == f"There should be at least one {action}RequestEntry in the request."


def test_a_batch_of_too_many() -> None:
    error = refusal(checks.batch, "SendMessageBatch", entries(*map(str, range(11))))
    assert error.code == "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"
    assert error.message == "Maximum number of entries per request are 10. You have sent 11."


@pytest.mark.parametrize("id", ["", "x" * 81, "invalid:id", "a b", "ü", "a\n"])
def test_a_batch_with_a_bad_id(id: str) -> None:
    for given in (entries("fine", id), [{"Id": "fine"}, {}] if not id else entries(id)):
        error = refusal(checks.batch, "DeleteMessageBatch", given)
        assert error.code == "AWS.SimpleQueueService.InvalidBatchEntryId"
        assert error.message.startswith("A batch entry id can only contain alphanumeric")


def test_a_batch_with_an_id_twice() -> None:
    error = refusal(checks.batch, "SendMessageBatch", entries("id_1", "id_2", "id_2", "id_1"))
    assert error.code == "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"
    assert error.message == "Id id_2 repeated."


def test_a_batch_that_is_too_long() -> None:
    checks.batch_size([limits.MESSAGE_BYTES // 2] * 2)
    error = refusal(checks.batch_size, [limits.MESSAGE_BYTES, 1])
    assert error.code == "AWS.SimpleQueueService.BatchRequestTooLong"
    assert error.message == (
        "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes."
    )


@pytest.mark.parametrize(
    ("name", "fine", "refused", "text"),
    [
        (
            "DelaySeconds",
            (0, 900),
            (-1, 901),
            (
                "Value {} for parameter DelaySeconds is invalid. "
                "Reason: DelaySeconds must be >= 0 and <= 900."
            ),
        ),
        (
            "VisibilityTimeout",
            (0, 43_200),
            (-1, 43_201),
            (
                "Value {} for parameter VisibilityTimeout is invalid. "
                "Reason: Must be >= 0 and <= 43200, if provided."
            ),
        ),
        (
            "WaitTimeSeconds",
            (0, 20),
            (-1, 21),
            (
                "Value {} for parameter WaitTimeSeconds is invalid. "
                "Reason: Must be >= 0 and <= 20, if provided."
            ),
        ),
        (
            "MaxNumberOfMessages",
            (1, 10),
            (0, 11),
            (
                "Value {} for parameter MaxNumberOfMessages is invalid. "
                "Reason: Must be between 1 and 10, if provided."
            ),
        ),
        (
            "MaxResults",
            (1, 1_000),
            (0, 1_001),
            (
                "Value {} for parameter MaxResults is invalid. "
                "Reason: MaxResults must be between 1 and 1000."
            ),
        ),
        (
            "MaxNumberOfMessagesPerSecond",
            (1, 500),
            (0, 501),
            (
                "Value {} for parameter MaxNumberOfMessagesPerSecond is invalid. "
                "Reason: MaxNumberOfMessagesPerSecond must be between 1 and 500."
            ),
        ),
    ],
)
def test_numbers(name: str, fine: tuple[int, ...], refused: tuple[int, ...], text: str) -> None:
    for value in fine:
        checks.number(name, value)
    for value in refused:
        error = refusal(checks.number, name, value)
        assert (error.code, error.message) == ("InvalidParameterValue", text.format(value))


def test_bounds_can_be_wider() -> None:
    checks.number("DelaySeconds", 10**8, most=10**8)
    checks.number("VisibilityTimeout", 10**6, most=10**6)
    assert "<= 100000000." in refusal(checks.number, "DelaySeconds", 10**8 + 1, most=10**8).message


PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


@pytest.mark.parametrize(
    ("check", "parameter"),
    [
        (checks.group_id, "MessageGroupId"),
        (checks.deduplication_id, "MessageDeduplicationId"),
        (checks.attempt_id, "ReceiveRequestAttemptId"),
    ],
)
def test_ids(check: Any, parameter: str) -> None:
    for fine in ("a", PUNCTUATION, "x" * 128):
        check(fine)
    for id in ("", "x" * 129, "a b", "a\tb", "ü", "a\n"):
        error = refusal(check, id)
        assert error.code == "InvalidParameterValue"
        assert error.message == (
            f"Value {id} for parameter {parameter} is invalid. Reason: {parameter} can only "
            "include alphanumeric and punctuation characters. 1 to 128 in length."
        )
