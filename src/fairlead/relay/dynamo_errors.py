"""What AWS's clients raise, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from botocore import exceptions as raised  # pyright: ignore[reportMissingTypeStubs]
from botocore.parsers import (  # pyright: ignore[reportMissingTypeStubs]
    ResponseParserError,
)

from fairlead.relay.destination import DestinationError
from fairlead.relay.sqs_entries import THROTTLED
from fairlead.relay.sqs_trouble import FORBIDDEN, NO_QUEUE, code_of

ERRORS: tuple[type[Exception], ...] = (
    raised.ClientError,
    raised.BotoCoreError,
    ResponseParserError,
)
CONDITION = "ConditionalCheckFailedException"
NO_TABLE = "ResourceNotFoundException"
EXISTS = "ResourceInUseException"
_CAPACITY = "ProvisionedThroughputExceededException"  # DynamoDB's own word for it
# A policy's word about one table. That credentials have expired says nothing about any.
_DENIED = frozenset(("AccessDenied", "AccessDeniedException", "NotAuthorized"))
# Raised before a request has left: nothing can have happened at the other end.
_NOT_ASKED: tuple[type[Exception], ...] = (
    raised.NoCredentialsError,
    raised.PartialCredentialsError,
    raised.CredentialRetrievalError,
    raised.NoRegionError,
    raised.EndpointConnectionError,
    raised.ConnectTimeoutError,
    raised.ProxyConnectionError,
    raised.SSLError,
    raised.ParamValidationError,
)


def throttled(error: Exception) -> bool:
    return code_of(error) == _CAPACITY or code_of(error) in THROTTLED


def not_ours(error: Exception) -> bool:
    """Is the table gone, or one that we may not look at?"""
    return code_of(error) == NO_TABLE or code_of(error) in _DENIED


def member(answer: Mapping[str, Any], name: str, what: str) -> Any:
    """A part that AWS never leaves out. To boto3 the page of a proxy is an empty answer."""
    if name not in answer:
        raise DestinationError(
            f"{what}: what answered is not AWS, for there is no {name} in it. Look at the "
            "endpoint's URL, and at what is between here and there"
        )
    return answer[name]


def certain(error: Exception) -> bool:
    """Was the request surely not carried out? A client that waited in vain does not know."""
    if isinstance(error, raised.ClientError):
        status = cast("dict[str, Any]", cast(Any, error).response).get("ResponseMetadata", {})
        return int(status.get("HTTPStatusCode", 500)) < 500
    return isinstance(error, _NOT_ASKED)


def explained(error: Exception, what: str) -> str:
    """What went wrong with ``what``, and what to do."""
    if isinstance(error, raised.NoCredentialsError | raised.PartialCredentialsError):
        return (
            f"{what}: there are no AWS credentials. Set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run it under a role"
        )
    if isinstance(error, raised.NoRegionError):
        return f"{what}: no AWS region is known. Give --region, or set AWS_REGION"
    if isinstance(error, raised.EndpointConnectionError | raised.ConnectTimeoutError):
        return f"{what}: {error}. Look at the endpoint's URL, the region, and the network"
    if code_of(error) in FORBIDDEN:
        return f"{what}: AWS refuses these credentials ({_said(error)}). Look at the role's policy"
    if code_of(error) in NO_QUEUE:
        return f"{what}: SQS has no such queue. Create it there, or look at the region"
    return f"{what}: {_said(error)}"


def no_table(queue: str) -> DestinationError:
    return DestinationError(
        f"there is no DynamoDB table {queue!r}. Create it: fairlead relay dynamodb create-table "
        f"{queue}; or look at the region"
    )


def wrong_layout(queue: str) -> DestinationError:
    return DestinationError(
        f"the DynamoDB table {queue!r} has another layout than shoryuken-waiter's: its keys must "
        "be scheduler (S) and job_id (S), with a local index scheduler-perform_at-index over "
        "perform_at (N). Name a queue whose table is made for this"
    )


def of_table(error: Exception, queue: str) -> DestinationError:
    """An error of DynamoDB's as one that says what to do."""
    if "index" in _said(error).lower() and code_of(error) in (NO_TABLE, "ValidationException"):
        return wrong_layout(queue)
    if code_of(error) == NO_TABLE:
        return no_table(queue)
    return DestinationError(explained(error, f"DynamoDB table {queue!r}"))


def _said(error: Exception) -> str:
    answer = cast("dict[str, Any]", getattr(error, "response", None) or {})
    text = str(answer.get("Error", {}).get("Message", "")) or str(error)
    return f"{code_of(error)}: {text}" if code_of(error) else text
