"""SQS's checks of names, numbers and batches that need no database.

Each function raises an SqsError with AWS's text, or returns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from fairturn.sqs import errors, limits

FIFO = ".fifo"

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_BATCH_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ID = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]+")
_SHOWN = 200  # characters of a bad value that an error repeats


# --- queues ---


def queue_name(name: str, fifo: bool) -> None:
    """Check the name of a queue to be created; `fifo` is its attribute FifoQueue."""
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
    """Return the name of the queue in a QueueUrl: its last segment, whatever is before it.

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
    """Check what fails a whole batch: no entries, too many, an invalid or repeated id."""
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
    """Check the total size of a batch; `contents.size` is the size of one message."""
    if sum(sizes) > limits.MESSAGE_BYTES:
        raise errors.BATCH_REQUEST_TOO_LONG(
            f"Batch requests cannot be longer than {limits.MESSAGE_BYTES} bytes. "
            f"You have sent {sum(sizes)} bytes."
        )


# --- numbers ---

# The least and the largest value, and AWS's reason for a refusal.
_NUMBERS = {
    "DelaySeconds": (0, limits.DELAY, "DelaySeconds must be >= 0 and <= {}."),
    "MaxNumberOfMessages": (1, limits.RECEIVE, "Must be between 1 and {}, if provided."),
    "MaxNumberOfMessagesPerSecond": (
        1,
        limits.MOVE_RATE,
        "MaxNumberOfMessagesPerSecond must be between 1 and {}.",
    ),
    "MaxResults": (1, limits.MAX_RESULTS, "MaxResults must be between 1 and {}."),
    "VisibilityTimeout": (0, limits.VISIBILITY, "Must be >= 0 and <= {}, if provided."),
    "WaitTimeSeconds": (0, limits.WAIT, "Must be >= 0 and <= {}, if provided."),
}


def number(parameter: str, value: int, most: int | None = None) -> None:
    """Check a number; ``most`` replaces the usual limit."""
    least, usual, reason = _NUMBERS[parameter]
    if most is None:
        most = usual
    if not least <= value <= most:
        raise errors.invalid(value, parameter, reason.format(most))


# --- ids ---


def group_id(id: str) -> None:
    _punctuated("MessageGroupId", id)


def deduplication_id(id: str) -> None:
    _punctuated("MessageDeduplicationId", id)


def attempt_id(id: str) -> None:
    _punctuated("ReceiveRequestAttemptId", id)


def _punctuated(parameter: str, id: str) -> None:
    if _ID.fullmatch(id) is None or len(id) > limits.GROUP_ID_CHARS:
        raise errors.invalid(
            id[:_SHOWN],
            parameter,
            f"{parameter} can only include alphanumeric and punctuation characters. "
            f"1 to {limits.GROUP_ID_CHARS} in length.",
        )
