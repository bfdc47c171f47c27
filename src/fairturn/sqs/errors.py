"""All errors of the SQS door: their names in JSON, codes in Query, HTTP statuses and texts.

    raise errors.MISSING_PARAMETER("The request must contain the parameter QueueUrl.")
    raise errors.QUEUE_DOES_NOT_EXIST()      # the default text, which is different in Query

JSON names an error by its shape (`__type`) and repeats Query's code in `x-amzn-query-error`; SDKs
show that code as Error.Code. The texts are AWS's, since programs compare them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from fairturn.sqs.characters import printable

_MODEL = "com.amazonaws.sqs#"
_PREFIX = "AWS.SimpleQueueService."


class SqsError(Exception):
    """The refusal of a request: its kind, and its text in both protocols."""

    def __init__(self, kind: Kind, message: str, query_message: str | None = None) -> None:
        self.kind = kind
        self.code, self.type, self.status = kind.code, kind.type, kind.status
        self.fault = "Sender" if kind.status < 500 else "Receiver"
        self.message = message
        self.query_message = message if query_message is None else query_message
        super().__init__(f"{kind.code}: {message}")

    def __reduce__(self) -> tuple[type[SqsError], tuple[Kind, str, str]]:
        return SqsError, (self.kind, self.message, self.query_message)

    def entry(self, id: str) -> dict[str, str | bool]:
        """Return this error as the outcome of one entry of a batch: an item of `Failed`."""
        return {
            "Id": id,
            "SenderFault": self.status < 500,
            "Code": self.code,
            "Message": self.message,
        }


@dataclass(frozen=True, slots=True)
class Kind:
    name: str  # the short `__type`
    code: str
    status: int = 400
    default: str = ""  # the text, if there is only one
    default_query: str | None = None  # if the text is different in Query
    namespace: str = _MODEL

    @property
    def type(self) -> str:
        return self.namespace + self.name

    def __call__(self, message: str | None = None) -> SqsError:
        if message is None:
            return SqsError(self, self.default, self.default_query)
        return SqsError(self, message)


_framework = partial(Kind, namespace="com.amazon.coral.service#")  # not in SQS's model

# --- queues ---
QUEUE_DOES_NOT_EXIST = Kind(
    "QueueDoesNotExist",
    _PREFIX + "NonExistentQueue",
    default="The specified queue does not exist.",
    default_query="The specified queue does not exist for this wsdl version.",
)
QUEUE_NAME_EXISTS = Kind("QueueNameExists", "QueueAlreadyExists")
QUEUE_DELETED_RECENTLY = Kind(
    "QueueDeletedRecently",
    _PREFIX + "QueueDeletedRecently",
    default="You must wait 60 seconds after deleting a queue before you can create another "
    "with the same name.",
)
PURGE_QUEUE_IN_PROGRESS = Kind("PurgeQueueInProgress", _PREFIX + "PurgeQueueInProgress", 403)
RESOURCE_NOT_FOUND = Kind(
    "ResourceNotFoundException",
    "ResourceNotFoundException",
    404,
    default="The resource that you specified for the SourceArn parameter doesn't exist.",
)
INVALID_ADDRESS = Kind("InvalidAddress", "InvalidAddress", 404)

# --- parameters ---
MISSING_PARAMETER = Kind("MissingRequiredParameterException", "MissingParameter")
INVALID_PARAMETER_VALUE = Kind("InvalidParameterValueException", "InvalidParameterValue")
INVALID_ATTRIBUTE_NAME = Kind("InvalidAttributeName", "InvalidAttributeName")
INVALID_ATTRIBUTE_VALUE = Kind("InvalidAttributeValue", "InvalidAttributeValue")
UNSUPPORTED_OPERATION = Kind("UnsupportedOperation", _PREFIX + "UnsupportedOperation")
OVER_LIMIT = Kind("OverLimit", "OverLimit", 403)

# --- messages ---
INVALID_MESSAGE_CONTENTS = Kind(
    "InvalidMessageContents",
    "InvalidMessageContents",
    default="Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
    "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
)
RECEIPT_HANDLE_IS_INVALID = Kind("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid")
INVALID_ID_FORMAT = Kind("InvalidIdFormat", "InvalidIdFormat")
MESSAGE_NOT_INFLIGHT = Kind("MessageNotInflight", _PREFIX + "MessageNotInflight")

# --- batches ---
EMPTY_BATCH_REQUEST = Kind("EmptyBatchRequest", _PREFIX + "EmptyBatchRequest")
TOO_MANY_ENTRIES = Kind("TooManyEntriesInBatchRequest", _PREFIX + "TooManyEntriesInBatchRequest")
BATCH_REQUEST_TOO_LONG = Kind("BatchRequestTooLong", _PREFIX + "BatchRequestTooLong")
INVALID_BATCH_ENTRY_ID = Kind(
    "InvalidBatchEntryId",
    _PREFIX + "InvalidBatchEntryId",
    default="A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
    "It can be at most 80 letters long.",
)
BATCH_ENTRY_IDS_NOT_DISTINCT = Kind(
    "BatchEntryIdsNotDistinct", _PREFIX + "BatchEntryIdsNotDistinct"
)

# --- callers and rates ---
INVALID_SECURITY = Kind("InvalidSecurity", "InvalidSecurity", 403)
REQUEST_THROTTLED = Kind("RequestThrottled", "RequestThrottled", 403, default="Rate exceeded")

# --- signatures and permissions: no text repeats a secret, a signature or a token ---
MISSING_TOKEN = _framework(
    "MissingAuthenticationTokenException",
    "MissingAuthenticationToken",
    403,
    default="Request is missing Authentication Token",
)
# Parts of the signature are missing, repeated or malformed.
INCOMPLETE_SIGNATURE = _framework("IncompleteSignatureException", "IncompleteSignature")
# There is no such access key, or it has another session token.
UNKNOWN_KEY = _framework(
    "UnrecognizedClientException",
    "InvalidClientTokenId",
    403,
    default="The security token included in the request is invalid.",
)
# The signature is for another request, key, time or scope.
SIGNATURE_MISMATCH = _framework(
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    403,
    default="The request signature we calculated does not match the signature you provided. Check "
    "your AWS Secret Access Key and signing method. Consult the service documentation for details.",
)
# A presigned request came after its X-Amz-Expires.
REQUEST_EXPIRED = _framework(
    "RequestExpiredException", "RequestExpired", default="Request has expired."
)
ACCESS_DENIED = _framework("AccessDeniedException", "AccessDenied", 403)

# --- malformed requests: each protocol has its own errors, with the same name in both forms ---
UNKNOWN_OPERATION = _framework("UnknownOperationException", "UnknownOperationException", 404)
INVALID_ACTION = _framework("InvalidAction", "InvalidAction")
SERIALIZATION = _framework("SerializationException", "SerializationException")
MALFORMED_INPUT = _framework("MalformedInput", "MalformedInput")
REQUEST_TOO_LARGE = _framework(
    "RequestEntityTooLargeException",
    "RequestEntityTooLarge",
    413,
    default="The request is larger than this server accepts.",
)
REQUEST_TIMEOUT = _framework(
    "RequestTimeoutException",
    "RequestTimeout",
    408,
    default="The request's body did not arrive in time.",
)

# --- failures of the server ---
INTERNAL_FAILURE = _framework(
    "InternalFailure",
    "InternalFailure",
    500,
    default="We encountered an internal error. Please try again.",
)
SERVICE_UNAVAILABLE = _framework(
    "ServiceUnavailable",
    "ServiceUnavailable",
    503,
    default="The database cannot be reached now. Please try again.",
)

KINDS: tuple[Kind, ...] = tuple(
    kind for kind in globals().copy().values() if isinstance(kind, Kind)
)


def denied(resource: str) -> SqsError:
    """Return AccessDenied, with the same text whether the resource exists or not."""
    return ACCESS_DENIED(f"Access to the resource {printable(resource)} is denied.")


def missing(parameter: str) -> SqsError:
    return MISSING_PARAMETER(f"The request must contain the parameter {parameter}.")


def invalid(value: object, parameter: str, reason: str) -> SqsError:
    """Return InvalidParameterValue with SQS's usual sentence."""
    return INVALID_PARAMETER_VALUE(
        f"Value {value} for parameter {parameter} is invalid. Reason: {reason}"
    )
