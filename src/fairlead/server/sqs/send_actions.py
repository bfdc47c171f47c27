"""SendMessage and SendMessageBatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from fairlead.errors import BodyTooLarge, ChannelFull
from fairlead.server.sqs import bodies, checks, contents, errors, extras, handles, limits, md5
from fairlead.server.sqs.asking import Ask
from fairlead.server.sqs.book import YEARS, Known
from fairlead.server.sqs.errors import SqsError
from fairlead.values import Send, Sent

if TYPE_CHECKING:
    from fairlead.server.sqs.service import Sqs

DEDUPLICATION = 300  # seconds for which a deduplication id is remembered


@dataclass(slots=True)
class _Prepared:
    """A message that passed every check, and what its sender is told besides the id."""

    send: Send
    weight: int
    told: dict[str, Any]

    def answer(self, sent: Sent, fifo: bool) -> dict[str, Any]:
        self.told["MessageId"] = handles.message_id(sent)
        if fifo:
            self.told["SequenceNumber"] = handles.sequence_number(sent)
        return self.told


async def send_message(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    given = ask.input
    known = await sqs.book.known(checks.queue_of(given["QueueUrl"]))
    if known.fifo:
        _insist_on_ids(known, given)
    prepared = _prepare(ask, known, given, _weight(given))
    [sent] = await _send(sqs, known, [prepared])
    return prepared.answer(sent, known.fifo)


async def send_message_batch(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    entries: list[dict[str, Any]] = ask.input.get("Entries", [])
    known = await sqs.book.known(checks.queue_of(ask.input["QueueUrl"]))
    checks.batch("SendMessageBatch", entries)
    weights = [_weight(entry) for entry in entries]
    checks.batch_size(weights)
    if known.fifo:
        for entry in entries:
            _insist_on_ids(known, entry)
    prepared: dict[str, _Prepared] = {}
    failed: list[dict[str, str | bool]] = []
    for entry, weight in zip(entries, weights, strict=True):
        try:
            prepared[entry["Id"]] = _prepare(ask, known, entry, weight)
        except SqsError as error:
            failed.append(error.entry(entry["Id"]))
    successful: list[dict[str, Any]] = []
    if prepared:
        sent = await _send(sqs, known, list(prepared.values()))
        for (id, one), number in zip(prepared.items(), sent, strict=True):
            successful.append({"Id": id, **one.answer(number, known.fifo)})
    return {"Successful": successful, "Failed": failed}


async def _send(sqs: Sqs, known: Known, prepared: Sequence[_Prepared]) -> Sequence[Sent]:
    weight = sum(one.weight for one in prepared)
    try:
        return await sqs.traffic.send(known.name, [one.send for one in prepared], weight)
    except BodyTooLarge as error:  # of a queue that the library made
        raise errors.INVALID_PARAMETER_VALUE(
            "One or more parameters are invalid. "
            f"Reason: Message must be shorter than {error.limit} bytes."
        ) from error
    except ChannelFull as error:  # a policy of the library's
        raise errors.OVER_LIMIT(
            f"The message group {error.channel} holds as many messages as its policy allows."
        ) from error


# --- one message ---


def _weight(given: Mapping[str, Any]) -> int:
    return contents.size(given["MessageBody"], given.get("MessageAttributes", {}))


def _prepare(ask: Ask, known: Known, given: Mapping[str, Any], weight: int) -> _Prepared:
    text: str = given["MessageBody"]
    contents.body(text)
    told: dict[str, Any] = {"MD5OfMessageBody": md5.of_body(text)}
    headers: dict[str, Any] = {}
    extra = extras.NONE
    attributes: Mapping[str, contents.Attribute] | None = given.get("MessageAttributes")
    if attributes:
        contents.attributes(attributes)
        told["MD5OfMessageAttributes"] = md5.of_attributes(attributes)
        if known.extended:
            extra, attributes = extras.taken(attributes, known.fifo)
        headers = bodies.headers(attributes)
    contents.fits(weight, known.max_size)
    if ask.sender != bodies.NOBODY:
        headers[bodies.SENDER] = ask.sender
    trace = ask.trace
    system: Mapping[str, contents.Attribute] | None = given.get("MessageSystemAttributes")
    if system:
        contents.system_attributes(system)
        told["MD5OfMessageSystemAttributes"] = md5.of_attributes(system)
        trace = system[contents.TRACE_HEADER]["StringValue"]
    if trace is not None:
        headers[bodies.TRACE] = trace
    group: str = given.get("MessageGroupId", "")
    if "MessageGroupId" in given:
        checks.group_id(group)
    once = _once(known, given, text, headers)
    delay = _delay(known, given)
    send = Send(
        bodies.stored(text),
        channel=group,
        priority=extra.priority,
        delay=delay or None,
        key=extra.key,
        on_conflict="error" if extra.key is None else "ignore",
        type=extra.type,
        headers=headers or None,
        expires=_expires(known, delay),
        once=once,
        once_for=DEDUPLICATION,
    )
    return _Prepared(send, weight, told)


def _delay(known: Known, given: Mapping[str, Any]) -> int:
    seconds: int | None = given.get("DelaySeconds")
    if seconds is None or (known.fifo and seconds == 0):
        return known.delay
    checks.delay(seconds, YEARS if known.extended else limits.DELAY)
    if known.fifo and not known.extended:
        raise _other_type(seconds, "DelaySeconds")
    return seconds


def _expires(known: Known, delay: int) -> float | None:
    """A message that waits for years must not be too old before anybody can see it."""
    if delay <= limits.DELAY or known.retention is None:
        return None
    return delay + known.retention


def _other_type(value: object, parameter: str) -> SqsError:
    return errors.invalid(
        value, parameter, "The request include parameter that is not valid for this queue type."
    )


# --- FIFO ---


def _insist_on_ids(known: Known, given: Mapping[str, Any]) -> None:
    """What every message of a FIFO queue has; without it a whole batch fails."""
    if not given.get("MessageGroupId"):
        raise errors.missing("MessageGroupId")
    if not given.get("MessageDeduplicationId") and not known.content_dedup:
        raise errors.INVALID_PARAMETER_VALUE(
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly"
        )


def _once(known: Known, given: Mapping[str, Any], text: str, headers: dict[str, Any]) -> str | None:
    """By which name the core knows a duplicate. Ids and hashes of contents share their names."""
    id: str | None = given.get("MessageDeduplicationId")
    if not known.fifo:
        if id is not None:
            raise _other_type(id[:200], "MessageDeduplicationId")
        return None
    if id:
        checks.deduplication_id(id)
    else:
        id = sha256(text.encode()).hexdigest()
    headers[bodies.DEDUPLICATION] = id
    scope = given["MessageGroupId"] if known.dedup_scope == "messageGroup" else ""
    # Hashed, since both parts together are longer than the core's names.
    return sha256(f"{scope}\0{id}".encode()).hexdigest()
