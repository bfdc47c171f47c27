"""What SQS refuses about names, numbers and batches, without looking into a database.

Each function raises an SqsError with AWS's text, or returns. Bounds that `--extended` lifts are
arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from fairlead.server.sqs import errors, limits

FIFO = ".fifo"

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_BATCH_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ID = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
_SHOWN = 200  # characters of a bad value that a text repeats


# --- queues ---


def queue_name(name: str, fifo: bool) -> None:
    """The name of a queue to be made; `fifo` is its attribute FifoQueue."""
    stem = name.removesuffix(FIFO)
    sound = _NAME.fullmatch(stem) is not None and len(name) <= limits.QUEUE_NAME_CHARS
    if fifo and (not sound or stem == name):
        raise errors.INVALID_PARAMETER_VALUE(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
            "underscores, must end with .fifo suffix and be 1 to 80 in length."
        )
    if not fifo and (not sound or stem != name):
        raise errors.INVALID_PARAMETER_VALUE(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )


def queue_of(url: str) -> str:
    """The name of the queue a QueueUrl means: its last segment, whatever is before it.

    Clients send URLs of other hosts (an alias, a container's name), paths and bare names.
    """
    try:
        name = urlsplit(url).path.rstrip("/").rpartition("/")[2]
    except ValueError as error:  # "http://[": half an IPv6 address
        raise _no_address(url) from error
    if not name:
        raise _no_address(url)
    return name


def _no_address(url: str) -> errors.SqsError:
    return errors.INVALID_ADDRESS(f"The address {url[:_SHOWN]} is not valid for this endpoint.")


# --- batches ---


def batch(action: str, entries: Sequence[Mapping[str, Any]]) -> None:
    """What fails a whole batch: none, too many, an id that is bad or there twice."""
    if not entries:
        raise errors.EMPTY_BATCH_REQUEST(
            f"There should be at least one {action}RequestEntry in the request."
        )
    if len(entries) > limits.BATCH:
        raise errors.TOO_MANY_ENTRIES(
            f"Maximum number of entries per request are {limits.BATCH}. "
            f"You have sent {len(entries)}."
        )
    seen: set[str] = set()
    for entry in entries:
        id = entry.get("Id", "")
        if _BATCH_ID.fullmatch(id) is None:
            raise errors.INVALID_BATCH_ENTRY_ID()
        if id in seen:
            raise errors.BATCH_ENTRY_IDS_NOT_DISTINCT(f"Id {id} repeated.")
        seen.add(id)


def batch_size(sizes: Sequence[int]) -> None:
    """The messages of a batch together; what each of them weighs is `contents.size`."""
    if sum(sizes) > limits.MESSAGE_BYTES:
        raise errors.BATCH_REQUEST_TOO_LONG(
            f"Batch requests cannot be longer than {limits.MESSAGE_BYTES} bytes. "
            f"You have sent {sum(sizes)} bytes."
        )


# --- numbers ---


def delay(seconds: int, most: int = limits.DELAY) -> None:
    _between(seconds, "DelaySeconds", 0, most, f"DelaySeconds must be >= 0 and <= {most}.")


def visibility(seconds: int, most: int = limits.VISIBILITY) -> None:
    reason = f"Must be >= 0 and <= {most}, if provided."
    _between(seconds, "VisibilityTimeout", 0, most, reason)


def wait(seconds: int) -> None:
    reason = f"Must be >= 0 and <= {limits.WAIT}, if provided."
    _between(seconds, "WaitTimeSeconds", 0, limits.WAIT, reason)


def count(messages: int) -> None:
    reason = f"Must be between 1 and {limits.RECEIVE}, if provided."
    _between(messages, "MaxNumberOfMessages", 1, limits.RECEIVE, reason)


def max_results(results: int, most: int = limits.MAX_RESULTS) -> None:
    """Of lists of queues; ListMessageMoveTasks has `limits.MOVE_RESULTS`."""
    _between(results, "MaxResults", 1, most, f"MaxResults must be between 1 and {most}.")


def move_rate(per_second: int) -> None:
    name = "MaxNumberOfMessagesPerSecond"
    reason = f"{name} must be between 1 and {limits.MOVE_RATE}."
    _between(per_second, name, 1, limits.MOVE_RATE, reason)


def _between(value: int, parameter: str, least: int, most: int, reason: str) -> None:
    if not least <= value <= most:
        raise errors.invalid(value, parameter, reason)


# --- ids ---


def group_id(id: str) -> None:
    _punctuated("MessageGroupId", id)


def deduplication_id(id: str) -> None:
    _punctuated("MessageDeduplicationId", id)


def attempt_id(id: str) -> None:
    _punctuated("ReceiveRequestAttemptId", id)


def _punctuated(parameter: str, id: str) -> None:
    if _ID.fullmatch(id) is None:
        raise errors.invalid(
            id[:_SHOWN],
            parameter,
            f"{parameter} can only include alphanumeric and punctuation characters. "
            "1 to 128 in length.",
        )
