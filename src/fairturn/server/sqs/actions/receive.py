"""ReceiveMessage."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairturn.aio.queue import AsyncMessages
from fairturn.core.message import Message
from fairturn.operations.receives import row_of
from fairturn.server.sqs.attribute_rules import asked_of_message
from fairturn.server.sqs.queue_cache import QueueInfo
from fairturn.server.sqs.request import SqsRequest
from fairturn.server.sqs.traffic import receive_attempts
from fairturn.sqs import bodies, checks, contents, errors, md5, receipt_handles
from fairturn.sqs.characters import legal

if TYPE_CHECKING:
    from fairturn.server.sqs.service import Sqs

# System attributes that are read from the headers.
_IN_HEADERS = frozenset({"AWSTraceHeader", "MessageDeduplicationId", "SenderId"})


async def receive_message(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    given = request.input
    info = await sqs.queue_cache.cached(request.queue)
    n: int = given.get("MaxNumberOfMessages", 1)
    checks.number("MaxNumberOfMessages", n)
    lease: float = given.get("VisibilityTimeout", info.lease)
    if "VisibilityTimeout" in given:
        checks.number("VisibilityTimeout", given["VisibilityTimeout"], info.max_visibility)
    wait: int = given.get("WaitTimeSeconds", info.wait)
    checks.number("WaitTimeSeconds", wait)
    asked = asked_of_message(
        given.get("AttributeNames", ()), given.get("MessageSystemAttributeNames", ())
    )
    attempt: str | None = given.get("ReceiveRequestAttemptId")
    if attempt:
        messages, received = await _attempt(sqs, info, n, lease, wait, attempt)
    else:
        messages = await _receive(sqs, info, n, lease, wait)
        received = int(time.time())
    if not messages:
        return {}
    view = _View(request, info, received, asked, given.get("MessageAttributeNames", ()))
    return {"Messages": [view.shown(message) for message in messages]}


async def _receive(sqs: Sqs, info: QueueInfo, n: int, lease: float, wait: float) -> AsyncMessages:
    """Receive immediately; if there is nothing, poll for up to ``wait`` seconds."""
    traffic, ordered = sqs.traffic, info.ordered
    messages = await traffic.receive(info.name, n, lease, ordered)
    if messages:
        return messages
    if wait > 0:
        return await traffic.polls.wait(info.name, n, lease, ordered, wait)
    if not ordered and await traffic.inflight_limit.allowed(info.name, ordered, 1) == 0:
        raise errors.OVER_LIMIT(
            f"Too many messages are in flight for queue {info.name}: delete some of them first."
        )
    return messages


async def _attempt(
    sqs: Sqs, info: QueueInfo, n: int, lease: float, wait: float, attempt: str
) -> receive_attempts.Answer:
    if not info.fifo:
        raise errors.invalid(
            attempt[:200],
            "ReceiveRequestAttemptId",
            "The request include parameter that is not valid for this queue type.",
        )
    checks.attempt_id(attempt)
    queue = sqs.queue_cache.queue(info.name)
    answer = await receive_attempts.repeated(queue, attempt, lease)
    if not answer.messages:
        messages = await _receive(sqs, info, n, lease, wait)
        answer = receive_attempts.Answer(messages, int(time.time()))
        if messages:
            try:
                await receive_attempts.remember(queue, attempt, answer)
            except BaseException:  # the client has disconnected, or gets an error
                sqs.traffic.release_later(info.name, messages)
                raise
    return answer


@dataclass(frozen=True, slots=True)
class _View:
    """Renders messages for one receiver, with the attributes it asked for."""

    request: SqsRequest
    info: QueueInfo
    received: int  # seconds since the epoch
    asked: frozenset[str]  # system attributes
    names: Sequence[str]  # of message attributes

    def shown(self, message: Message) -> dict[str, Any]:
        row = row_of(message)
        receipt = receipt_handles.Receipt(row.id, row.token, row.created_at, self.received)
        body = bodies.shown(row.body, message.is_json)
        shown: dict[str, Any] = {
            "MessageId": receipt_handles.message_id(row.id),
            "ReceiptHandle": receipt_handles.receipt_handle(receipt),
            "MD5OfBody": md5.of_body(body),
            "Body": body,
        }
        headers = message.headers if self.names or self.asked & _IN_HEADERS else {}
        if self.asked:
            system = self._system(message, headers)
            if system:
                shown["Attributes"] = system
        if self.names:
            chosen = contents.chosen(bodies.attributes(headers), self.names)
            if chosen:
                shown["MessageAttributes"] = chosen
                shown["MD5OfMessageAttributes"] = md5.of_attributes(chosen)
        return shown

    def _system(self, message: Message, headers: Mapping[str, Any]) -> dict[str, str]:
        row = row_of(message)
        fifo, origin = self.info.fifo, message.origin
        first = message.first_delivered_at
        found = {
            "SenderId": headers.get(bodies.SENDER, bodies.ANONYMOUS),
            "SentTimestamp": str(row.created_at // 1000),
            "ApproximateReceiveCount": str(row.deliveries),
            "ApproximateFirstReceiveTimestamp": str(
                self.received * 1000 if first is None else int(first.timestamp() * 1000)
            ),
            "AWSTraceHeader": headers.get(bodies.TRACE),
            "MessageGroupId": row.channel if row.channel and legal(row.channel) else None,
            "SequenceNumber": receipt_handles.sequence_number(row.id) if fifo else None,
            # A dead letter was not sent to this queue: its message id replaces the sender's.
            "MessageDeduplicationId": None
            if not fifo
            else headers.get(bodies.DEDUPLICATION)
            if origin is None
            else receipt_handles.message_id(row.id),
            "DeadLetterQueueSourceArn": None if origin is None else self.request.arn_of(origin),
        }
        return {
            name: value
            for name, value in found.items()
            if name in self.asked and isinstance(value, str)
        }
