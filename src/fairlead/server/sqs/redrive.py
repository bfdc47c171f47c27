"""Dead-letter policies: where messages go that were received too often, and from where they come.

What is checked here is the text; whether the queues exist and are of the same kind is for those who
can look.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, cast

from fairlead.server.sqs import errors
from fairlead.server.sqs.errors import SqsError

MAX_RECEIVES = 1_000
MAX_SOURCES = 10

_ARN = re.compile(r"arn:aws[a-z-]*:sqs:[a-z0-9-]+:[0-9]{12}:([A-Za-z0-9_-]{1,80}(?:\.fifo)?)")
_COUNT = re.compile(r"[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class RedrivePolicy:
    target: str  # the ARN of the dead-letter queue
    max_receives: int
    text: str  # as it is to be shown: as sent, but the count a number


@dataclass(frozen=True, slots=True)
class RedriveAllowPolicy:
    permission: Literal["allowAll", "denyAll", "byQueue"]
    sources: tuple[str, ...]  # ARNs, with byQueue


def queue_of_arn(arn: str) -> str | None:
    """The name of the queue that an ARN means, or None where it is no ARN of a queue."""
    match = _ARN.fullmatch(arn)
    return None if match is None else match[1]


def policy(text: str) -> RedrivePolicy | None:
    """Read a RedrivePolicy; an empty one is None and removes it."""
    if not text:
        return None
    given = _object(text)
    if given is None:
        raise _refused(text, "RedrivePolicy", "Redrive policy is not a valid JSON map.")
    for name in ("deadLetterTargetArn", "maxReceiveCount"):
        if name not in given:
            raise _refused(
                text,
                "RedrivePolicy",
                f"Redrive policy does not contain mandatory attribute: {name}.",
            )
    target: Any = given["deadLetterTargetArn"]
    if not isinstance(target, str) or queue_of_arn(target) is None:
        raise _refused(text, "RedrivePolicy", "Invalid value for deadLetterTargetArn.")
    receives = _count(given["maxReceiveCount"])
    if receives is None:
        raise _refused(
            text,
            "RedrivePolicy",
            f"Invalid value for maxReceiveCount: {str(given['maxReceiveCount'])[:20]}, "
            f"valid values are from 1 to {MAX_RECEIVES} both inclusive.",
        )
    if given["maxReceiveCount"] != receives:
        text = json.dumps(given | {"maxReceiveCount": receives}, separators=(",", ":"))
    return RedrivePolicy(target, receives, text)


def allowance(text: str) -> RedriveAllowPolicy | None:
    """Read a RedriveAllowPolicy; an empty one is None and removes it."""
    if not text:
        return None
    given = _object(text)
    if given is None:
        raise _refused(text, "RedriveAllowPolicy", "Redrive allow policy is not a valid JSON map.")
    permission: Any = given.get("redrivePermission")
    sources: Any = given.get("sourceQueueArns", [])
    if permission not in ("allowAll", "denyAll", "byQueue"):
        raise _refused(text, "RedriveAllowPolicy", "Invalid value for redrivePermission.")
    if not isinstance(sources, list) or len(cast("list[Any]", sources)) > MAX_SOURCES:
        raise _refused(text, "RedriveAllowPolicy", "Invalid value for sourceQueueArns.")
    arns = cast("list[Any]", sources)
    if not all(isinstance(arn, str) and queue_of_arn(arn) is not None for arn in arns):
        raise _refused(text, "RedriveAllowPolicy", "Invalid value for sourceQueueArns.")
    if (permission == "byQueue") != bool(arns):
        raise _refused(
            text, "RedriveAllowPolicy", "sourceQueueArns must be given with byQueue, and only then."
        )
    return RedriveAllowPolicy(permission, tuple(arns))


def _object(text: str) -> dict[str, Any] | None:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", given) if isinstance(given, dict) else None


def _count(given: Any) -> int | None:
    """A number or, as CloudFormation and many programs send it, its text."""
    if isinstance(given, str) and _COUNT.fullmatch(given):
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool):
        return None
    return given if 1 <= given <= MAX_RECEIVES else None


def _refused(text: str, parameter: str, reason: str) -> SqsError:
    return errors.invalid(text[:1_000], parameter, reason)
