"""Every refusal of the SQS door: its name in JSON, its code in Query, its HTTP status, its text.

    raise errors.MISSING_PARAMETER("The request must contain the parameter QueueUrl.")
    raise errors.QUEUE_DOES_NOT_EXIST()      # the usual text, which Query words differently

JSON names an error by its shape (`__type`) and repeats Query's code in `x-amzn-query-error`; SDKs
show that code as Error.Code. The texts are AWS's, since programs compare them.
"""

from __future__ import annotations

from dataclasses import dataclass

_MODEL = "com.amazonaws.sqs#"
_FRAMEWORK = "com.amazon.coral.service#"  # errors that are no shape of SQS's model
_PREFIX = "AWS.SimpleQueueService."


class SqsError(Exception):
    """A request that is refused; what it is made of is the kind, and the text in both protocols."""

    def __init__(self, kind: Kind, message: str, query_message: str | None = None) -> None:
        self.kind = kind
        self.message = message
        self.query_message = message if query_message is None else query_message
        super().__init__(f"{kind.code}: {message}")

    def __reduce__(self) -> tuple[type[SqsError], tuple[Kind, str, str]]:
        return SqsError, (self.kind, self.message, self.query_message)

    @property
    def code(self) -> str:
        return self.kind.code

    @property
    def type(self) -> str:
        return self.kind.type

    @property
    def status(self) -> int:
        return self.kind.status

    def entry(self, id: str) -> dict[str, str | bool]:
        """This error as the outcome of one entry of a batch: an item of `Failed`."""
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
    usual: str = ""  # the text, where there is only one
    usual_query: str | None = None  # where Query words it differently
    namespace: str = _MODEL

    @property
    def type(self) -> str:
        return self.namespace + self.name

    def __call__(self, message: str | None = None) -> SqsError:
        if message is None:
            return SqsError(self, self.usual, self.usual_query)
        return SqsError(self, message)


# --- queues ---
QUEUE_DOES_NOT_EXIST = Kind(
    "QueueDoesNotExist",
    _PREFIX + "NonExistentQueue",
    usual="The specified queue does not exist.",
    usual_query="The specified queue does not exist for this wsdl version.",
)
QUEUE_NAME_EXISTS = Kind("QueueNameExists", "QueueAlreadyExists")
QUEUE_DELETED_RECENTLY = Kind(
    "QueueDeletedRecently",
    _PREFIX + "QueueDeletedRecently",
    usual="You must wait 60 seconds after deleting a queue before you can create another "
    "with the same name.",
)
PURGE_QUEUE_IN_PROGRESS = Kind("PurgeQueueInProgress", _PREFIX + "PurgeQueueInProgress", 403)
RESOURCE_NOT_FOUND = Kind(
    "ResourceNotFoundException",
    "ResourceNotFoundException",
    404,
    usual="The resource that you specified for the SourceArn parameter doesn't exist.",
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
    usual="Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
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
    usual="A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
    "It can be at most 80 letters long.",
)
BATCH_ENTRY_IDS_NOT_DISTINCT = Kind(
    "BatchEntryIdsNotDistinct", _PREFIX + "BatchEntryIdsNotDistinct"
)

# --- who asks, and how often ---
INVALID_SECURITY = Kind("InvalidSecurity", "InvalidSecurity", 403)
REQUEST_THROTTLED = Kind("RequestThrottled", "RequestThrottled", 403, usual="Rate exceeded")

# --- the request as such: the same name in both protocols, which raise different ones ---
UNKNOWN_OPERATION = Kind(
    "UnknownOperationException", "UnknownOperationException", 404, namespace=_FRAMEWORK
)
INVALID_ACTION = Kind("InvalidAction", "InvalidAction", namespace=_FRAMEWORK)
SERIALIZATION = Kind("SerializationException", "SerializationException", namespace=_FRAMEWORK)
MALFORMED_INPUT = Kind("MalformedInput", "MalformedInput", namespace=_FRAMEWORK)
REQUEST_TOO_LARGE = Kind(
    "RequestEntityTooLargeException",
    "RequestEntityTooLarge",
    413,
    usual="The request is larger than this server accepts.",
    namespace=_FRAMEWORK,
)

# --- ours ---
INTERNAL_FAILURE = Kind(
    "InternalFailure",
    "InternalFailure",
    500,
    usual="We encountered an internal error. Please try again.",
    namespace=_FRAMEWORK,
)
SERVICE_UNAVAILABLE = Kind(
    "ServiceUnavailable",
    "ServiceUnavailable",
    503,
    usual="The database cannot be reached now. Please try again.",
    namespace=_FRAMEWORK,
)

KINDS: tuple[Kind, ...] = tuple(
    kind for kind in globals().copy().values() if isinstance(kind, Kind)
)


def missing(parameter: str) -> SqsError:
    return MISSING_PARAMETER(f"The request must contain the parameter {parameter}.")


def invalid(value: object, parameter: str, reason: str) -> SqsError:
    """The sentence most of SQS's refusals are made of."""
    return INVALID_PARAMETER_VALUE(
        f"Value {value} for parameter {parameter} is invalid. Reason: {reason}"
    )
