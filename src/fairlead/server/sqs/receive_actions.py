"""ReceiveMessage."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairlead.aio.queue import AsyncMessages
from fairlead.operations.receiving import row_of
from fairlead.server.sqs import attempts, bodies, checks, contents, errors, handles, limits, md5
from fairlead.server.sqs.asking import Ask
from fairlead.server.sqs.book import YEARS, Known, arn_of
from fairlead.server.sqs.characters import legal
from fairlead.server.sqs.settings import asked_of_message
from fairlead.values import BODY_JSON, Message

if TYPE_CHECKING:
    from fairlead.server.sqs.service import Sqs

# System attributes that are read from the headers.
_IN_HEADERS = frozenset({"AWSTraceHeader", "MessageDeduplicationId", "SenderId"})


async def receive_message(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    given = ask.input
    known = await sqs.book.known(checks.queue_of(given["QueueUrl"]))
    n: int = given.get("MaxNumberOfMessages", 1)
    checks.count(n)
    lease: float = given.get("VisibilityTimeout", known.lease)
    if "VisibilityTimeout" in given:
        checks.visibility(given["VisibilityTimeout"], most_visibility(known))
    wait: int = given.get("WaitTimeSeconds", known.wait)
    checks.wait(wait)
    asked = asked_of_message(
        given.get("AttributeNames", ()), given.get("MessageSystemAttributeNames", ())
    )
    attempt: str | None = given.get("ReceiveRequestAttemptId")
    if attempt:
        messages, received = await _attempt(sqs, known, n, lease, wait, attempt)
    else:
        messages = await receive(sqs, known, n, lease, wait)
        received = int(time.time())
    if not messages:
        return {}
    view = _View(ask, known, received, asked, given.get("MessageAttributeNames", ()))
    return {"Messages": [view.shown(message) for message in messages]}


def most_visibility(known: Known) -> int:
    return YEARS if known.extended else limits.VISIBILITY


def is_ordered(known: Known) -> bool:
    """A FIFO queue, or one that the library made like it."""
    return known.settings.policy.ordered


async def receive(sqs: Sqs, known: Known, n: int, lease: float, wait: float) -> AsyncMessages:
    """Look at once; if there is nothing and ``wait`` allows it, stand in line."""
    traffic, ordered = sqs.traffic, is_ordered(known)
    messages = await traffic.receive(known.name, n, lease, ordered)
    if messages:
        return messages
    if wait > 0:
        return await traffic.polls.wait(known.name, n, lease, ordered, wait)
    if not ordered and await traffic.in_flight.allowed(known.name, ordered, 1) == 0:
        raise errors.OVER_LIMIT(
            f"Too many messages are in flight for queue {known.name}: delete some of them first."
        )
    return messages


async def _attempt(
    sqs: Sqs, known: Known, n: int, lease: float, wait: float, attempt: str
) -> attempts.Answer:
    if not known.fifo:
        raise errors.invalid(
            attempt[:200],
            "ReceiveRequestAttemptId",
            "The request include parameter that is not valid for this queue type.",
        )
    checks.attempt_id(attempt)
    queue = sqs.book.queue(known.name)
    answer = await attempts.repeated(queue, attempt, lease)
    if not answer.messages:
        messages = await receive(sqs, known, n, lease, wait)
        answer = attempts.Answer(messages, int(time.time()))
        if messages:
            try:
                await attempts.remember(queue, attempt, answer)
            except BaseException:  # the client has gone, or gets an error
                sqs.traffic.give_back(known.name, messages)
                raise
    return answer


class _View:
    """How messages are shown to one receiver: with the attributes it asked for."""

    def __init__(
        self,
        ask: Ask,
        known: Known,
        received: int,
        asked: frozenset[str],
        names: Sequence[str],
    ) -> None:
        self._ask = ask
        self._known = known
        self._asked = asked
        self._names = names
        self._received = received
        self._reads_headers = bool(names) or not asked.isdisjoint(_IN_HEADERS)

    def shown(self, message: Message) -> dict[str, Any]:
        row = row_of(message)
        body = bodies.shown(row[2], row[14] & BODY_JSON)
        shown: dict[str, Any] = {
            "MessageId": handles.message_id(row[0]),
            "ReceiptHandle": handles.receipt_handle(row[0], row[11], self._received),
            "MD5OfBody": md5.of_body(body),
            "Body": body,
        }
        headers = message.headers if self._reads_headers else {}
        if self._asked:
            system = self._system(message, headers)
            if system:
                shown["Attributes"] = system
        if self._names:
            chosen = contents.chosen(bodies.attributes(headers), self._names)
            if chosen:
                shown["MessageAttributes"] = chosen
                shown["MD5OfMessageAttributes"] = md5.of_attributes(chosen)
        return shown

    def _system(self, message: Message, headers: Mapping[str, Any]) -> dict[str, str]:
        row = row_of(message)
        fifo, origin = self._known.fifo, message.origin
        first = message.first_delivered_at
        found = {
            "SenderId": headers.get(bodies.SENDER, bodies.NOBODY),
            "SentTimestamp": str(row[9] // 1000),
            "ApproximateReceiveCount": str(row[11]),
            "ApproximateFirstReceiveTimestamp": str(
                self._received * 1000 if first is None else int(first.timestamp() * 1000)
            ),
            "AWSTraceHeader": headers.get(bodies.TRACE),
            "MessageGroupId": row[1] if row[1] and legal(row[1]) else None,
            "SequenceNumber": handles.sequence_number(row[0]) if fifo else None,
            # A dead letter was not sent to this queue; its id stands for the one it was sent with.
            "MessageDeduplicationId": None
            if not fifo
            else headers.get(bodies.DEDUPLICATION)
            if origin is None
            else handles.message_id(row[0]),
            "DeadLetterQueueSourceArn": None if origin is None else arn_of(self._ask, origin),
        }
        return {
            name: value
            for name, value in found.items()
            if name in self._asked and isinstance(value, str)
        }
