"""SendMessage and SendMessageBatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from fairturn.core.errors import BodyTooLarge, ChannelFull
from fairturn.core.sends import Send
from fairturn.server.sqs import extended_attributes
from fairturn.server.sqs.queue_cache import QueueInfo
from fairturn.server.sqs.request import SqsRequest
from fairturn.sqs import bodies, checks, contents, errors, limits, md5, receipt_handles
from fairturn.sqs.errors import SqsError

if TYPE_CHECKING:
    from fairturn.server.sqs.service import Sqs

DEDUPLICATION = 300  # seconds for which a deduplication id is remembered


class _Prepared(NamedTuple):
    """A message that passed every check, and the result for its sender, still without the id."""

    send: Send
    weight: int
    result: dict[str, Any]


async def send_message(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    given = request.input
    info = await sqs.queue_cache.cached(request.queue)
    if info.fifo:
        _require_ids(info, given)
    weight = contents.size(given["MessageBody"], given.get("MessageAttributes"))
    prepared = _prepare(request, info, given, weight)
    await _send(sqs, info, [prepared])
    return prepared.result


async def send_message_batch(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    entries: list[dict[str, Any]] = request.input.get("Entries", [])
    info = await sqs.queue_cache.cached(request.queue)
    checks.batch("SendMessageBatch", entries)
    weights = [
        contents.size(entry["MessageBody"], entry.get("MessageAttributes")) for entry in entries
    ]
    checks.batch_size(weights)
    if info.fifo:
        for entry in entries:
            _require_ids(info, entry)
    prepared: list[_Prepared] = []
    failed: list[dict[str, str | bool]] = []
    for entry, weight in zip(entries, weights, strict=True):
        try:
            one = _prepare(request, info, entry, weight)
        except SqsError as error:
            failed.append(error.entry(entry["Id"]))
        else:
            one.result["Id"] = entry["Id"]
            prepared.append(one)
    if prepared:
        await _send(sqs, info, prepared)
    return {"Successful": [one.result for one in prepared], "Failed": failed}


async def _send(sqs: Sqs, info: QueueInfo, prepared: Sequence[_Prepared]) -> None:
    """Send the messages and complete their results."""
    weight = sum([one.weight for one in prepared])
    try:
        sent = await sqs.traffic.sends.add(info.name, [one.send for one in prepared], weight)
    except BodyTooLarge as error:  # only in a queue that the library created
        raise contents.too_long(error.limit) from error
    except ChannelFull as error:  # by a policy that the library set
        raise errors.OVER_LIMIT(
            f"The message group {error.channel} holds as many messages as its policy allows."
        ) from error
    for one, id in zip(prepared, sent, strict=True):
        one.result["MessageId"] = receipt_handles.message_id(id)
        if info.fifo:
            one.result["SequenceNumber"] = receipt_handles.sequence_number(id)


# --- one message ---


def _prepare(
    request: SqsRequest, info: QueueInfo, given: Mapping[str, Any], weight: int
) -> _Prepared:
    text: str = given["MessageBody"]
    contents.body(text)
    result: dict[str, Any] = {"MD5OfMessageBody": md5.of_body(text)}
    headers: dict[str, Any] = {}
    extended = extended_attributes.NONE
    attributes: Mapping[str, contents.Attribute] | None = given.get("MessageAttributes")
    if attributes:
        contents.attributes(attributes)
        result["MD5OfMessageAttributes"] = md5.of_attributes(attributes)
        if info.extended:
            extended, attributes = extended_attributes.split(attributes, info.fifo)
        headers = bodies.headers(attributes)
    contents.fits(weight, info.max_size)
    if request.caller.sender != bodies.ANONYMOUS:
        headers[bodies.SENDER] = request.caller.sender
    trace = request.trace
    system: Mapping[str, contents.Attribute] | None = given.get("MessageSystemAttributes")
    if system:
        contents.system_attributes(system)
        result["MD5OfMessageSystemAttributes"] = md5.of_attributes(system)
        trace = system[contents.TRACE_HEADER]["StringValue"]
    if trace is not None:
        headers[bodies.TRACE] = trace
    group: str = given.get("MessageGroupId", "")
    if "MessageGroupId" in given:
        checks.group_id(group)
    once = None
    if info.fifo:
        once = _once(info, given, headers)
    elif "MessageDeduplicationId" in given:
        refused: str = given["MessageDeduplicationId"]
        raise _other_type(refused[:200], "MessageDeduplicationId")
    delay = _delay(info, given["DelaySeconds"]) if "DelaySeconds" in given else info.delay
    expires = None
    if delay > limits.DELAY and info.retention is not None:
        expires = delay + info.retention  # it must not expire before it becomes visible
    send = Send(
        bodies.stored(text),
        channel=group,
        priority=extended.priority,
        delay=delay or None,
        key=extended.key,
        on_conflict="error" if extended.key is None else "ignore",
        type=extended.type,
        headers=headers or None,
        expires=expires,
        once=once,
        once_for=DEDUPLICATION,
    )
    return _Prepared(send, weight, result)


def _delay(info: QueueInfo, seconds: int) -> int:
    if info.fifo and seconds == 0:
        return info.delay
    checks.number("DelaySeconds", seconds, info.max_delay)
    if info.fifo and not info.extended:
        raise _other_type(seconds, "DelaySeconds")
    return seconds


def _other_type(value: object, parameter: str) -> SqsError:
    return errors.invalid(
        value, parameter, "The request include parameter that is not valid for this queue type."
    )


# --- FIFO ---


def _require_ids(info: QueueInfo, given: Mapping[str, Any]) -> None:
    """Check the ids that every message of a FIFO queue needs; without them a whole batch fails."""
    if not given.get("MessageGroupId"):
        raise errors.missing("MessageGroupId")
    if not given.get("MessageDeduplicationId") and not info.content_dedup:
        raise errors.INVALID_PARAMETER_VALUE(
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly"
        )


def _once(info: QueueInfo, given: Mapping[str, Any], headers: dict[str, Any]) -> str:
    """Return the core's ``once`` name for deduplication; ids and content hashes are one space."""
    id: str | None = given.get("MessageDeduplicationId")
    if id:
        checks.deduplication_id(id)
    else:
        id = sha256(given["MessageBody"].encode()).hexdigest()
    headers[bodies.DEDUPLICATION] = id
    scope = given["MessageGroupId"] if info.dedup_scope == "messageGroup" else ""
    # Hashed, since both parts together may be longer than the core allows.
    return sha256(f"{scope}\0{id}".encode()).hexdigest()
