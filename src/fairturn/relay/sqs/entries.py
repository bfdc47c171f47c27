"""Messages as entries of SendMessageBatch, entries as batches, and answers as outcomes. Pure.

A message looks in SQS as ``fairturn serve`` would show it (`sqs/bodies.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from fairturn.relay.destination import Later, Never, Outcome, Parcel
from fairturn.relay.sqs.errors import THROTTLED, Throttled
from fairturn.sqs import bodies, checks, contents, errors, limits, md5

OLD_LIMIT = 256 * 1024  # bytes of a batch and of a message, at AWS until August 2025
NO_GROUP = "default"  # the MessageGroupId in a FIFO queue of messages without a channel
# Seconds. A message for a FIFO queue is due by its database's clock, which the relay estimates.
TOLERANCE = 1.0
UNMENTIONED = Later("the answer of SQS does not mention this message")
_PUNCTUATION = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a batch; ``place``: the index of its parcel."""

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
        if isinstance(trace := headers.get(bodies.TRACE), str):
            system = {contents.TRACE_HEADER: {"DataType": "String", "StringValue": trace}}
            contents.system_attributes(system)
            fields["MessageSystemAttributes"] = system
        if fifo:
            id = headers.get(bodies.DEDUPLICATION)
            id = id if isinstance(id, str) else parcel.identity
            checks.deduplication_id(id)
            fields["MessageDeduplicationId"] = id
            fields["MessageGroupId"] = group_id(message.channel) if message.channel else NO_GROUP
        elif groups and message.channel:
            fields["MessageGroupId"] = group_id(message.channel)
    except errors.SqsError as error:
        return Never(f"SQS does not accept this message: {error.message}")
    remaining = parcel.remaining(now_us)
    if remaining > (TOLERANCE if fifo else limits.DELAY):
        return Later(f"it is due in {remaining:,.0f} s, which is too early for this queue")
    if not fifo:  # 0 too: it overrides the queue's own delay
        fields["DelaySeconds"] = math.ceil(remaining)
    return Entry(place, fields, size)


def group_id(channel: str) -> str:
    """The MessageGroupId for a channel: its name, if SQS accepts that. Otherwise the name is
    percent-encoded, and a long one is cut and gets a hash: no message dies because of its channel's
    name."""
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
    """Batches in the order of the entries, each of up to 10 entries and ``most`` bytes. A larger
    entry has its own batch."""
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
    """Up to ``n`` lists that may be sent in parallel. All entries of a group are in one list, in
    their order. The largest groups are distributed first."""
    groups: dict[str, list[Entry]] = {}
    for one in entries:
        groups.setdefault(one.group, []).append(one)
    made: list[list[Entry]] = [[] for _ in range(min(n, len(groups)))]
    for group in sorted(groups.values(), key=len, reverse=True):
        min(made, key=len).extend(group)
    return made


# --- answers -> outcomes ---


def answered(batch: Sequence[Entry], answer: Mapping[str, Any]) -> dict[int, Outcome]:
    """By place: the outcome of each entry."""
    failures = {one["Id"]: failed(one) for one in answer.get("Failed", ())}
    sent = {one["Id"]: one for one in answer.get("Successful", ())}
    outcomes: dict[int, Outcome] = {}
    for one in batch:
        if one.id in failures:
            outcomes[one.place] = failures[one.id]
        elif one.id in sent:
            outcomes[one.place] = _confirmed(one, sent[one.id])
        else:
            outcomes[one.place] = UNMENTIONED
    return outcomes


def failed(answer: Mapping[str, Any]) -> Outcome:
    """The outcome of an entry that SQS reports as failed."""
    code = answer.get("Code", "")
    reason = f"SQS: {code}: {answer.get('Message', '')}"
    if code in THROTTLED:  # checked first: AWS calls this the sender's fault, too
        return Throttled(reason)
    return Never(reason) if answer.get("SenderFault") else Later(reason)


def _confirmed(sent: Entry, answer: Mapping[str, Any]) -> Outcome:
    """Compare the digests, which boto3 does not do. If another body arrived, the message is dead,
    so that people see it: sending it again would deliver it twice."""
    digest = answer.get("MD5OfMessageBody")
    expected = md5.of_body(sent.fields["MessageBody"])
    if digest is not None and digest != expected:
        return Never(f"SQS received another body: its MD5 is {digest}, not {expected}")
    return None


def judged(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The same outcomes; but if SQS throttled all of them, the whole queue has to wait."""
    throttled = [one for one in outcomes if isinstance(one, Throttled)]
    if len(throttled) == len(outcomes):
        return [Later(one.reason, down=True) for one in throttled]
    return list(outcomes)
