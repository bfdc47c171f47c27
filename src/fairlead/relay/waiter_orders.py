"""What a Waiter makes of a call: straight to SQS, or stored here until it is time. Pure."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, cast

from fairlead.errors import FairleadError, InvalidArgument
from fairlead.limits import DURATION_MAX, SECOND
from fairlead.operations import check
from fairlead.relay.route import parcel
from fairlead.relay.sqs_client import Address, region_of
from fairlead.server.sqs import bodies, checks, contents, errors, handles, limits, md5
from fairlead.values import Message, Moment, Policy, Send, Sent, Stats, moment

PATIENCE = 5.0  # seconds for which a message that is just being handed over is waited for
PAUSE = 0.1
PAGE = 100
_MARK = "fa171ead"  # how our MessageIds begin; those of `fairlead serve` begin with zeros
_KNOWN = frozenset(
    (
        *("Id", "MessageBody", "DelaySeconds", "MessageAttributes", "MessageSystemAttributes"),
        *("MessageGroupId", "MessageDeduplicationId"),
    )
)


class HandingOver(FairleadError):
    """The stored message is on its way to SQS at this moment."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is being handed over to SQS just now, so it can be neither replaced nor "
            "cancelled; nothing was changed. Try again in a minute: then it has arrived there, or "
            "waits here again, if a relay runs"
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
    """A message as it was asked for: ``straight`` are boto3's arguments, ``send`` is what is
    stored; one of them is None."""

    job: str | None
    straight: dict[str, Any] | None = None
    send: Send | None = None
    told: dict[str, Any] | None = None

    @property
    def what(self) -> str:
        return f"the message with JobId {self.job!r}"

    def answer(self, sent: Sent) -> dict[str, Any]:
        assert self.told is not None
        return {**self.told, "MessageId": message_id(sent)}


# --- the queue ---


def queue_name(prefix: str, url: str) -> str:
    """The Fairlead queue for an SQS queue: people know it, and two URLs never share one."""
    with _field("QueueUrl"):
        if not _text(url).startswith(("https://", "http://")):
            # SQS takes a name, too, but the relay would not know where to send to.
            raise InvalidArgument(f"{url!r} is not the queue's URL: sqs.get_queue_url tells it")
        name = checks.queue_of(url)
    return f"{prefix}{name}-{sha256(url.encode()).hexdigest()[:8]}"


def queue_settings(url: str, region: str | None) -> dict[str, Any]:
    """What it is created with. A FIFO queue keeps the order of its groups here, too."""
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
    """``given`` are boto3's arguments, JobId and At. ``always``: it is stored in any case."""
    job = check.optional_name(given.get("JobId"), f"{where}JobId")
    if job is not None:
        queue_name("", url)  # also if it goes straight to SQS, it replaces what waits for that URL
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
        send, told = _stored(url, fields, where)
        send.delay, send.at = (delay, None) if at is None else (None, at)
        if job is not None:
            send.key, send.on_conflict = job, "replace"
        return Order(job, send=send, told=told)
    if at is not None and not is_fifo(url):
        fields["DelaySeconds"] = delay
    return Order(job, straight=fields)


def _is_long(delay: Any, url: str) -> bool:
    """Longer than SQS itself can wait. What is no number is left to boto3 to refuse."""
    if not isinstance(delay, int) or isinstance(delay, bool):
        return False
    return delay > (0 if is_fifo(url) else limits.DELAY)


def _stored(url: str, given: Mapping[str, Any], where: str) -> tuple[Send, dict[str, Any]]:
    """The message to store; what SQS would refuse in a while is refused now."""
    for name in given:
        if name not in _KNOWN:
            raise InvalidArgument(f"{where}{name}: a message that waits cannot have it")
    with _field(f"{where}MessageBody"):
        body = _text(given.get("MessageBody"))
        contents.body(body)
    with _field(f"{where}MessageAttributes"):
        attributes = _attributes(given.get("MessageAttributes"))
        contents.attributes(attributes)
    with _field(f"{where}MessageBody"):
        contents.fits(contents.size(body, attributes), limits.MESSAGE_BYTES)
    told: dict[str, Any] = {"MD5OfMessageBody": md5.of_body(body)}
    headers = bodies.headers(attributes)
    if attributes:
        told["MD5OfMessageAttributes"] = md5.of_attributes(attributes)
    with _field(f"{where}MessageSystemAttributes"):
        system = _attributes(given.get("MessageSystemAttributes"))
        contents.system_attributes(system)
    if system:
        headers[bodies.TRACE] = system[contents.TRACE_HEADER]["StringValue"]
        told["MD5OfMessageSystemAttributes"] = md5.of_attributes(system)
    group = _ids(url, given, where, headers)
    return Send(bodies.stored(body), channel=group, headers=headers or None), told


def _ids(url: str, given: Mapping[str, Any], where: str, headers: dict[str, Any]) -> str:
    """The group, and in ``headers`` the deduplication id."""
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
    return group or ""


def _text(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"it must be a str, not {type(value).__name__}")
    return value or ""


def _attributes(given: Any) -> dict[str, contents.Attribute]:
    """As boto3 takes them: a binary value may be a bytearray, or a str."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"it must be a dict, not {type(given).__name__}")
    made: dict[str, contents.Attribute] = {}
    for name, attribute in cast("Mapping[Any, Any]", given).items():
        if not isinstance(attribute, Mapping):
            raise InvalidArgument(f"{name!r} must be a dict, not {type(attribute).__name__}")
        made[_text(name)] = {
            field: _bytes(value) if field == "BinaryValue" else _value(field, value)
            for field, value in cast("Mapping[str, Any]", attribute).items()
        }
    return made


def _value(field: str, value: Any) -> Any:
    return _text(value) if field in ("DataType", "StringValue") else value


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray):
        raise InvalidArgument(f"a BinaryValue must be bytes, not {type(value).__name__}")
    return bytes(value)


@contextlib.contextmanager
def _field(name: str) -> Generator[None]:
    """Errors inside are about this argument."""
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
    """All entries, checked before anything is sent."""
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
            raise InvalidArgument(f"Entries: JobId {job!r} is there twice")
    return made


def failure(id: str, error: FairleadError) -> dict[str, Any]:
    """An entry that was not stored."""
    code = f"Fairlead.{type(error).__name__}"
    return {"Id": id, "SenderFault": False, "Code": code, "Message": str(error)}


def whole(
    entries: Sequence[Mapping[str, Any]],
    answer: Mapping[str, Any],
    stored: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """SQS's answer with that for the stored ones, by id, in the order of the entries."""
    found = {one["Id"]: one for part in ("Successful", "Failed") for one in answer.get(part, ())}
    found |= stored
    ordered = [found[entry["Id"]] for entry in entries if entry["Id"] in found]
    made = {
        "Successful": [one for one in ordered if "Code" not in one],
        "Failed": [one for one in ordered if "Code" in one],
        "ResponseMetadata": answer.get("ResponseMetadata") or response_metadata(),
    }
    return {name: value for name, value in made.items() if value}


def response_metadata() -> dict[str, Any]:
    """What boto3 adds to every answer."""
    return {
        "RequestId": "fairlead",
        "HTTPStatusCode": 200,
        "HTTPHeaders": {},
        "RetryAttempts": 0,
    }


# --- what waits ---


def message_id(id: int) -> str:
    return _MARK + handles.message_id(id)[len(_MARK) :]


def id_of(message_id: str) -> int | None:
    """The id of a stored message; None: it is a MessageId of SQS's."""
    if not message_id.startswith(_MARK):
        return None
    return handles.id_of("0" * len(_MARK) + message_id.removeprefix(_MARK))


def which(job_id: str | None, message_id: str | None) -> dict[str, Any] | None:
    """Of cancel(): the message by its key or id. None: it cannot be here."""
    if (job_id is None) == (message_id is None):
        raise InvalidArgument("give JobId= or MessageId=, one of them")
    if job_id is not None:
        return {"key": job_id}
    id = id_of(message_id or "")
    return None if id is None else {"id": id}


def count(stats: Stats) -> int:
    return stats.ready + stats.scheduled + stats.leased


def waiting(message: Message) -> Waiting | None:
    """A message of a page; None: it is dead."""
    if message.state not in ("scheduled", "ready", "leased"):
        return None
    return Waiting(
        message_id=message_id(message.id),
        job_id=message.key,
        at=moment(parcel(message).due_us),  # of one that was turned away, its first due time
        body=bodies.shown(message.raw, message.is_json),
        attributes=bodies.attributes(message.headers),
    )
