"""Errors of AWS's clients: what they mean for messages, and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairturn.relay.destination import Later, Never

TOO_LONG = "BatchRequestTooLong"
_PREFIX = "AWS.SimpleQueueService."


def _codes(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NO_QUEUE = _codes("NonExistentQueue QueueDoesNotExist InvalidAddress")
# A message of the call is wrong.
_REFUSED = _codes(
    f"{TOO_LONG} InvalidMessageContents InvalidParameterValue InvalidParameterValueException "
    "MissingParameter MissingRequiredParameterException InvalidParameterCombination "
    "InvalidAttributeValue UnsupportedOperation"
)
_FORBIDDEN = _codes(
    "AccessDenied AccessDeniedException AuthFailure ExpiredToken ExpiredTokenException "
    "IncompleteSignature InvalidAccessKeyId InvalidClientTokenId InvalidSecurity "
    "InvalidSignatureException MissingAuthenticationToken MissingAuthenticationTokenException "
    "NotAuthorized OptInRequired RequestExpired SignatureDoesNotMatch UnrecognizedClientException"
)
THROTTLED = _codes(
    "Throttling ThrottlingException ThrottledException RequestThrottled RequestThrottledException "
    "TooManyRequestsException RequestLimitExceeded LimitExceededException SlowDown "
    "PriorRequestNotComplete OverLimit KmsThrottled KMS.ThrottlingException"
)


class Throttled(Later):
    """SQS limits the rate of requests; with fewer requests it accepts them."""


def meaning(error: Exception, queue_url: str) -> Later | Never | None:
    """The outcome for all messages of a call to SQS. Never: SQS refused the call because of its
    contents; if it held several messages, each must be tried alone. None: the error comes neither
    from the network nor from SQS, but from a mistake in this program."""
    # Imported here because boto3 is optional. The caller has a client, so it is installed.
    from botocore import exceptions as sdk  # pyright: ignore[reportMissingTypeStubs]
    from botocore.parsers import (  # pyright: ignore[reportMissingTypeStubs]
        ResponseParserError,
    )

    if isinstance(error, sdk.ParamValidationError):
        return Never(f"boto3 does not accept this message: {error}")
    if not isinstance(error, (sdk.ClientError, sdk.BotoCoreError, ResponseParserError, OSError)):
        return None
    code, status = code_of(error), status_of(error)
    if code in THROTTLED or status == 429:
        return Throttled(f"SQS is throttling: {said(error)}")
    if code in _REFUSED and status not in (401, 403):
        return Never(f"SQS does not accept this message: {said(error)}")
    return Later(explained(error, f"SQS queue {queue_url}"), down=True)


def explained(error: Exception, what: str) -> str:
    """What went wrong with ``what``, a part of AWS, and what to do."""
    from botocore import exceptions as sdk  # pyright: ignore[reportMissingTypeStubs]
    from botocore.parsers import (  # pyright: ignore[reportMissingTypeStubs]
        ResponseParserError,
    )

    text = said(error)
    if isinstance(error, (sdk.NoCredentialsError, sdk.PartialCredentialsError)):
        return (
            f"{what}: there are no AWS credentials. Set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run it under a role"
        )
    if isinstance(error, sdk.NoRegionError):
        return f"{what}: no AWS region is known. Give --region, or set AWS_REGION"
    if isinstance(error, (sdk.HTTPClientError, sdk.ConnectionError, OSError)):
        return f"{what} cannot be reached. Check its URL, the region and the network ({text})"
    if isinstance(error, ResponseParserError):
        return f"{what}: the answer did not come from AWS ({text})"
    if not _response(error):
        return f"{what}: {text}"
    if code_of(error) in _NO_QUEUE:
        return f"{what} does not exist. Create it there, or check the address and region ({text})"
    if code_of(error) in _FORBIDDEN or status_of(error) in (401, 403):
        return (
            f"{what}: AWS denies access ({text}). Check the credentials and the role's policy: to "
            "send to a queue, it must allow sqs:SendMessage"
        )
    return f"{what}: AWS answered {status_of(error)}: {text}"


def _response(error: Any) -> Mapping[str, Any]:
    return getattr(error, "response", None) or {}


def code_of(error: Exception) -> str:
    """AWS's code for the error, without its prefix; "": it is no answer of AWS."""
    return str(_response(error).get("Error", {}).get("Code", "")).removeprefix(_PREFIX)


def status_of(error: Exception) -> int:
    """The HTTP status of the answer; 0: it is not known."""
    return int(_response(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def said(error: Exception) -> str:
    """AWS's code and text, or the error of the library."""
    answer = _response(error).get("Error", {})
    if not answer:
        return f"{type(error).__name__}: {error}"
    return f"{code_of(error)}: {answer.get('Message', '')}"
