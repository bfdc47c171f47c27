"""What an error of a whole call to SQS means for the messages it was about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.relay.destination import Later, Never
from fairlead.relay.sqs_entries import THROTTLED, Throttled

TOO_LONG = "BatchRequestTooLong"
_PREFIX = "AWS.SimpleQueueService."
NO_QUEUE = frozenset(("NonExistentQueue", "QueueDoesNotExist", "InvalidAddress"))
# What is said about a message, or about one of several.
_REFUSED = frozenset(
    (
        *(TOO_LONG, "InvalidMessageContents", "InvalidParameterValue", "MissingParameter"),
        *("InvalidParameterValueException", "MissingRequiredParameterException"),
        *("InvalidParameterCombination", "InvalidAttributeValue", "UnsupportedOperation"),
    )
)
FORBIDDEN = frozenset(
    (
        *("AccessDenied", "AccessDeniedException", "InvalidClientTokenId", "InvalidAccessKeyId"),
        *("SignatureDoesNotMatch", "UnrecognizedClientException", "ExpiredToken", "NotAuthorized"),
        *(
            "ExpiredTokenException",
            "InvalidSecurity",
            "MissingAuthenticationToken",
            "OptInRequired",
        ),
        *("MissingAuthenticationTokenException", "IncompleteSignature", "RequestExpired"),
        *("InvalidSignatureException", "AuthFailure"),
    )
)


def meaning(error: Exception, queue_url: str) -> Later | Never | None:
    """The outcome for all messages of the call. Never: the call was refused for what is in it, so
    if it held several they are to be tried one by one. None: it is no trouble of a network or of
    SQS, but a mistake of ours."""
    # Only who has a client gets here, so botocore is there.
    from botocore import exceptions as sdk  # pyright: ignore[reportMissingTypeStubs]
    from botocore.parsers import (  # pyright: ignore[reportMissingTypeStubs]
        ResponseParserError,
    )

    if isinstance(error, sdk.ClientError):
        return _refusal(_response(error), queue_url)
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, sdk.ParamValidationError):
        return Never(f"boto3 does not take this message: {error}")
    if isinstance(error, (sdk.NoCredentialsError, sdk.PartialCredentialsError)):
        return Later(
            "boto3 finds no credentials for SQS: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            f"a profile or a role where the relay runs ({error})",
            down=True,
        )
    if isinstance(error, (sdk.HTTPClientError, sdk.ConnectionError, OSError)):
        return Later(
            f"SQS cannot be reached at {queue_url}: look at the network, and at the address with "
            f"fairlead relay status ({text})",
            down=True,
        )
    if isinstance(error, ResponseParserError):
        return Later(f"what answers at {queue_url} is no SQS: {error}", down=True)
    if isinstance(error, sdk.BotoCoreError):
        return Later(f"boto3 cannot send to {queue_url}: {text}", down=True)
    return None


def _response(error: Any) -> Mapping[str, Any]:
    return getattr(error, "response", {})


def code_of(error: Exception) -> str:
    return str(_response(error).get("Error", {}).get("Code", "")).removeprefix(_PREFIX)


def _refusal(response: Mapping[str, Any], queue_url: str) -> Later | Never:
    error: Mapping[str, Any] = response.get("Error", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(error.get("Code", "")).removeprefix(_PREFIX)
    text = f"{code}: {error.get('Message', '')}"
    if code in THROTTLED or status == 429:
        return Throttled(f"SQS is throttling: {text}")
    if code in NO_QUEUE:
        return Later(
            f"SQS has no queue {queue_url}: create it there, or name another one with "
            f"fairlead relay set ({text})",
            down=True,
        )
    if code in FORBIDDEN or status in (401, 403):
        return Later(
            f"SQS does not let us send to {queue_url}: allow sqs:SendMessage there, or give the "
            f"relay other credentials ({text})",
            down=True,
        )
    if code in _REFUSED:
        return Never(f"SQS does not take this message: {text}")
    return Later(f"SQS at {queue_url} answered {status}: {text}", down=True)
