"""Dead-letter policies: the target of messages that were received too often, and its sources.

Only the text is checked here. Callers check that the queues exist and have the same type.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, cast

from fairturn.sqs import errors
from fairturn.sqs.errors import SqsError

MAX_RECEIVES = 1_000
MAX_SOURCES = 10

_ARN = re.compile(r"arn:aws[a-z-]*:sqs:[a-z0-9-]+:[0-9]{12}:([A-Za-z0-9_-]{1,80}(?:\.fifo)?)")
_COUNT = re.compile(r"[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class RedrivePolicy:
    queue: str  # the name of the dead-letter queue
    max_receives: int
    text: str  # to be shown: as it was sent, but with the count as a number


@dataclass(frozen=True, slots=True)
class RedriveAllowPolicy:
    permission: Literal["allowAll", "denyAll", "byQueue"]
    sources: tuple[str, ...]  # ARNs, with byQueue


def queue_of_arn(arn: Any) -> str | None:
    """Return the name of the queue in an ARN; None if it is not the ARN of a queue."""
    match = _ARN.fullmatch(arn) if isinstance(arn, str) else None
    return None if match is None else match[1]


def policy(text: str) -> RedrivePolicy | None:
    """Read a RedrivePolicy; an empty one is None and removes the policy."""
    if not text:
        return None
    given = _object(text)
    if given is None:
        raise _refused(text, "Redrive policy is not a valid JSON map.")
    for name in ("deadLetterTargetArn", "maxReceiveCount"):
        if name not in given:
            raise _refused(text, f"Redrive policy does not contain mandatory attribute: {name}.")
    queue = queue_of_arn(given["deadLetterTargetArn"])
    if queue is None:
        raise _refused(text, "Invalid value for deadLetterTargetArn.")
    receives = _count(given["maxReceiveCount"])
    if receives is None:
        raise _refused(
            text,
            f"Invalid value for maxReceiveCount: {str(given['maxReceiveCount'])[:20]}, "
            f"valid values are from 1 to {MAX_RECEIVES} both inclusive.",
        )
    if given["maxReceiveCount"] != receives:
        text = json.dumps(given | {"maxReceiveCount": receives}, separators=(",", ":"))
    return RedrivePolicy(queue, receives, text)


def allowance(text: str) -> RedriveAllowPolicy | None:
    """Read a RedriveAllowPolicy; an empty one is None and removes the policy."""
    if not text:
        return None
    given = _object(text)
    parameter = "RedriveAllowPolicy"
    if given is None:
        raise _refused(text, "Redrive allow policy is not a valid JSON map.", parameter)
    permission: Any = given.get("redrivePermission")
    sources: Any = given.get("sourceQueueArns", [])
    if permission not in ("allowAll", "denyAll", "byQueue"):
        raise _refused(text, "Invalid value for redrivePermission.", parameter)
    arns: list[Any] = cast("list[Any]", sources) if isinstance(sources, list) else [None]
    if len(arns) > MAX_SOURCES or any(queue_of_arn(arn) is None for arn in arns):
        raise _refused(text, "Invalid value for sourceQueueArns.", parameter)
    if (permission == "byQueue") != bool(arns):
        reason = "sourceQueueArns must be given with byQueue, and only then."
        raise _refused(text, reason, parameter)
    return RedriveAllowPolicy(permission, tuple(arns))


def _object(text: str) -> dict[str, Any] | None:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", given) if isinstance(given, dict) else None


def _count(given: Any) -> int | None:
    """Read a number or its text, which CloudFormation and many programs send."""
    if isinstance(given, str) and _COUNT.fullmatch(given):
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool):
        return None
    return given if 1 <= given <= MAX_RECEIVES else None


def _refused(text: str, reason: str, parameter: str = "RedrivePolicy") -> SqsError:
    return errors.invalid(text[:1_000], parameter, reason)
