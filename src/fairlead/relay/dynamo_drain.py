"""From the table to SQS: claim, send, delete, in this order and each on a condition.

1. **Found**: everything that is due within the horizon, from the index, consistently, oldest first.
2. **Claimed**: ten at a time, by an update on the condition that the item is there, is due when it
   was, and has no claim that lives. The answer is the item as it is now: that is what is sent.
3. **Sent**: SQS gets the seconds that remain as the message's delay.
4. **Deleted**: on the condition that the claim is still ours. Who puts a job again writes over the
   claim, and the new job stays.

Whoever dies leaves claims that end by themselves: nothing is lost, and what was sent and not
deleted is sent again (a FIFO queue knows it by its deduplication id).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice, repeat
from threading import Event
from typing import Any

from fairlead.relay import dynamo_errors as errors
from fairlead.relay import dynamo_sending as sending
from fairlead.relay.destination import DestinationError, Never
from fairlead.relay.dynamo_items import (
    CLAIM,
    CLAIMED_UNTIL,
    HORIZON,
    Unreadable,
    Waiting,
    key,
    read,
)
from fairlead.relay.dynamo_pages import pages
from fairlead.relay.sqs_trouble import code_of

AT_ONCE = 10  # items in hand, and requests to DynamoDB
CLAIM_SECONDS = 120.0
GROUP = "ShoryukenMessage"  # in which Shoryuken sends to FIFO queues
OnStep = Callable[[str, Sequence[str]], None]


@dataclass(slots=True)
class Drained:
    """What one poll of a table came to."""

    sent: int = 0
    failed: int = 0  # they stay, and are tried again
    taken: int = 0  # in the hands of another drain, or changed before ours had them
    rescheduled: int = 0  # put again while they were sent: the new ones stay
    reasons: list[str] = field(default_factory=list[str])
    trouble: str | None = None
    """Why it ended before its end: poll again soon."""
    again_at: float | None = None
    """When the first claim of another drain ends, which may be dead."""
    before: float = 0.0
    """It looked at what is due before this time."""


@dataclass(frozen=True, slots=True)
class _Found:
    job_id: str
    perform_at: str  # as DynamoDB writes it, so that the same is the same


class Drain:
    """It may be used by several threads. ``on_step``, for tests, is called with "found",
    "claimed", "sent" and "deleted", and the ids of the jobs."""

    def __init__(
        self,
        dynamodb: Any,
        sqs: Any,
        *,
        claim: float = CLAIM_SECONDS,
        group: str = GROUP,
        clock: Callable[[], float] = time.time,
        on_step: OnStep | None = None,
    ) -> None:
        self._dynamodb = dynamodb
        self._sqs = sqs
        self._claim_seconds = claim
        self._group = group
        self._clock = clock
        self._on_step: OnStep = on_step or (lambda step, job_ids: None)
        # Sent, and DynamoDB did not take the deletion: (queue, job) -> claim.
        self._owed: dict[tuple[str, str], str] = {}

    def poll(self, queue: str, stop: Event | None = None) -> Drained:
        """Hand over what is due within the horizon. ``stop`` ends it after the batch in hand."""
        # A FIFO queue takes no delay with a message: nothing goes there before its time.
        drained = Drained(before=self._clock() + (0 if fifo(queue) else HORIZON))
        with ThreadPoolExecutor(AT_ONCE, f"drain {queue}") as pool:
            self._settle(queue, drained, pool)
            if drained.trouble is not None:  # else what is owed would be found, and sent again
                return drained
            url = self._url(queue)
            due = self._due(queue, drained)
            while not (stop is not None and stop.is_set()):
                try:
                    some = list(islice(due, AT_ONCE))
                except errors.ERRORS as error:
                    if not errors.throttled(error):
                        raise errors.of_table(error, queue) from error
                    drained.trouble = errors.explained(error, f"DynamoDB table {queue!r}")
                    break
                if not some:
                    break
                self._on_step("found", [one.job_id for one in some])
                self._hand_over(queue, url, some, drained, pool)
                if drained.trouble is not None:
                    break
        return drained

    def _url(self, queue: str) -> str:
        try:
            answer = self._sqs.get_queue_url(QueueName=queue)
        except errors.ERRORS as error:
            raise DestinationError(errors.explained(error, f"SQS queue {queue!r}")) from error
        return errors.member(answer, "QueueUrl", f"SQS queue {queue!r}")

    # --- found ------------------------------------------------------------------------------------
    def _due(self, queue: str, drained: Drained) -> Iterator[_Found]:
        names = f"job_id, perform_at, {CLAIMED_UNTIL}"
        found = pages(self._dynamodb, queue, before=drained.before, ProjectionExpression=names)
        for page in found:
            for one in page["Items"]:
                until = float(one.get(CLAIMED_UNTIL, {"N": "0"})["N"])
                if until < self._clock():
                    yield _Found(one["job_id"]["S"], one["perform_at"]["N"])
                    continue
                drained.taken += 1
                drained.again_at = min(until, drained.again_at or until)

    # --- claimed, sent, deleted -------------------------------------------------------------------
    def _hand_over(
        self,
        queue: str,
        url: str,
        some: Sequence[_Found],
        drained: Drained,
        pool: ThreadPoolExecutor,
    ) -> None:
        claim, began = uuid.uuid4().hex, self._clock()

        def get(found: _Found) -> Waiting | Unreadable | str | None:
            return self._claim(queue, found, claim, began)

        messages: list[Waiting] = []
        failed: list[str] = []  # to be given back
        for found, claimed in zip(some, pool.map(get, some), strict=True):
            match claimed:
                case Waiting():
                    messages.append(claimed)
                case Unreadable():
                    self._tell(drained, found.job_id, str(claimed))
                    failed.append(found.job_id)
                case str():
                    drained.trouble = claimed
                case None:
                    drained.taken += 1
        self._on_step("claimed", [one.job_id for one in messages])
        sent: list[str] = []
        answers = self._send(queue, url, messages, began)
        for message, (outcome, perhaps) in zip(messages, answers, strict=True):
            if outcome is None:
                sent.append(message.job_id)
                continue
            self._tell(drained, message.job_id, outcome.reason)
            if not isinstance(outcome, Never):
                drained.trouble = outcome.reason
            if not perhaps:
                failed.append(message.job_id)
        self._on_step("sent", sent)
        drained.sent += len(sent)
        self._delete_all(queue, dict.fromkeys(sent, claim), drained, pool)
        list(pool.map(self._release, repeat(queue), failed, repeat(claim)))
        self._on_step("deleted", sent)

    def _tell(self, drained: Drained, job_id: str, reason: str) -> None:
        drained.failed += 1
        drained.reasons.append(f"job {job_id!r}: {reason}")

    def _claim(
        self, queue: str, found: _Found, claim: str, now: float
    ) -> Waiting | Unreadable | str | None:
        """The item, if it is ours now; None if it is somebody else's; a text if DynamoDB fails."""
        try:
            answer = self._dynamodb.update_item(
                TableName=queue,
                Key=key(found.job_id),
                UpdateExpression=f"SET {CLAIM} = :claim, {CLAIMED_UNTIL} = :until",
                # Ours already: the answer to a first request was lost, and botocore asked again.
                ConditionExpression="attribute_exists(job_id) AND perform_at = :at AND ("
                f"attribute_not_exists({CLAIMED_UNTIL}) OR {CLAIMED_UNTIL} < :now "
                f"OR {CLAIM} = :claim)",
                ExpressionAttributeValues={
                    ":claim": {"S": claim},
                    ":until": {"N": repr(now + self._claim_seconds)},
                    ":at": {"N": found.perform_at},
                    ":now": {"N": repr(now)},
                },
                ReturnValues="ALL_NEW",
            )
            return read(errors.member(answer, "Attributes", f"DynamoDB table {queue!r}"), now)
        except Unreadable as error:
            return error
        except DestinationError as error:
            return str(error)
        except errors.ERRORS as error:
            if code_of(error) == errors.CONDITION:
                return None
            return errors.explained(error, f"DynamoDB table {queue!r}")

    def _send(
        self, queue: str, url: str, messages: Sequence[Waiting], began: float
    ) -> Sequence[sending.Answer]:
        def in_time() -> bool:
            return self._clock() - began <= self._claim_seconds / 2

        now, group = self._clock(), self._group if fifo(queue) else None
        entries = [sending.entry(i, one, now, group) for i, one in enumerate(messages)]
        return sending.send(self._sqs, url, entries, in_time)

    def _delete_all(
        self, queue: str, sent: Mapping[str, str], drained: Drained, pool: ThreadPoolExecutor
    ) -> None:
        """``sent``: the jobs, and the claims under which they were sent."""
        for answer in pool.map(self._delete, repeat(queue), sent, sent.values()):
            if isinstance(answer, str):
                drained.trouble = answer
            else:
                drained.rescheduled += answer

    def _delete(self, queue: str, job_id: str, claim: str) -> bool | str:
        """Was it put again meanwhile? A text if DynamoDB fails; then it is owed."""
        self._owed[queue, job_id] = claim
        try:
            self._dynamodb.delete_item(
                TableName=queue,
                Key=key(job_id),
                ConditionExpression=f"attribute_not_exists(job_id) OR {CLAIM} = :claim",
                ExpressionAttributeValues={":claim": {"S": claim}},
            )
        except errors.ERRORS as error:
            if code_of(error) != errors.CONDITION:
                why = errors.explained(error, f"DynamoDB table {queue!r}")
                return f"job {job_id!r} was sent and cannot be deleted: {why}"
            again = True
        else:
            again = False
        self._owed.pop((queue, job_id), None)
        return again

    def _settle(self, queue: str, drained: Drained, pool: ThreadPoolExecutor) -> None:
        """Delete what an earlier poll has sent and could not delete."""
        owed = {id: claim for (name, id), claim in list(self._owed.items()) if name == queue}
        self._delete_all(queue, owed, drained, pool)

    def _release(self, queue: str, job_id: str, claim: str) -> None:
        try:
            self._dynamodb.update_item(
                TableName=queue,
                Key=key(job_id),
                UpdateExpression=f"REMOVE {CLAIM}, {CLAIMED_UNTIL}",
                ConditionExpression=f"{CLAIM} = :claim",
                ExpressionAttributeValues={":claim": {"S": claim}},
            )
        except errors.ERRORS:
            return  # put again, or DynamoDB fails: the claim ends by itself


def fifo(queue: str) -> bool:
    return queue.endswith(".fifo")
