"""What AWS's clients raise, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore import exceptions as raised  # pyright: ignore[reportMissingTypeStubs]
from botocore.parsers import (  # pyright: ignore[reportMissingTypeStubs]
    ResponseParserError,
)

from fairturn.relay.destination import DestinationError
from fairturn.relay.sqs.errors import THROTTLED, code_of, explained, said, status_of

ERRORS: tuple[type[Exception], ...] = (
    raised.ClientError,
    raised.BotoCoreError,
    ResponseParserError,
)
CONDITION = "ConditionalCheckFailedException"
EXISTS = "ResourceInUseException"
_NO_TABLE = "ResourceNotFoundException"
_THROTTLED = THROTTLED | {"ProvisionedThroughputExceededException"}
# A policy excludes this one table. (Expired credentials would concern all tables.)
_EXCLUDED = frozenset((_NO_TABLE, "AccessDenied", "AccessDeniedException", "NotAuthorized"))
# Raised before a request is sent: AWS cannot have carried it out.
_NOT_SENT: tuple[type[Exception], ...] = (
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


class TableError(DestinationError):
    """An error of a request to a table; its text says what to do. ``code``: AWS's, or ""."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code

    @property
    def throttled(self) -> bool:
        return self.code in _THROTTLED

    @property
    def excluded(self) -> bool:
        """Does the table not exist, or is access to it denied?"""
        return self.code in _EXCLUDED


def member(answer: Mapping[str, Any], name: str, what: str) -> Any:
    """A member that every answer of AWS has. To boto3, the HTML page of a proxy is an answer
    without members."""
    if name not in answer:
        raise DestinationError(
            f"{what}: the answer did not come from AWS, because it has no {name}. Check the "
            "endpoint's URL, and the proxies between here and there"
        )
    return answer[name]


def certain(error: Exception) -> bool:
    """Is it certain that the request was not carried out? After a timeout, for example, it is
    not."""
    if isinstance(error, raised.ClientError):
        return 0 < status_of(error) < 500
    return isinstance(error, _NOT_SENT)


def wrong_layout(queue: str) -> TableError:
    return TableError(
        f"the DynamoDB table {queue!r} has another layout than shoryuken-waiter's: its keys must "
        "be scheduler (S) and job_id (S), with a local index scheduler-perform_at-index over "
        "perform_at (N). Name a queue whose table has this layout"
    )


def of_table(error: Exception, queue: str) -> TableError:
    """The error for a request to a queue's table that failed."""
    code = code_of(error)
    if "index" in said(error).lower() and code in (_NO_TABLE, "ValidationException"):
        return wrong_layout(queue)
    if code == _NO_TABLE:
        text = (
            f"there is no DynamoDB table {queue!r}. Create it: fairturn relay dynamodb "
            f"create-table {queue}; or check the region"
        )
    else:
        text = explained(error, f"DynamoDB table {queue!r}")
    return TableError(text, code)
