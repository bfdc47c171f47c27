"""A queue's attributes: read from its settings, written to them, compared with them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from fairturn.core.values import Stats
from fairturn.server.sqs import attribute_rules, redrive
from fairturn.server.sqs.queue_cache import QueueCache, QueueInfo
from fairturn.server.sqs.request import SqsRequest
from fairturn.sqs import errors, limits

COUNTS: Mapping[str, Callable[[Stats], int]] = {
    "ApproximateNumberOfMessages": lambda stats: stats.ready,
    "ApproximateNumberOfMessagesDelayed": lambda stats: stats.scheduled + stats.held,
    "ApproximateNumberOfMessagesNotVisible": lambda stats: stats.leased,
}
_KMS_REUSE = "300"  # the default, which is not shown
# Stored as a setting of the core, or implied by the queue's name.
_ELSEWHERE = frozenset({"FifoQueue", "MessageRetentionPeriod", "VisibilityTimeout"})


# --- reading ----------------------------------------------------------------------------------


def shown(info: QueueInfo, arn: str) -> dict[str, str]:
    """Return all attributes of the queue, except the counts."""
    found = {
        "QueueArn": arn,
        "CreatedTimestamp": str(math.floor(info.settings.created_at.timestamp())),
        "LastModifiedTimestamp": str(info.modified),
        "VisibilityTimeout": str(math.ceil(info.lease)),
        # A queue of the library may keep messages for ever: show SQS's longest retention.
        "MessageRetentionPeriod": str(
            limits.RETENTION if info.retention is None else math.ceil(info.retention)
        ),
        "DelaySeconds": str(info.delay),
        "ReceiveMessageWaitTimeSeconds": str(info.wait),
        "MaximumMessageSize": str(info.max_size),
        "SqsManagedSseEnabled": "true",
    }
    if info.fifo:
        found |= {
            "FifoQueue": "true",
            "ContentBasedDeduplication": "false",
            "DeduplicationScope": "queue",
            "FifoThroughputLimit": "perQueue",
        }
    found |= info.attributes
    if found.get("KmsDataKeyReusePeriodSeconds") == _KMS_REUSE:
        del found["KmsDataKeyReusePeriodSeconds"]
    policy = _redrive_policy(info, arn)
    if policy is None:
        found.pop("RedrivePolicy", None)
    else:
        found["RedrivePolicy"] = policy
    return found


def _redrive_policy(info: QueueInfo, arn: str) -> str | None:
    """Return the policy as it was sent, unless the library has changed its values since."""
    target, receives = info.dead_letter, info.settings.max_attempts
    if target is None or receives == 0:
        return None
    text = info.attributes.get("RedrivePolicy", "")
    policy = redrive.policy(text)
    if policy is not None and (policy.queue, policy.max_receives) == (target, receives):
        return text
    beside = f"{arn.rpartition(':')[0]}:{target}"
    return json.dumps(
        {"deadLetterTargetArn": beside, "maxReceiveCount": receives}, separators=(",", ":")
    )


# --- writing ----------------------------------------------------------------------------------


def apply(given: Mapping[str, str], own: dict[str, Any]) -> dict[str, Any]:
    """Store checked attributes in ``own``, SQS's part of the meta; return the core's settings."""
    core: dict[str, Any] = {}
    kept: dict[str, str] = dict(own.get("attributes", {}))
    for name, value in given.items():
        kept[name] = attribute_rules.RULES[name].stored(value)
    if "RedrivePolicy" in given:
        policy = redrive.policy(given["RedrivePolicy"])
        kept["RedrivePolicy"] = "" if policy is None else policy.text
        core["max_attempts"] = 0 if policy is None else policy.max_receives
        core["dead_letter"] = None if policy is None else policy.queue
    if "VisibilityTimeout" in given:
        core["lease"] = int(given["VisibilityTimeout"])
    if "MessageRetentionPeriod" in given:
        core["expires"] = int(given["MessageRetentionPeriod"])
    if given.get("KmsMasterKeyId"):
        kept["SqsManagedSseEnabled"] = "false"
    elif attribute_rules.is_true(given.get("SqsManagedSseEnabled", "")):
        kept["KmsMasterKeyId"] = ""  # one kind of encryption at a time
    # An empty text removes the attribute.
    own["attributes"] = {
        name: value for name, value in kept.items() if value and name not in _ELSEWHERE
    }
    return core


async def check_dead_letter(
    queue_cache: QueueCache, request: SqsRequest, name: str, fifo: bool, given: Mapping[str, str]
) -> None:
    """Check that a RedrivePolicy's target exists, has the same type and accepts our dead letters.

    A queue that the key may not use does not exist for it.
    """
    text = given.get("RedrivePolicy", "")
    policy = redrive.policy(text)
    if policy is None:
        return
    target = policy.queue
    if not request.caller.allows(request.action, target):
        raise _refused(text, "Dead letter target does not exist.")
    try:
        dead = await queue_cache.fresh(target)
    except errors.SqsError as error:
        if error.kind is errors.QUEUE_DOES_NOT_EXIST:
            raise _refused(text, "Dead letter target does not exist.") from error
        raise
    if target == name:
        raise _refused(text, "A queue cannot be its own dead-letter queue.")
    if dead.fifo != fifo:
        # With two full stops, as in AWS's text.
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


# --- comparing --------------------------------------------------------------------------------


def difference(info: QueueInfo, given: Mapping[str, str], arn: str) -> str | None:
    """Return the first attribute in which the queue differs from CreateQueue's; None if none."""
    current = shown(info, arn)
    if info.fifo != attribute_rules.is_true(given.get("FifoQueue", "")):
        return "FifoQueue"
    for name, value in given.items():
        there = current.get(name)
        if there is None and name == "KmsDataKeyReusePeriodSeconds":
            there = _KMS_REUSE
        if _normalized(name, value) != _normalized(name, there or ""):
            return name
    return None


def _normalized(name: str, value: str) -> Any:
    """Normalize a value for comparison: "030" equals "30", {"a":1} equals { "a": 1 }."""
    if name == "RedrivePolicy":
        policy = redrive.policy(value)
        return policy and (policy.queue, policy.max_receives)
    if name in ("Policy", "RedriveAllowPolicy"):
        return json.loads(value) if value else None
    return attribute_rules.RULES[name].stored(value)
