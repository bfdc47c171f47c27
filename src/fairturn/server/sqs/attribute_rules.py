"""The names and the valid values of a queue's attributes, tags and permissions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairturn.server.sqs import redrive
from fairturn.server.sqs.wire.action_table import ACTIONS
from fairturn.sqs import errors, limits

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
# The actions, and their batches, that a permission can allow to other accounts.
_SHAREABLE = frozenset(
    {
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
    }
)
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT = re.compile(r"[0-9]{12}")
_NUMBER = re.compile(r"[0-9]{1,10}")


# --- valid values ---


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of one attribute."""

    valid: Callable[[str], bool]
    stored: Callable[[str], str] = str  # the text to store and to compare: "030" becomes "30"
    fifo: bool = False  # only FIFO queues have it


def _number(least: int, most: int) -> Rule:
    return Rule(
        lambda text: _NUMBER.fullmatch(text) is not None and least <= int(text) <= most,
        lambda text: str(int(text)),
    )


def _fifo_choice(*values: str) -> Rule:
    return Rule(lambda text: text in values, fifo=True)


def _object_or_nothing(text: str) -> bool:
    if not text:
        return True  # an empty policy removes it
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


_FLAG = Rule(lambda text: text.lower() in ("true", "false"), str.lower)
_ANYTHING = Rule(lambda text: True)

RULES: Mapping[str, Rule] = {
    "ContentBasedDeduplication": replace(_FLAG, fifo=True),
    "DeduplicationScope": _fifo_choice("queue", "messageGroup"),
    "DelaySeconds": _number(0, limits.DELAY),
    "FifoQueue": replace(_FLAG, fifo=True),
    "FifoThroughputLimit": _fifo_choice("perQueue", "perMessageGroupId"),
    "KmsDataKeyReusePeriodSeconds": _number(limits.KMS_REUSE_LEAST, limits.KMS_REUSE),
    "KmsMasterKeyId": _ANYTHING,
    "MaximumMessageSize": _number(limits.MESSAGE_BYTES_LEAST, limits.MESSAGE_BYTES),
    "MessageRetentionPeriod": _number(limits.RETENTION_LEAST, limits.RETENTION),
    "Policy": Rule(_object_or_nothing),
    "ReceiveMessageWaitTimeSeconds": _number(0, limits.WAIT),
    "RedriveAllowPolicy": _ANYTHING,  # `redrive` checks these two
    "RedrivePolicy": _ANYTHING,
    "SqsManagedSseEnabled": _FLAG,
    "VisibilityTimeout": _number(0, limits.VISIBILITY),
}
_EXTENDED_RULES = {
    **RULES,
    "DelaySeconds": _number(0, limits.YEARS),
    "MessageRetentionPeriod": _number(limits.RETENTION_LEAST, limits.YEARS),
    "VisibilityTimeout": _number(0, limits.YEARS),
}
SETTABLE = frozenset(RULES)


def is_true(value: str) -> bool:
    """Whether a flag such as FifoQueue is set: SDKs send "true" and "True"."""
    return value.lower() == "true"


def attributes(given: Mapping[str, str], fifo: bool, extended: bool = False) -> None:
    """Check the attributes of CreateQueue or SetQueueAttributes.

    `fifo`: of a FIFO queue; `extended`: with the longer times of --extended.
    """
    rules = _EXTENDED_RULES if extended else RULES
    for name, value in given.items():
        rule = rules.get(name)
        if rule is None or (rule.fifo and not fifo):
            raise unknown(name)
        if not rule.valid(value):
            raise errors.INVALID_ATTRIBUTE_VALUE(f"Invalid value for the parameter {name}.")
    redrive.policy(given.get("RedrivePolicy", ""))
    redrive.allowance(given.get("RedriveAllowPolicy", ""))
    if given.get("KmsMasterKeyId") and is_true(given.get("SqsManagedSseEnabled", "")):
        raise errors.INVALID_ATTRIBUTE_NAME(
            "You can use one type of server-side encryption (SSE) at one time. You can either "
            "enable KMS SSE or SQS SSE."
        )


def unknown(name: str) -> errors.SqsError:
    return errors.INVALID_ATTRIBUTE_NAME(f"Unknown Attribute {name[:80]}.")


# --- requested attributes ---


def asked_of_queue(names: Iterable[str]) -> frozenset[str]:
    """Return the attributes that GetQueueAttributes asks for."""
    return _asked(names, SETTABLE | COUNTERS)


def asked_of_message(
    attribute_names: Iterable[str], system_attribute_names: Iterable[str]
) -> frozenset[str]:
    """Return the system attributes that ReceiveMessage asks for, by its old or its new parameter.

    In AWS's model the old one also has the names of queue attributes, which no message has.
    """
    queues = SETTABLE | COUNTERS
    old = _asked(attribute_names, SYSTEM_ATTRIBUTES | queues) - queues
    # Celery's broker always sends ALL in the new one.
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
    """Check tags to be set. `tag_count` checks the total number of a queue's tags."""
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
        shareable = action in ACTIONS and action.removesuffix("Batch") in _SHAREABLE
        if action != "*" and not shareable:
            raise errors.invalid(
                f"SQS:{action:.80}",
                "ActionName",
                "Only the queue owner is allowed to invoke this action.",
            )
    if not accounts or not all(_ACCOUNT.fullmatch(account) for account in accounts):
        shown = ", ".join(f"{account:.20}" for account in accounts[:10])
        raise errors.invalid(f"[{shown}]", "PrincipalId", "Unable to verify.")


def permission_label(label: str) -> None:
    if _LABEL.fullmatch(label) is None:
        raise errors.invalid(
            label[:80],
            "Label",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.",
        )
