"""Messages as entries of SendMessageBatch, entries as batches, and answers as outcomes. Pure.

What a message looks like over there is what ``fairlead serve`` would show of it
(`server/sqs/bodies.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from fairlead.relay.destination import Later, Never, Outcome, Parcel
from fairlead.server.sqs import bodies, checks, contents, errors, limits, md5
from fairlead.values import Message

OLD_LIMIT = 256 * 1024  # of a batch and of a message, at AWS until August 2025
NO_GROUP = "default"  # what messages without a channel are called in a FIFO queue
# A message of a FIFO queue is given when it is due by its database's clock, of which the relay only
# has an estimate.
TOLERANCE = 1.0
_PUNCTUATION = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"

THROTTLED = frozenset(
    (
        *("Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled"),
        *("RequestThrottledException", "TooManyRequestsException", "RequestLimitExceeded"),
        *("LimitExceededException", "SlowDown", "PriorRequestNotComplete", "OverLimit"),
        *("KmsThrottled", "KMS.ThrottlingException"),
    )
)


class Throttled(Later):
    """Too much at once: the destination is there, and takes less."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a batch; ``place`` is that of its parcel."""

    place: int
    fields: dict[str, Any]
    size: int

    @property
    def id(self) -> str:
        return self.fields["Id"]

    @property
    def group(self) -> str:
        return self.fields.get("MessageGroupId", "")


# --- parcels -> entries ---


def entry(
    place: int, parcel: Parcel, now_us: int, *, fifo: bool, groups: bool = False
) -> Entry | Later | Never:
    """A parcel as an entry, or why it cannot be one."""
    message = parcel.message
    text = bodies.shown(message.raw, message.is_json)
    headers = message.headers
    attributes = bodies.attributes(headers)
    size = contents.size(text, attributes)
    fields: dict[str, Any] = {"Id": str(place), "MessageBody": text}
    try:
        contents.body(text)
        contents.attributes(attributes)
        contents.fits(size, limits.MESSAGE_BYTES)
        if attributes:
            fields["MessageAttributes"] = attributes
        fields |= _system_attributes(headers)
        if fifo:
            fields |= _fifo_ids(parcel, headers)
        elif groups and message.channel:
            fields["MessageGroupId"] = group_id(message.channel)
    except errors.SqsError as error:
        return Never(f"SQS does not take this message: {error.message}")
    remaining = parcel.remaining(now_us)
    if remaining > (TOLERANCE if fifo else limits.DELAY):
        return Later(f"it is due in {remaining:,.0f} s, which is too far ahead for this queue")
    if not fifo:  # 0 too: it overrides the queue's own delay
        fields["DelaySeconds"] = math.ceil(remaining)
    return Entry(place, fields, size)


def _system_attributes(headers: Mapping[str, Any]) -> dict[str, Any]:
    trace = headers.get(bodies.TRACE)
    if not isinstance(trace, str):
        return {}
    found = {contents.TRACE_HEADER: {"DataType": "String", "StringValue": trace}}
    contents.system_attributes(found)
    return {"MessageSystemAttributes": found}


def _fifo_ids(parcel: Parcel, headers: Mapping[str, Any]) -> dict[str, str]:
    message: Message = parcel.message
    id = headers.get(bodies.DEDUPLICATION)
    if not isinstance(id, str):
        id = parcel.identity
    checks.deduplication_id(id)
    return {
        "MessageGroupId": group_id(message.channel) if message.channel else NO_GROUP,
        "MessageDeduplicationId": id,
    }


def group_id(channel: str) -> str:
    """The MessageGroupId for a channel: itself where SQS takes it. Others are percent-encoded, and
    long ones cut and told apart by a hash: a message must not die of its channel's name."""
    try:
        checks.group_id(channel)
    except errors.SqsError:
        made = quote(channel, safe=_PUNCTUATION)
        if len(made) <= limits.GROUP_ID_CHARS:
            return made
        digest = sha256(channel.encode()).hexdigest()[:32]
        return f"{made[: limits.GROUP_ID_CHARS - 33]}-{digest}"
    return channel


# --- entries -> batches ---


def batches(entries: Iterable[Entry], most: int = limits.MESSAGE_BYTES) -> list[list[Entry]]:
    """In their order, up to 10 and up to ``most`` bytes; one that is larger is alone."""
    made: list[list[Entry]] = []
    room = 0
    for one in entries:
        if not made or len(made[-1]) == limits.BATCH or one.size > room:
            made.append([])
            room = most
        made[-1].append(one)
        room -= one.size
    return made


def streams(entries: Iterable[Entry], n: int) -> list[list[Entry]]:
    """Up to ``n`` lists that may be sent beside each other: entries of one group are in one list,
    in their order. The groups that have most are dealt out first."""
    groups: dict[str, list[Entry]] = {}
    for one in entries:
        groups.setdefault(one.group, []).append(one)
    dealt: list[list[Entry]] = [[] for _ in range(min(n, len(groups)))]
    for group in sorted(groups.values(), key=len, reverse=True):
        min(dealt, key=len).extend(group)
    return dealt


# --- answers -> outcomes ---


def answered(batch: Sequence[Entry], answer: Mapping[str, Any]) -> dict[int, Outcome]:
    """By place: what SQS says about each entry."""
    found: dict[str, Outcome] = {}
    for one in answer.get("Failed", ()):
        found[one["Id"]] = failed(one)
    sent = {one["Id"]: one for one in answer.get("Successful", ())}
    outcomes: dict[int, Outcome] = {}
    for one in batch:
        if one.id in found:
            outcomes[one.place] = found[one.id]
        elif one.id in sent:
            outcomes[one.place] = _confirmed(one, sent[one.id])
        else:
            outcomes[one.place] = Later("SQS answered, and said nothing about this message")
    return outcomes


def failed(answer: Mapping[str, Any]) -> Outcome:
    code = answer.get("Code", "")
    reason = f"SQS: {code}: {answer.get('Message', '')}"
    if code in THROTTLED:  # AWS calls that the sender's fault, too
        return Throttled(reason)
    return Never(reason) if answer.get("SenderFault") else Later(reason)


def _confirmed(sent: Entry, answer: Mapping[str, Any]) -> Outcome:
    """boto3 leaves it to its users to compare digests. What arrived as another body is not sent
    again and again, but dead: there people see it."""
    digest = answer.get("MD5OfMessageBody")
    expected = md5.of_body(sent.fields["MessageBody"])
    if digest is not None and digest != expected:
        return Never(f"SQS got another body than was sent: its MD5 is {digest}, not {expected}")
    return None


def judged(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Where everything was throttled, that is no fault of these messages: all have to wait."""
    if outcomes and all(isinstance(one, Throttled) for one in outcomes):
        return [Later(one.reason, down=True) for one in outcomes if isinstance(one, Throttled)]
    return list(outcomes)
