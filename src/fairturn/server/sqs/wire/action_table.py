"""The input and output of each action: one table for parsing and rendering in both protocols.

A line of the table is an action, the members of its input, and after `->` those of its output; a
void action has no `->`. An indented line continues the line before. A member is
`Name:type=QueryName`:

    Name!            required and not empty, or the wire answers MissingParameter
    Name*            required, too, but another error is raised by `checks`, `contents` or
                     `attribute_rules`
    :type            a name of `_TYPES`; default: a string
    =QueryName       its name in the Query protocol, and as an element in XML; default: its name,
                     of a list or map in the singular

In Query, lists and maps are flattened:

    AttributeNames:strings      AttributeName.1=All
    Attributes:attributes       Attribute.1.Name=Policy&Attribute.1.Value=
    Tags:tags                   Tag.1.Key=team&Tag.1.Value=red

A test compares this table with botocore's model of SQS, member by member.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Scalar:
    kind: Literal["string", "integer", "long", "boolean", "blob"]
    free: bool = False  # its characters are checked by `contents`, entry by entry, not by the wire

    @property
    def bound(self) -> int:
        """The range of numbers: -bound <= number < bound."""
        return 2**31 if self.kind == "integer" else 2**63


@dataclass(frozen=True, slots=True)
class ListOf:
    item: Type


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from texts to values."""

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
    required: bool  # in AWS's model
    required_on_wire: bool  # the wire answers MissingParameter

    @property
    def name_in_error(self) -> str:
        """The name in MissingParameter; for attributes AWS uses Query's first parameter."""
        return f"{self.query}.Name" if self.name == "Attributes" else self.name


@dataclass(frozen=True, slots=True)
class Action:
    name: str
    input: Structure
    output: Structure | None  # None: a void action
    at_queues: bool = True  # may be sent to a queue's URL


STRING = Scalar("string")
TEXT = Scalar("string", free=True)
BLOB = Scalar("blob")

_TYPES: dict[str, Type] = {
    "integer": Scalar("integer"),
    "long": Scalar("long"),
    "boolean": Scalar("boolean"),
    "text": TEXT,
    "blob": BLOB,
    "strings": ListOf(STRING),
    "texts": ListOf(TEXT),
    "blobs": ListOf(BLOB),
    "attributes": MapOf(STRING),
    "tags": MapOf(STRING, key_name="Key"),
}
_NOT_AT_QUEUES = ("CreateQueue", "ListQueues")


def _structure(notation: str) -> Structure:
    members = [_member(one) for one in notation.split()]
    return Structure(MappingProxyType({member.name: member for member in members}))


def _list(notation: str) -> ListOf:
    return ListOf(_structure(notation))


def _member(notation: str) -> Member:
    typed, _, query = notation.partition("=")
    marked, _, type_name = typed.partition(":")
    name = marked.rstrip("!*")
    type = _TYPES[type_name] if type_name else STRING
    if not query:
        plural = isinstance(type, ListOf | MapOf)
        query = name[0].upper() + name[1:].removesuffix("s") if plural else name
    return Member(name, type, query, name != marked, marked.endswith("!"))


def _action(notation: str) -> Action:
    name, _, members = notation.strip().partition(" ")
    input, arrow, output = members.partition("->")
    return Action(
        name,
        _structure(input),
        _structure(output) if arrow else None,
        at_queues=name not in _NOT_AT_QUEUES,
    )


_TO_SEND = """
    MessageBody!:text DelaySeconds:integer MessageAttributes:values MessageSystemAttributes:values
    MessageDeduplicationId MessageGroupId
"""
_TYPES["values"] = MapOf(
    _structure(
        "StringValue:text BinaryValue:blob StringListValues:texts BinaryListValues:blobs DataType*"
    )
)
_TYPES["messages"] = _list("""
    MessageId ReceiptHandle MD5OfBody Body Attributes:attributes MD5OfMessageAttributes
    MessageAttributes:values
""")
_TYPES["entries_to_send"] = _list("Id*" + _TO_SEND)
_TYPES["entries_sent"] = _list("""
    Id* MessageId* MD5OfMessageBody* MD5OfMessageAttributes MD5OfMessageSystemAttributes
    SequenceNumber
""")
_TYPES["entries_to_delete"] = _list("Id* ReceiptHandle!")
_TYPES["entries_to_change"] = _list("Id* ReceiptHandle! VisibilityTimeout:integer")
_TYPES["entries_done"] = _list("Id*")
_TYPES["entries_failed"] = _list("Id* SenderFault*:boolean Code* Message")
_TYPES["move_tasks"] = _list("""
    TaskHandle Status SourceArn DestinationArn MaxNumberOfMessagesPerSecond:integer
    ApproximateNumberOfMessagesMoved:long ApproximateNumberOfMessagesToMove:long
    FailureReason StartedTimestamp:long
""")
_FAILED = "Failed*:entries_failed=BatchResultErrorEntry"

_TABLE = f"""
CreateQueue QueueName! Attributes:attributes tags:tags -> QueueUrl
DeleteQueue QueueUrl!
GetQueueUrl QueueName! QueueOwnerAWSAccountId -> QueueUrl
ListQueues QueueNamePrefix NextToken MaxResults:integer -> QueueUrls:strings NextToken
GetQueueAttributes QueueUrl! AttributeNames:strings -> Attributes:attributes
SetQueueAttributes QueueUrl! Attributes!:attributes
PurgeQueue QueueUrl!
ListDeadLetterSourceQueues QueueUrl! NextToken MaxResults:integer -> queueUrls*:strings NextToken
TagQueue QueueUrl! Tags!:tags
UntagQueue QueueUrl! TagKeys*:strings
ListQueueTags QueueUrl! -> Tags:tags
AddPermission QueueUrl! Label! AWSAccountIds*:strings Actions!:strings=ActionName
RemovePermission QueueUrl! Label!
SendMessage QueueUrl! {_TO_SEND}
    -> MD5OfMessageBody MD5OfMessageAttributes MD5OfMessageSystemAttributes MessageId SequenceNumber
SendMessageBatch QueueUrl! Entries*:entries_to_send=SendMessageBatchRequestEntry
    -> Successful*:entries_sent=SendMessageBatchResultEntry {_FAILED}
ReceiveMessage QueueUrl! AttributeNames:strings MessageSystemAttributeNames:strings
    MessageAttributeNames:strings MaxNumberOfMessages:integer VisibilityTimeout:integer
    WaitTimeSeconds:integer ReceiveRequestAttemptId -> Messages:messages
DeleteMessage QueueUrl! ReceiptHandle!
DeleteMessageBatch QueueUrl! Entries*:entries_to_delete=DeleteMessageBatchRequestEntry
    -> Successful*:entries_done=DeleteMessageBatchResultEntry {_FAILED}
ChangeMessageVisibility QueueUrl! ReceiptHandle! VisibilityTimeout!:integer
ChangeMessageVisibilityBatch QueueUrl!
    Entries*:entries_to_change=ChangeMessageVisibilityBatchRequestEntry
    -> Successful*:entries_done=ChangeMessageVisibilityBatchResultEntry {_FAILED}
StartMessageMoveTask SourceArn! DestinationArn MaxNumberOfMessagesPerSecond:integer -> TaskHandle
ListMessageMoveTasks SourceArn! MaxResults:integer
    -> Results:move_tasks=ListMessageMoveTasksResultEntry
CancelMessageMoveTask TaskHandle! -> ApproximateNumberOfMessagesMoved:long
"""
_LINES = re.split(r"\n(?=\w)", _TABLE.strip())  # each with the indented lines after it
ACTIONS: Mapping[str, Action] = MappingProxyType(
    {action.name: action for action in map(_action, _LINES)}
)
