"""What each action takes and gives: the one table by which both protocols are read and written.

The notation: `_of("Name", TYPE, "QueryName")` is a member. `Name!` must be given and must not be
empty, or the wire answers MissingParameter. `Name*` must be given as well, but its lack has another
answer than MissingParameter, which `checks`, `contents` or `settings` gives. Without a type a
member is a string; the third argument is its name in the Query protocol, where lists and maps are
flattened:

    AttributeNames   ListOf(STRING)   "AttributeName"   AttributeName.1=All
    Attributes       MapOf(STRING)    "Attribute"       Attribute.1.Name=Policy&Attribute.1.Value=
    Tags             TAGS             "Tag"             Tag.1.Key=team&Tag.1.Value=red

In XML the same names are the elements'. A test compares this table with botocore's model of SQS,
member by member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Scalar:
    kind: Literal["string", "integer", "long", "boolean", "blob"]
    free: bool = False  # text whose characters `contents` judges, entry by entry, not the wire

    @property
    def bound(self) -> int:
        """Of numbers: -bound <= number < bound."""
        return 2**31 if self.kind == "integer" else 2**63


@dataclass(frozen=True, slots=True)
class ListOf:
    item: Type


@dataclass(frozen=True, slots=True)
class MapOf:
    """Text to value."""

    value: Type
    key_name: str = "Name"
    value_name: str = "Value"


@dataclass(frozen=True, slots=True)
class Structure:
    members: Mapping[str, Member]


Type: TypeAlias = Scalar | ListOf | MapOf | Structure


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    type: Type
    query: str
    required: bool  # by the model
    insisted: bool  # by the wire: MissingParameter

    @property
    def asked(self) -> str:
        """How MissingParameter calls it; AWS asks for attributes by Query's first parameter."""
        return f"{self.query}.Name" if self.name == "Attributes" else self.name


@dataclass(frozen=True, slots=True)
class Action:
    name: str
    takes: Structure
    gives: Structure | None  # None: a void action
    at_queues: bool = True  # may be sent to a queue's URL


STRING = Scalar("string")
TEXT = Scalar("string", free=True)
INTEGER = Scalar("integer")
LONG = Scalar("long")
BOOLEAN = Scalar("boolean")
BLOB = Scalar("blob")


def _of(notation: str, type: Type = STRING, query: str | None = None) -> Member:
    name = notation.rstrip("!*")
    return Member(name, type, query or name, name != notation, notation.endswith("!"))


def _structure(*members: str | Member) -> Structure:
    whole = [_of(member) if isinstance(member, str) else member for member in members]
    return Structure(MappingProxyType({member.name: member for member in whole}))


STRINGS = ListOf(STRING)
ATTRIBUTES = MapOf(STRING)
TAGS = MapOf(STRING, key_name="Key")

_VALUE = _structure(
    _of("StringValue", TEXT),
    _of("BinaryValue", BLOB),
    _of("StringListValues", ListOf(TEXT), "StringListValue"),
    _of("BinaryListValues", ListOf(BLOB), "BinaryListValue"),
    "DataType*",
)
_VALUES = MapOf(_VALUE)

_TO_SEND = (
    _of("MessageBody!", TEXT),
    _of("DelaySeconds", INTEGER),
    _of("MessageAttributes", _VALUES, "MessageAttribute"),
    _of("MessageSystemAttributes", _VALUES, "MessageSystemAttribute"),
    "MessageDeduplicationId",
    "MessageGroupId",
)

_MESSAGE = _structure(
    "MessageId",
    "ReceiptHandle",
    "MD5OfBody",
    "Body",
    _of("Attributes", ATTRIBUTES, "Attribute"),
    "MD5OfMessageAttributes",
    _of("MessageAttributes", _VALUES, "MessageAttribute"),
)

_MOVE_TASK = _structure(
    "TaskHandle",
    "Status",
    "SourceArn",
    "DestinationArn",
    _of("MaxNumberOfMessagesPerSecond", INTEGER),
    _of("ApproximateNumberOfMessagesMoved", LONG),
    _of("ApproximateNumberOfMessagesToMove", LONG),
    "FailureReason",
    _of("StartedTimestamp", LONG),
)

_FAILED = _of(
    "Failed*",
    ListOf(_structure("Id*", _of("SenderFault*", BOOLEAN), "Code*", "Message")),
    "BatchResultErrorEntry",
)


def _entries(action: str, *members: str | Member) -> Member:
    return _of("Entries*", ListOf(_structure("Id*", *members)), f"{action}RequestEntry")


def _outcomes(action: str, *members: str | Member) -> tuple[Member, Member]:
    entry = ListOf(_structure("Id*", *members))
    return _of("Successful*", entry, f"{action}ResultEntry"), _FAILED


def _table(*actions: Action) -> Mapping[str, Action]:
    return MappingProxyType({action.name: action for action in actions})


_VOID = None
_PAGED = ("NextToken", _of("MaxResults", INTEGER))
_QUEUE_ATTRIBUTES = _of("Attributes", ATTRIBUTES, "Attribute")

ACTIONS: Mapping[str, Action] = _table(
    # --- queues ---
    Action(
        "CreateQueue",
        _structure("QueueName!", _QUEUE_ATTRIBUTES, _of("tags", TAGS, "Tag")),
        _structure("QueueUrl"),
        at_queues=False,
    ),
    Action("DeleteQueue", _structure("QueueUrl!"), _VOID),
    Action(
        "GetQueueUrl", _structure("QueueName!", "QueueOwnerAWSAccountId"), _structure("QueueUrl")
    ),
    Action(
        "ListQueues",
        _structure("QueueNamePrefix", *_PAGED),
        _structure(_of("QueueUrls", STRINGS, "QueueUrl"), "NextToken"),
        at_queues=False,
    ),
    Action(
        "GetQueueAttributes",
        _structure("QueueUrl!", _of("AttributeNames", STRINGS, "AttributeName")),
        _structure(_QUEUE_ATTRIBUTES),
    ),
    Action(
        "SetQueueAttributes",
        _structure("QueueUrl!", _of("Attributes!", ATTRIBUTES, "Attribute")),
        _VOID,
    ),
    Action("PurgeQueue", _structure("QueueUrl!"), _VOID),
    Action(
        "ListDeadLetterSourceQueues",
        _structure("QueueUrl!", *_PAGED),
        _structure(_of("queueUrls*", STRINGS, "QueueUrl"), "NextToken"),
    ),
    # --- tags and permissions ---
    Action("TagQueue", _structure("QueueUrl!", _of("Tags!", TAGS, "Tag")), _VOID),
    Action("UntagQueue", _structure("QueueUrl!", _of("TagKeys*", STRINGS, "TagKey")), _VOID),
    Action("ListQueueTags", _structure("QueueUrl!"), _structure(_of("Tags", TAGS, "Tag"))),
    Action(
        "AddPermission",
        _structure(
            "QueueUrl!",
            "Label!",
            _of("AWSAccountIds*", STRINGS, "AWSAccountId"),
            _of("Actions!", STRINGS, "ActionName"),
        ),
        _VOID,
    ),
    Action("RemovePermission", _structure("QueueUrl!", "Label!"), _VOID),
    # --- messages ---
    Action(
        "SendMessage",
        _structure("QueueUrl!", *_TO_SEND),
        _structure(
            "MD5OfMessageBody",
            "MD5OfMessageAttributes",
            "MD5OfMessageSystemAttributes",
            "MessageId",
            "SequenceNumber",
        ),
    ),
    Action(
        "SendMessageBatch",
        _structure("QueueUrl!", _entries("SendMessageBatch", *_TO_SEND)),
        _structure(
            *_outcomes(
                "SendMessageBatch",
                "MessageId*",
                "MD5OfMessageBody*",
                "MD5OfMessageAttributes",
                "MD5OfMessageSystemAttributes",
                "SequenceNumber",
            )
        ),
    ),
    Action(
        "ReceiveMessage",
        _structure(
            "QueueUrl!",
            _of("AttributeNames", STRINGS, "AttributeName"),
            _of("MessageSystemAttributeNames", STRINGS, "MessageSystemAttributeName"),
            _of("MessageAttributeNames", STRINGS, "MessageAttributeName"),
            _of("MaxNumberOfMessages", INTEGER),
            _of("VisibilityTimeout", INTEGER),
            _of("WaitTimeSeconds", INTEGER),
            "ReceiveRequestAttemptId",
        ),
        _structure(_of("Messages", ListOf(_MESSAGE), "Message")),
    ),
    Action("DeleteMessage", _structure("QueueUrl!", "ReceiptHandle!"), _VOID),
    Action(
        "DeleteMessageBatch",
        _structure("QueueUrl!", _entries("DeleteMessageBatch", "ReceiptHandle!")),
        _structure(*_outcomes("DeleteMessageBatch")),
    ),
    Action(
        "ChangeMessageVisibility",
        _structure("QueueUrl!", "ReceiptHandle!", _of("VisibilityTimeout!", INTEGER)),
        _VOID,
    ),
    Action(
        "ChangeMessageVisibilityBatch",
        _structure(
            "QueueUrl!",
            _entries(
                "ChangeMessageVisibilityBatch", "ReceiptHandle!", _of("VisibilityTimeout", INTEGER)
            ),
        ),
        _structure(*_outcomes("ChangeMessageVisibilityBatch")),
    ),
    # --- moving dead letters back ---
    Action(
        "StartMessageMoveTask",
        _structure("SourceArn!", "DestinationArn", _of("MaxNumberOfMessagesPerSecond", INTEGER)),
        _structure("TaskHandle"),
    ),
    Action(
        "ListMessageMoveTasks",
        _structure("SourceArn!", _of("MaxResults", INTEGER)),
        _structure(_of("Results", ListOf(_MOVE_TASK), "ListMessageMoveTasksResultEntry")),
    ),
    Action(
        "CancelMessageMoveTask",
        _structure("TaskHandle!"),
        _structure(_of("ApproximateNumberOfMessagesMoved", LONG)),
    ),
)
