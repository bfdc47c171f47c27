"""What a Waiter does with a call: it goes straight to SQS, or is stored until it is due. Pure."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, cast

from fairturn.core import check
from fairturn.core.errors import FairturnError, InvalidArgument
from fairturn.core.limits import DURATION_MAX, SECOND
from fairturn.core.message import Message
from fairturn.core.sends import Send, Sent
from fairturn.core.settings import Policy
from fairturn.core.values import Moment, Stats, moment
from fairturn.relay.route import parcel
from fairturn.relay.sqs.clients import Address, region_of
from fairturn.sqs import bodies, checks, contents, errors, limits, md5, receipt_handles

PATIENCE = 5.0  # seconds to wait for a message that is being handed over
PAUSE = 0.1  # seconds between two tries meanwhile
PAGE = 100  # messages that waiting() reads at a time
_MARK = "fa171ead"  # our MessageIds begin with it; those of `fairturn serve` begin with zeros
_STORABLE = (
    *("Id", "MessageBody", "DelaySeconds", "MessageAttributes", "MessageSystemAttributes"),
    *("MessageGroupId", "MessageDeduplicationId"),
)


class HandingOver(FairturnError):
    """A relay is handing the stored message over to SQS at this moment."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is being handed over to SQS, so it can be neither replaced nor cancelled; "
            "nothing was changed. Try again in a minute: if a relay runs, the message has arrived "
            "there by then, or waits here again"
        )


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that has not been handed over yet."""

    message_id: str
    job_id: str | None
    at: datetime
    body: str
    attributes: Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class Order:
    """A message of a call. It has either ``straight``, boto3's arguments, or ``send``, what is
    stored, and ``digests``, the MD5s of the answer. ``id``: its Id in a batch."""

    id: str
    job: str | None
    straight: dict[str, Any] | None = None
    send: Send | None = None
    digests: dict[str, Any] | None = None

    def answer(self, sent: Sent) -> dict[str, Any]:
        """SQS's answer to a stored message; it raises HandingOver if the message was not stored."""
        if sent.outcome == "refused":
            raise HandingOver(f"the message with JobId {self.job!r}")
        return {**(self.digests or {}), "MessageId": message_id(sent)}


# --- the queue ---


def queue_name(prefix: str, url: str) -> str:
    """The Fairturn queue for an SQS queue: a name that people recognize, different for each URL."""
    with _field("QueueUrl"):
        if not _text(url).startswith(("https://", "http://")):
            # SQS accepts a name, too, but the relay would not know where to send.
            raise InvalidArgument(f"{url!r} is not the queue's URL: sqs.get_queue_url returns it")
        name = checks.queue_of(url)
    return f"{prefix}{name}-{sha256(url.encode()).hexdigest()[:8]}"


def queue_settings(url: str, region: str | None) -> dict[str, Any]:
    """The arguments of create(). For a FIFO queue, the groups are in order here, too."""
    fifo = is_fifo(url)
    address = Address(url, None if region_of(url) else region, groups=not fifo)
    settings: dict[str, Any] = {"max_attempts": 0, "meta": {"destination": str(address)}}
    return {**settings, "policy": Policy(ordered=True)} if fifo else settings


def is_fifo(url: str) -> bool:
    return url.endswith(checks.FIFO)


# --- one message ---


def order(
    url: str, given: Mapping[str, Any], now_us: int, *, always: bool = False, where: str = ""
) -> Order:
    """``given``: boto3's arguments, JobId and At. ``always``: store it, even if its delay is short.
    ``where``: the place of the arguments in a batch, for errors."""
    id = given.get("Id", "")
    job = check.optional_name(given.get("JobId"), f"{where}JobId")
    if job is not None:
        queue_name("", url)  # check it now: a message that goes straight to SQS cancels by this URL
    fields = {name: value for name, value in given.items() if name not in ("JobId", "At")}
    at: Moment | None = given.get("At")
    if at is not None:
        if "DelaySeconds" in fields:
            raise InvalidArgument(f"{where}At: give At or DelaySeconds, not both")
        due = check.instant(at, f"{where}At")
        delay = max(0, math.ceil((due - now_us) / SECOND))  # rounded up: never early
    else:
        delay = fields.get("DelaySeconds", 0)
    if always or _is_long(delay, url):
        check.integer(delay, f"{where}DelaySeconds", 0, DURATION_MAX // SECOND)
        send, digests = _stored(url, fields, where)
        send.delay, send.at = (delay, None) if at is None else (None, at)
        if job is not None:
            send.key, send.on_conflict = job, "replace"
        return Order(id, job, send=send, digests=digests)
    if at is not None and not is_fifo(url):
        fields["DelaySeconds"] = delay
    return Order(id, job, straight=fields)


def _is_long(delay: Any, url: str) -> bool:
    """Is the delay too long for SQS? (boto3 refuses a delay that is no number.)"""
    if not isinstance(delay, int) or isinstance(delay, bool):
        return False
    return delay > (0 if is_fifo(url) else limits.DELAY)


def _stored(url: str, given: Mapping[str, Any], where: str) -> tuple[Send, dict[str, Any]]:
    """The message to store, and its MD5s. It refuses now what SQS would refuse at the hand-over."""
    for name in given:
        if name not in _STORABLE:
            raise InvalidArgument(f"{where}{name}: a stored message cannot have it")
    with _field(f"{where}MessageBody"):
        body = _text(given.get("MessageBody"))
        contents.body(body)
    with _field(f"{where}MessageAttributes"):
        attributes = _attributes(given.get("MessageAttributes"))
        contents.attributes(attributes)
    with _field(f"{where}MessageBody"):
        contents.fits(contents.size(body, attributes), limits.MESSAGE_BYTES)
    digests: dict[str, Any] = {"MD5OfMessageBody": md5.of_body(body)}
    headers = bodies.headers(attributes)
    if attributes:
        digests["MD5OfMessageAttributes"] = md5.of_attributes(attributes)
    with _field(f"{where}MessageSystemAttributes"):
        system = _attributes(given.get("MessageSystemAttributes"))
        contents.system_attributes(system)
    if system:
        headers[bodies.TRACE] = system[contents.TRACE_HEADER]["StringValue"]
        digests["MD5OfMessageSystemAttributes"] = md5.of_attributes(system)
    group, id = given.get("MessageGroupId"), given.get("MessageDeduplicationId")
    with _field(f"{where}MessageGroupId"):
        if group is None and is_fifo(url):
            raise errors.missing("MessageGroupId")
        if group is not None:
            checks.group_id(_text(group))
    with _field(f"{where}MessageDeduplicationId"):
        if id is not None:
            checks.deduplication_id(_text(id))
            if not is_fifo(url):
                raise InvalidArgument("only FIFO queues have it")
            headers[bodies.DEDUPLICATION] = id
    return Send(bodies.stored(body), channel=group or "", headers=headers or None), digests


def _text(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"it must be a str, not {type(value).__name__}")
    return value or ""


def _attributes(given: Any) -> dict[str, contents.Attribute]:
    """The attributes as boto3 accepts them: a binary value may be a bytearray or a str."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"it must be a dict, not {type(given).__name__}")
    made: dict[str, contents.Attribute] = {}
    for name, attribute in cast("Mapping[Any, Any]", given).items():
        if not isinstance(attribute, Mapping):
            raise InvalidArgument(f"{name!r} must be a dict, not {type(attribute).__name__}")
        made[_text(name)] = {
            field: _value(field, value)
            for field, value in cast("Mapping[str, Any]", attribute).items()
        }
    return made


def _value(field: str, value: Any) -> Any:
    if field in ("DataType", "StringValue"):
        return _text(value)
    if field != "BinaryValue":
        return value
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray):
        raise InvalidArgument(f"a BinaryValue must be bytes, not {type(value).__name__}")
    return bytes(value)


@contextlib.contextmanager
def _field(name: str) -> Generator[None]:
    """Begin the errors raised inside with the name of this argument."""
    try:
        yield
    except errors.SqsError as error:
        raise InvalidArgument(f"{name}: {error.message}") from error
    except InvalidArgument as error:
        raise InvalidArgument(f"{name}: {error}") from error


# --- a batch ---


def batch(
    url: str, entries: Sequence[Mapping[str, Any]], now_us: int, *, always: bool = False
) -> list[Order]:
    """The entries, all checked before any of them is sent."""
    made = [
        order(url, entry, now_us, always=always, where=f"Entries[{n}].")
        for n, entry in enumerate(entries)
    ]
    if any(one.send is not None for one in made):
        with _field("Entries"):
            checks.batch("SendMessageBatch", entries)
    jobs = [one.job for one in made if one.job is not None]
    for job in jobs:
        if jobs.count(job) > 1:
            raise InvalidArgument(f"Entries: JobId {job!r} occurs twice")
    return made


def failure(order: Order, error: FairturnError) -> dict[str, Any]:
    """The answer for an entry that was not stored."""
    code = f"Fairturn.{type(error).__name__}"
    return {"Id": order.id, "SenderFault": False, "Code": code, "Message": str(error)}


def stored(order: Order, sent: Sent) -> dict[str, Any]:
    """The answer for an entry that was stored, or that could not replace another message."""
    try:
        return {"Id": order.id, **order.answer(sent)}
    except HandingOver as error:
        return failure(order, error)


def whole(
    made: Sequence[Order], answer: Mapping[str, Any], stored: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """SQS's answer together with the answers for stored entries, in the order of the entries."""
    answers = (*answer.get("Successful", ()), *answer.get("Failed", ()), *stored)
    found = {one["Id"]: one for one in answers}
    ordered = [found[one.id] for one in made if one.id in found]
    parts = {
        "Successful": [one for one in ordered if "Code" not in one],
        "Failed": [one for one in ordered if "Code" in one],
        "ResponseMetadata": answer.get("ResponseMetadata") or response_metadata(),
    }
    return {name: value for name, value in parts.items() if value}


def response_metadata() -> dict[str, Any]:
    """What boto3 adds to every answer."""
    return {"RequestId": "fairturn", "HTTPStatusCode": 200, "HTTPHeaders": {}, "RetryAttempts": 0}


# --- what waits ---


def message_id(id: int) -> str:
    return _MARK + receipt_handles.message_id(id)[len(_MARK) :]


def id_of(message_id: str) -> int | None:
    """The id of a stored message; None: it is a MessageId of SQS."""
    if not message_id.startswith(_MARK):
        return None
    return receipt_handles.id_of("0" * len(_MARK) + message_id.removeprefix(_MARK))


def which(job_id: str | None, message_id: str | None) -> dict[str, Any] | None:
    """The message that cancel() means, by its key or id. None: it cannot be a stored one."""
    if (job_id is None) == (message_id is None):
        raise InvalidArgument("give JobId= or MessageId=, one of them")
    if job_id is not None:
        return {"key": job_id}
    id = id_of(message_id or "")
    return None if id is None else {"id": id}


def count(stats: Stats) -> int:
    return stats.ready + stats.scheduled + stats.leased


def waiting(message: Message) -> Waiting | None:
    """A stored message as the public value; None: it is dead."""
    if message.state not in ("scheduled", "ready", "leased"):
        return None
    return Waiting(
        message_id=message_id(message.id),
        job_id=message.key,
        at=moment(parcel(message).due_us),  # not the time of its next try
        body=bodies.shown(message.raw, message.is_json),
        attributes=bodies.attributes(message.headers),
    )
