"""From the table to SQS: claim, send, delete, in this order, and each on a condition.

1. **Found**: all items that are due within the horizon, from the index, with consistent reads, the
   oldest first.
2. **Claimed**: ten at a time, by an update on the condition that the item exists, has the same due
   time, and has no valid claim. The answer is the item as it is now, and this is what is sent.
3. **Sent**: the seconds that remain are the message's delay in SQS.
4. **Deleted**: on the condition that the claim is still ours. If a job is put again, the claim is
   overwritten, and the new job stays.

A drain that dies leaves claims, which expire. So nothing is lost. A message that was sent and not
deleted is sent again (a FIFO queue recognizes it by its deduplication id).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, repeat
from threading import Event
from typing import Any

from fairturn.relay.destination import DestinationError, Never
from fairturn.relay.dynamodb import errors
from fairturn.relay.dynamodb import send as sending
from fairturn.relay.dynamodb.items import (
    CLAIM,
    CLAIMED_UNTIL,
    HORIZON,
    Unreadable,
    Waiting,
    claimed_until,
    read,
)
from fairturn.relay.dynamodb.table import Table
from fairturn.relay.sqs.errors import explained

AT_ONCE = 10  # items of a batch, and parallel requests to DynamoDB
OnStep = Callable[[str, Sequence[str]], None]


@dataclass(slots=True)
class Drained:
    """The result of one poll of a table."""

    sent: int = 0
    failed: int = 0  # they stay in the table and are tried again
    taken: int = 0  # claimed by another drain, or changed before we could claim them
    rescheduled: int = 0  # put again while they were sent: the new ones stay
    reasons: list[str] = field(default_factory=list[str])
    trouble: str | None = None
    """Why the poll ended early: poll again soon."""
    again_at: float | None = None
    """When the first claim of another drain expires. That drain may be dead."""
    before: float = 0.0
    """The poll found the messages that are due before this time."""


@dataclass(frozen=True, slots=True)
class _Found:
    job_id: str
    perform_at: str  # DynamoDB's text, so that comparing is exact


@dataclass(slots=True)
class Poll:
    """One poll of a table. ``claim_seconds``: how long its claims are valid. ``group``: the
    MessageGroupId in a FIFO queue. ``on_step``, for tests, is called with "found", "claimed",
    "sent" and "deleted", and the ids of the jobs. ``owed``: jobs that were sent but could not be
    deleted, with their claims; it is kept between polls."""

    table: Table
    sqs: Any
    pool: ThreadPoolExecutor
    claim_seconds: float
    group: str
    clock: Callable[[], float]
    on_step: OnStep
    owed: dict[str, str]
    drained: Drained = field(default_factory=Drained)

    def run(self, stop: Event | None) -> Drained:
        """Hand over what is due within the horizon. ``stop`` ends it after the current batch."""
        drained = self.drained
        # A message in a FIFO queue can have no delay: it is not handed over before it is due.
        drained.before = self.clock() + (0 if self.table.fifo else HORIZON)
        self._delete(dict(self.owed))
        if drained.trouble is not None:  # otherwise, what is owed would be found and sent again
            return drained
        url = self._url()
        due = self._due()
        while drained.trouble is None and not (stop is not None and stop.is_set()):
            try:
                some = list(islice(due, AT_ONCE))
            except errors.TableError as error:
                if not error.throttled:
                    raise
                drained.trouble = str(error)
                break
            if not some:
                break
            self.on_step("found", [one.job_id for one in some])
            self._hand_over(url, some)
        return drained

    def _url(self) -> str:
        what = f"SQS queue {self.table.queue!r}"
        try:
            answer = self.sqs.get_queue_url(QueueName=self.table.queue)
        except errors.ERRORS as error:
            raise DestinationError(explained(error, what)) from error
        return errors.member(answer, "QueueUrl", what)

    def _due(self) -> Iterator[_Found]:
        names = f"job_id, perform_at, {CLAIMED_UNTIL}"
        for page in self.table.pages(before=self.drained.before, ProjectionExpression=names):
            for one in page["Items"]:
                until = claimed_until(one)
                if until < self.clock():
                    yield _Found(one["job_id"]["S"], one["perform_at"]["N"])
                    continue
                self.drained.taken += 1
                self.drained.again_at = min(until, self.drained.again_at or until)

    def _hand_over(self, url: str, some: Sequence[_Found]) -> None:
        """Claim, send and delete these."""
        claim, began = uuid.uuid4().hex, self.clock()
        messages: list[Waiting] = []
        failed: list[str] = []  # their claims are to be removed
        results = self.pool.map(self._claim, some, repeat(claim), repeat(began))
        for found, result in zip(some, results, strict=True):
            match result:
                case Waiting():
                    messages.append(result)
                case Unreadable():
                    self._fail(found.job_id, str(result))
                    failed.append(found.job_id)
                case DestinationError():
                    self.drained.trouble = str(result)
                case None:
                    self.drained.taken += 1
        self.on_step("claimed", [one.job_id for one in messages])
        sent: list[str] = []
        answers = self._send(url, messages, began)
        for message, (outcome, perhaps) in zip(messages, answers, strict=True):
            if outcome is None:
                sent.append(message.job_id)
                continue
            self._fail(message.job_id, outcome.reason)
            if not isinstance(outcome, Never):
                self.drained.trouble = outcome.reason
            if not perhaps:
                failed.append(message.job_id)
        self.on_step("sent", sent)
        self.drained.sent += len(sent)
        self._delete(dict.fromkeys(sent, claim))
        list(self.pool.map(self._release, failed, repeat(claim)))
        self.on_step("deleted", sent)

    def _fail(self, job_id: str, reason: str) -> None:
        self.drained.failed += 1
        self.drained.reasons.append(f"job {job_id!r}: {reason}")

    def _claim(
        self, found: _Found, claim: str, now: float
    ) -> Waiting | Unreadable | DestinationError | None:
        """The claimed message, or an error. None: it was changed, or another drain has it."""
        try:
            answer = self.table.change(
                "update_item",
                found.job_id,
                # The claim may be ours already: if the answer was lost, botocore asks again.
                "attribute_exists(job_id) AND perform_at = :at AND ("
                f"attribute_not_exists({CLAIMED_UNTIL}) OR {CLAIMED_UNTIL} < :now "
                f"OR {CLAIM} = :claim)",
                {
                    ":claim": {"S": claim},
                    ":until": {"N": repr(now + self.claim_seconds)},
                    ":at": {"N": found.perform_at},
                    ":now": {"N": repr(now)},
                },
                UpdateExpression=f"SET {CLAIM} = :claim, {CLAIMED_UNTIL} = :until",
                ReturnValues="ALL_NEW",
            )
            if answer is None:
                return None
            return read(errors.member(answer, "Attributes", self.table.shown), now)
        except (Unreadable, DestinationError) as error:
            return error

    def _send(
        self, url: str, messages: Sequence[Waiting], began: float
    ) -> Sequence[sending.Answer]:
        def in_time() -> bool:
            return self.clock() - began <= self.claim_seconds / 2

        now, group = self.clock(), self.group if self.table.fifo else None
        entries = [sending.entry(i, one, now, group) for i, one in enumerate(messages)]
        return sending.send(self.sqs, url, entries, in_time)

    def _delete(self, jobs: Mapping[str, str]) -> None:
        """Delete jobs that were sent; ``jobs`` has the claim of each."""
        self.owed.update(jobs)
        results = self.pool.map(self._deleted, jobs, jobs.values())
        for job_id, result in zip(jobs, results, strict=True):
            if isinstance(result, DestinationError):
                self.drained.trouble = f"job {job_id!r} was sent and cannot be deleted: {result}"
            else:
                self.drained.rescheduled += not result
                self.owed.pop(job_id, None)

    def _deleted(self, job_id: str, claim: str) -> bool | DestinationError:
        """True: it is gone. False: it was put again, and stays."""
        condition = f"attribute_not_exists(job_id) OR {CLAIM} = :claim"
        try:
            answer = self.table.change("delete_item", job_id, condition, {":claim": {"S": claim}})
        except DestinationError as error:
            return error
        return answer is not None

    def _release(self, job_id: str, claim: str) -> None:
        with suppress(DestinationError):  # the claim expires anyway
            self.table.change(
                "update_item",
                job_id,
                f"{CLAIM} = :claim",
                {":claim": {"S": claim}},
                UpdateExpression=f"REMOVE {CLAIM}, {CLAIMED_UNTIL}",
            )
