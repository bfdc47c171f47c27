"""A queue's attributes, tags and permissions: which there are, and what they may be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from fairlead.server.sqs import errors, limits, redrive
from fairlead.server.sqs.actions import ACTIONS

ALL = "All"
COUNTERS = frozenset(
    {
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
        "CreatedTimestamp",
        "LastModifiedTimestamp",
        "QueueArn",
    }
)  # can be read, not set
FIFO_ONLY = frozenset(
    {"ContentBasedDeduplication", "DeduplicationScope", "FifoQueue", "FifoThroughputLimit"}
)
SYSTEM_ATTRIBUTES = frozenset(
    {
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "AWSTraceHeader",
        "DeadLetterQueueSourceArn",
        "MessageDeduplicationId",
        "MessageGroupId",
        "SenderId",
        "SentTimestamp",
        "SequenceNumber",
    }
)  # of a message
# Only a queue's owner may do these, so they cannot be permitted to others.
_OWNERS = frozenset(
    {
        "AddPermission",
        "CancelMessageMoveTask",
        "CreateQueue",
        "DeleteQueue",
        "ListMessageMoveTasks",
        "ListQueueTags",
        "ListQueues",
        "RemovePermission",
        "SetQueueAttributes",
        "StartMessageMoveTask",
        "TagQueue",
        "UntagQueue",
    }
)
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT = re.compile(r"[0-9]{12}")
_NUMBER = re.compile(r"[0-9]{1,10}")


# --- what an attribute may be ---


def _number(least: int, most: int) -> Callable[[str], bool]:
    return lambda text: _NUMBER.fullmatch(text) is not None and least <= int(text) <= most


def _one_of(*values: str) -> Callable[[str], bool]:
    return lambda text: text in values


def _flag(text: str) -> bool:
    return text.lower() in ("true", "false")


def _object_or_nothing(text: str) -> bool:
    if not text:
        return True  # an empty policy removes it
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _anything(text: str) -> bool:
    return True


_VALUES: Mapping[str, Callable[[str], bool]] = {
    "ContentBasedDeduplication": _flag,
    "DeduplicationScope": _one_of("queue", "messageGroup"),
    "DelaySeconds": _number(0, limits.DELAY),
    "FifoQueue": _flag,
    "FifoThroughputLimit": _one_of("perQueue", "perMessageGroupId"),
    "KmsDataKeyReusePeriodSeconds": _number(limits.KMS_REUSE_LEAST, limits.KMS_REUSE),
    "KmsMasterKeyId": _anything,
    "MaximumMessageSize": _number(limits.MESSAGE_BYTES_LEAST, limits.MESSAGE_BYTES),
    "MessageRetentionPeriod": _number(limits.RETENTION_LEAST, limits.RETENTION),
    "Policy": _object_or_nothing,
    "ReceiveMessageWaitTimeSeconds": _number(0, limits.WAIT),
    "RedriveAllowPolicy": _anything,  # `redrive` judges these two
    "RedrivePolicy": _anything,
    "SqsManagedSseEnabled": _flag,
    "VisibilityTimeout": _number(0, limits.VISIBILITY),
}
SETTABLE = frozenset(_VALUES)


def is_true(value: str) -> bool:
    """FifoQueue and the like: SDKs send "true" and "True"."""
    return value.lower() == "true"


def attributes(
    given: Mapping[str, str], fifo: bool, bounds: Mapping[str, tuple[int, int]] | None = None
) -> None:
    """The attributes of CreateQueue or SetQueueAttributes; `fifo`: of a FIFO queue.

    `bounds` widens what AWS allows of a number: {"DelaySeconds": (0, 10**8)}.
    """
    for name, value in given.items():
        if name not in SETTABLE or (name in FIFO_ONLY and not fifo):
            raise unknown(name)
        allowed = _number(*bounds[name]) if bounds and name in bounds else _VALUES[name]
        if not allowed(value):
            raise errors.INVALID_ATTRIBUTE_VALUE(f"Invalid value for the parameter {name}.")
    if "RedrivePolicy" in given:
        redrive.policy(given["RedrivePolicy"])
    if "RedriveAllowPolicy" in given:
        redrive.allowance(given["RedriveAllowPolicy"])
    if given.get("KmsMasterKeyId") and is_true(given.get("SqsManagedSseEnabled", "")):
        raise errors.INVALID_ATTRIBUTE_NAME(
            "You can use one type of server-side encryption (SSE) at one time. You can either "
            "enable KMS SSE or SQS SSE."
        )


def unknown(name: str) -> errors.SqsError:
    return errors.INVALID_ATTRIBUTE_NAME(f"Unknown Attribute {name[:80]}.")


# --- which attributes are asked for ---


def asked_of_queue(names: Iterable[str]) -> frozenset[str]:
    """The attributes that GetQueueAttributes asks for."""
    return _asked(names, SETTABLE | COUNTERS)


def asked_of_message(
    attribute_names: Iterable[str], system_attribute_names: Iterable[str]
) -> frozenset[str]:
    """The system attributes that ReceiveMessage asks for, by its old parameter or its new one.

    The old one has the names of queue attributes in its model; messages have none of them.
    """
    queues = SETTABLE | COUNTERS
    old = _asked(attribute_names, SYSTEM_ATTRIBUTES | queues) - queues
    # Celery's broker says ALL in the new one, whatever its user wrote.
    new = (ALL if name == "ALL" else name for name in system_attribute_names)
    return old | _asked(new, SYSTEM_ATTRIBUTES)


def _asked(names: Iterable[str], known: frozenset[str]) -> frozenset[str]:
    asked: set[str] = set()
    for name in names:
        if name == ALL:
            asked |= known
        elif name in known:
            asked.add(name)
        else:
            raise unknown(name)
    return frozenset(asked)


# --- tags ---


def tags(given: Mapping[str, str]) -> None:
    """Tags to be set; that a queue has no more than `limits.TAGS` in all is for its keeper."""
    tag_keys(list(given))
    for value in given.values():
        if len(value) > limits.TAG_VALUE_CHARS:
            raise errors.INVALID_PARAMETER_VALUE(
                "Tag values must be between 0 and 256 characters in length."
            )


def tag_keys(keys: Sequence[str]) -> None:
    if not keys or not all(1 <= len(key) <= limits.TAG_KEY_CHARS for key in keys):
        raise errors.INVALID_PARAMETER_VALUE(
            "Tag keys must be between 1 and 128 characters in length."
        )


def tag_count(queue: str, count: int) -> None:
    if count > limits.TAGS:
        raise errors.INVALID_PARAMETER_VALUE(f"Too many tags added for queue {queue}.")


# --- permissions ---


def permission(label: str, accounts: Sequence[str], actions: Sequence[str]) -> None:
    permission_label(label)
    if len(actions) > limits.ACTIONS_PER_PERMISSION:
        raise errors.OVER_LIMIT(
            f"{len(actions)} Actions were found, maximum allowed is "
            f"{limits.ACTIONS_PER_PERMISSION}."
        )
    for action in actions:
        if action != "*" and (action not in ACTIONS or action in _OWNERS):
            raise errors.invalid(
                f"SQS:{action[:80]}",
                "ActionName",
                "Only the queue owner is allowed to invoke this action.",
            )
    if not accounts or not all(_ACCOUNT.fullmatch(account) for account in accounts):
        shown = ", ".join(account[:20] for account in accounts[:10])
        raise errors.invalid(f"[{shown}]", "PrincipalId", "Unable to verify.")


def permission_label(label: str) -> None:
    if _LABEL.fullmatch(label) is None:
        raise errors.invalid(
            label[:80],
            "Label",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.",
        )
