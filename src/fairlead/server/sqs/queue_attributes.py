"""A queue's attributes: shown from its settings, applied to them, compared with them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.server.sqs import errors, limits, redrive, settings
from fairlead.server.sqs.asking import Ask
from fairlead.server.sqs.book import Book, Known
from fairlead.values import Stats

COUNTS: Mapping[str, Callable[[Stats], int]] = {
    "ApproximateNumberOfMessages": lambda stats: stats.ready,
    "ApproximateNumberOfMessagesDelayed": lambda stats: stats.scheduled + stats.held,
    "ApproximateNumberOfMessagesNotVisible": lambda stats: stats.leased,
}
_FLAGS = frozenset({"ContentBasedDeduplication", "FifoQueue", "SqsManagedSseEnabled"})
_DOCUMENTS = frozenset({"Policy", "RedrivePolicy", "RedriveAllowPolicy"})
_NUMBERS = frozenset(
    {
        "DelaySeconds",
        "KmsDataKeyReusePeriodSeconds",
        "MaximumMessageSize",
        "MessageRetentionPeriod",
        "ReceiveMessageWaitTimeSeconds",
        "VisibilityTimeout",
    }
)
_KMS_REUSE = "300"  # the default, which is not shown
# What is kept as a setting of the core's, or is the queue's name.
_ELSEWHERE = frozenset({"FifoQueue", "MessageRetentionPeriod", "VisibilityTimeout"})


# --- out --------------------------------------------------------------------------------------


def shown(known: Known, arn: str) -> dict[str, str]:
    """Every attribute that the queue has, but the counts."""
    found = {
        "QueueArn": arn,
        "CreatedTimestamp": str(math.floor(known.settings.created_at.timestamp())),
        "LastModifiedTimestamp": str(known.modified),
        "VisibilityTimeout": str(math.ceil(known.lease)),
        # A queue of the library's may keep for ever; the longest that SQS knows is next to that.
        "MessageRetentionPeriod": str(
            limits.RETENTION if known.retention is None else math.ceil(known.retention)
        ),
        "DelaySeconds": str(known.delay),
        "ReceiveMessageWaitTimeSeconds": str(known.wait),
        "MaximumMessageSize": str(known.max_size),
        "SqsManagedSseEnabled": "true",
    }
    if known.fifo:
        found |= {
            "FifoQueue": "true",
            "ContentBasedDeduplication": "false",
            "DeduplicationScope": "queue",
            "FifoThroughputLimit": "perQueue",
        }
    found |= known.attributes
    if found.get("KmsDataKeyReusePeriodSeconds") == _KMS_REUSE:
        del found["KmsDataKeyReusePeriodSeconds"]
    policy = _redrive_policy(known, arn)
    if policy is None:
        found.pop("RedrivePolicy", None)
    else:
        found["RedrivePolicy"] = policy
    return found


def _redrive_policy(known: Known, arn: str) -> str | None:
    """As it was sent, unless the library has changed meanwhile what it says."""
    target, receives = known.dead_letter, known.settings.max_attempts
    if target is None or receives == 0:
        return None
    text = known.attributes.get("RedrivePolicy", "")
    policy = redrive.policy(text)
    if (
        policy is not None
        and policy.max_receives == receives
        and redrive.queue_of_arn(policy.target) == target
    ):
        return text
    beside = f"{arn.rpartition(':')[0]}:{target}"
    return json.dumps(
        {"deadLetterTargetArn": beside, "maxReceiveCount": receives}, separators=(",", ":")
    )


# --- in ---------------------------------------------------------------------------------------


def apply(given: Mapping[str, str], own: dict[str, Any]) -> dict[str, Any]:
    """Put checked attributes into what SQS keeps of a queue; the core's settings that follow."""
    core: dict[str, Any] = {}
    kept: dict[str, str] = dict(own.get("attributes", {}))
    for name, value in given.items():
        if name in _FLAGS:
            kept[name] = value.lower()
        elif name == "RedrivePolicy":
            policy = redrive.policy(value)
            kept[name] = "" if policy is None else policy.text
            core["max_attempts"] = 0 if policy is None else policy.max_receives
            core["dead_letter"] = None if policy is None else redrive.queue_of_arn(policy.target)
        else:
            kept[name] = str(int(value)) if name in _NUMBERS else value
    if "VisibilityTimeout" in given:
        core["lease"] = int(given["VisibilityTimeout"])
    if "MessageRetentionPeriod" in given:
        core["expires"] = int(given["MessageRetentionPeriod"])
    if given.get("KmsMasterKeyId"):
        kept["SqsManagedSseEnabled"] = "false"
    elif settings.is_true(given.get("SqsManagedSseEnabled", "")):
        kept["KmsMasterKeyId"] = ""  # one kind of encryption at a time
    # An empty text removes what it is for.
    own["attributes"] = {
        name: value for name, value in kept.items() if value and name not in _ELSEWHERE
    }
    return core


async def check_dead_letter(
    book: Book, ask: Ask, name: str, fifo: bool, given: Mapping[str, str]
) -> None:
    """Of a RedrivePolicy: is there such a queue, of the same type, and does it take our letters?

    A queue that the key may not touch is not there for it: it would get letters from strangers.
    """
    text = given.get("RedrivePolicy", "")
    policy = redrive.policy(text)
    if policy is None:
        return
    target = redrive.queue_of_arn(policy.target)
    assert target is not None  # redrive.policy has seen to that
    if not ask.allows(ask.action, target):
        raise _refused(text, "Dead letter target does not exist.")
    try:
        dead = await book.fresh(target)
    except errors.SqsError as error:
        if error.kind is errors.QUEUE_DOES_NOT_EXIST:
            raise _refused(text, "Dead letter target does not exist.") from error
        raise
    if target == name:
        raise _refused(text, "A queue cannot be its own dead-letter queue.")
    if dead.fifo != fifo:
        # With two full stops, as AWS has it.
        raise _refused(text, "Dead-letter queue must be same type of queue as the source..")
    allowance = redrive.allowance(dead.attributes.get("RedriveAllowPolicy", ""))
    if allowance is None or allowance.permission == "allowAll":
        return
    if name not in map(redrive.queue_of_arn, allowance.sources):
        raise _refused(
            text, f"Queue {target} does not allow this queue to use it as a dead-letter queue."
        )


def _refused(text: str, reason: str) -> errors.SqsError:
    return errors.invalid(text, "RedrivePolicy", reason)


# --- the same? --------------------------------------------------------------------------------


def difference(known: Known, given: Mapping[str, str], arn: str) -> str | None:
    """The first of the attributes in which the queue is not as CreateQueue asks for, if any."""
    current = shown(known, arn)
    if known.fifo != settings.is_true(given.get("FifoQueue", "")):
        return "FifoQueue"
    for name, value in given.items():
        there = current.get(name)
        if there is None and name == "KmsDataKeyReusePeriodSeconds":
            there = _KMS_REUSE
        if _meant(name, value) != _meant(name, there or ""):
            return name
    return None


def _meant(name: str, value: str) -> Any:
    """What tells two values of an attribute apart: "030" is "30", {"a":1} is { "a": 1 }."""
    if name in _FLAGS:
        return value.lower()
    if name == "RedrivePolicy":
        policy = redrive.policy(value)
        return policy and (redrive.queue_of_arn(policy.target), policy.max_receives)
    if name in _DOCUMENTS:
        return json.loads(value) if value else None
    return int(value) if name in _NUMBERS else value
