"""Messages that wait in DynamoDB until SQS can take them: for who has no SQL database.

The tables are those of the Ruby gem shoryuken-waiter: what it wrote is drained here, and what is
written here it drains. See docs/relay-dynamodb.md.

    store = DynamoStore(boto3.client("dynamodb"), boto3.client("sqs"))
    store.create_table("orders")
    store.put("orders", job, at=datetime(2030, 1, 31, 9, tzinfo=UTC))
    store.run()
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event
from typing import Any

from fairlead.errors import InvalidArgument
from fairlead.operations import check
from fairlead.relay import dynamo_errors as errors
from fairlead.relay.destination import DestinationError
from fairlead.relay.dynamo_drain import CLAIM_SECONDS, GROUP, Drain, Drained, OnStep, fifo
from fairlead.relay.dynamo_items import (
    ACTIVE_JOB,
    CLAIM,
    CLAIMED_UNTIL,
    HORIZON,
    Unreadable,
    Waiting,
    definition,
    has_layout,
    item,
    job,
    key,
    own_id,
    read,
    table_name,
)
from fairlead.relay.dynamo_pages import pages
from fairlead.relay.dynamo_run import EVERY, Rounds
from fairlead.relay.sqs_trouble import code_of
from fairlead.values import Moment

log = logging.getLogger("fairlead.relay")

__all__ = ["Drained", "DynamoStore", "Summary", "Waiting"]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a table holds."""

    waiting: int
    soon: int  # of them, due within the 15 minutes that SQS can keep
    overdue: int  # of those, due before now
    oldest: datetime | None  # also None if that is no time


class DynamoStore:
    """``dynamodb`` and ``sqs`` are boto3's clients. It may be used by several threads.

    ``gem``: bodies are jobs of Active Job, which the gem can read, too. False: they are any text;
    then the gem must not drain the tables: it breaks on such items, and loses those before them.
    ``claim``: seconds that a drain has for ten messages; twice what one call of ``sqs`` can take.
    ``group``: the MessageGroupId at FIFO queues."""

    def __init__(
        self,
        dynamodb: Any,
        sqs: Any,
        *,
        gem: bool = True,
        claim: float = CLAIM_SECONDS,
        group: str = GROUP,
        clock: Callable[[], float] = time.time,
        on_step: OnStep | None = None,
    ) -> None:
        self._dynamodb = dynamodb
        self._sqs = sqs
        self._gem = gem
        self._clock = clock
        self._drain = Drain(dynamodb, sqs, claim=claim, group=group, clock=clock, on_step=on_step)

    # --- tables -----------------------------------------------------------------------------------
    def create_table(self, queue: str) -> bool:
        """Create the queue's table and wait until it can be used. False: it is there already."""
        try:
            self._dynamodb.create_table(**definition(table_name(queue)))
            self._dynamodb.get_waiter("table_exists").wait(
                TableName=queue, WaiterConfig={"Delay": 1, "MaxAttempts": 120}
            )
        except errors.ERRORS as error:
            if code_of(error) != errors.EXISTS:
                raise errors.of_table(error, queue) from error
            self.check_table(queue)
            return False
        return True

    def check_table(self, queue: str) -> None:
        """Is there a table for this queue, with the gem's layout? Else an error says what to do."""
        if not has_layout(self._describe(queue)):
            raise errors.wrong_layout(queue)

    def tables(self) -> list[str]:
        """The tables that have the gem's layout: their queues' names."""
        names: list[str] = []
        asked: dict[str, Any] = {}
        try:
            while True:
                page = self._dynamodb.list_tables(**asked)
                names += errors.member(page, "TableNames", "DynamoDB")
                if "LastEvaluatedTableName" not in page:
                    break
                asked["ExclusiveStartTableName"] = page["LastEvaluatedTableName"]
        except errors.ERRORS as error:
            raise DestinationError(errors.explained(error, "DynamoDB")) from error
        return [name for name in names if self._is_ours(name)]

    def _is_ours(self, name: str) -> bool:
        try:
            return has_layout(self._describe(name))
        except DestinationError as error:
            cause = error.__cause__
            if not isinstance(cause, Exception) or not errors.not_ours(cause):
                raise  # it may be ours: whoever drained it must not stop
            log.debug("%s", str(error))
            return False

    def _describe(self, queue: str) -> Mapping[str, Any]:
        try:
            answer = self._dynamodb.describe_table(TableName=table_name(queue))
        except errors.ERRORS as error:
            raise errors.of_table(error, queue) from error
        return errors.member(answer, "Table", f"DynamoDB table {queue!r}")

    # --- what waits -------------------------------------------------------------------------------
    def put(
        self,
        queue: str,
        body: Any,
        at: Moment,
        job_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        """Keep a message until ``at`` and return its job id. The same id again replaces it.

        ``body`` is the job as Active Job serialises it, a dict or its JSON text; its ``job_id`` is
        the id. With ``gem=False`` it is any text. ``attributes`` are SQS's, as boto3 has them;
        without them a job has those that Shoryuken's adapter gives it."""
        due = check.instant(at, "at") / 1_000_000
        if self._gem:
            body = job(body)
            job_id = own_id(body, queue, job_id)
            attributes = ACTIVE_JOB if attributes is None else attributes
        elif not isinstance(body, str):
            raise InvalidArgument(f"with gem=False the body is a text, not {type(body).__name__}")
        job_id = uuid.uuid4().hex if job_id is None else job_id
        made = item(job_id, due, body, attributes or {})
        try:
            self._dynamodb.put_item(TableName=table_name(queue), Item=made)
        except errors.ERRORS as error:
            raise errors.of_table(error, queue) from error
        return job_id

    def send_message(
        self,
        *,
        QueueUrl: str,
        MessageBody: str,
        JobId: str | None = None,
        At: Moment | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """boto3's, with any DelaySeconds; ``At`` instead of it: a datetime, or seconds since the
        epoch. What SQS can wait for itself (900 seconds, a FIFO queue none) goes there, the rest
        to the table. The same ``JobId`` replaces what waits."""
        queue = QueueUrl.rstrip("/").rsplit("/", 1)[-1]
        told = more.get("DelaySeconds") is not None or (At is not None and not fifo(queue))
        at, delay = self._when(At, more)
        if delay > (0 if fifo(queue) else HORIZON):
            attributes: Any = more.pop("MessageAttributes", {})
            if more:
                names = ", ".join(sorted(more))
                raise InvalidArgument(f"{names}: the gem's tables have no place for it")
            return {"MessageId": self.put(queue, MessageBody, at, JobId, attributes)}
        if told:  # also 0: else the queue's own delay would apply
            more["DelaySeconds"] = delay
        if JobId is not None:
            table_name(queue)  # an error must come before the message is sent
        answer = self._sqs.send_message(QueueUrl=QueueUrl, MessageBody=MessageBody, **more)
        if JobId is not None:
            self._supersede(queue, JobId)
        return answer

    def _supersede(self, queue: str, job_id: str) -> None:
        """What went straight to SQS takes the place of what waits. It is sent: who were told an
        error now would send it again."""
        try:
            self.cancel(queue, job_id)
        except DestinationError as error:
            log.warning(
                "job %r was sent; if it waits, too, that is sent as well: %s", job_id, error
            )

    def _when(self, at: Moment | None, more: dict[str, Any]) -> tuple[float, int]:
        """The time, and the seconds until then: rounded up, never early."""
        now, delay = self._clock(), more.pop("DelaySeconds", None)
        if at is None:
            return now + (delay or 0), delay or 0
        if delay is not None:
            raise InvalidArgument("give At= or DelaySeconds=, not both")
        due = check.instant(at, "At") / 1_000_000
        return due, max(0, math.ceil(due - now))

    def cancel(self, queue: str, job_id: str) -> bool:
        """True: it will not be sent. False: it is not there, or a drain has it in hand."""
        try:
            self._dynamodb.delete_item(
                TableName=table_name(queue),
                Key=key(job_id),
                ConditionExpression="attribute_exists(job_id) AND "
                f"(attribute_not_exists({CLAIM}) OR {CLAIMED_UNTIL} < :now)",
                ExpressionAttributeValues={":now": {"N": repr(self._clock())}},
            )
        except errors.ERRORS as error:
            if code_of(error) == errors.CONDITION:
                return False
            raise errors.of_table(error, queue) from error
        return True

    def waiting(self, queue: str, limit: int = 100) -> list[Waiting]:
        """What waits, the first that is due first. Items nobody can read are left out."""
        found: list[Waiting] = []
        for page in self._pages(queue, Limit=max(1, min(limit, 1000))):
            for one in page["Items"]:
                if len(found) == limit:
                    return found
                try:
                    found.append(read(one, self._clock()))
                except Unreadable:
                    continue
        return found

    def count(self, queue: str) -> int:
        """How many wait. It reads them all, which DynamoDB charges for."""
        return self._count(queue, None)

    def summary(self, queue: str) -> Summary:
        now = self._clock()
        [first] = [*next(self._pages(queue, Limit=1))["Items"], None][:1]
        return Summary(
            waiting=self._count(queue, None),
            soon=self._count(queue, now + HORIZON),
            overdue=self._count(queue, now),
            oldest=None if first is None else _moment(first["perform_at"]["N"]),
        )

    def _count(self, queue: str, before: float | None) -> int:
        return sum(page["Count"] for page in self._pages(queue, before=before, Select="COUNT"))

    def _pages(self, queue: str, **how: Any) -> Iterator[dict[str, Any]]:
        try:
            yield from pages(self._dynamodb, table_name(queue), **how)
        except errors.ERRORS as error:
            raise errors.of_table(error, queue) from error

    # --- to SQS -----------------------------------------------------------------------------------
    def drain(self, queue: str, stop: Event | None = None) -> Drained:
        """Hand everything that is due within 15 minutes to SQS, once."""
        return self._drain.poll(table_name(queue), stop)

    def run(
        self, queues: Sequence[str] = (), every: float = EVERY, stop: Event | None = None
    ) -> None:
        """Drain these tables, or all that have the layout, every so many seconds, until ``stop``
        is set. Each has a thread: what fails is tried again and holds up no other."""
        for queue in queues:
            self.check_table(queue)
        named = list(queues)
        rounds = Rounds(
            self.drain,
            self._next_at,
            (lambda: named) if named else self.tables,
            every,
            Event() if stop is None else stop,
            self._clock,
        )
        rounds.run()

    def _next_at(self, queue: str, since: float) -> float | None:
        """When the first message becomes due that SQS could not be given before."""
        if not fifo(queue):
            return None
        page = next(self._pages(queue, since=since, Limit=1))
        return float(page["Items"][0]["perform_at"]["N"]) if page["Items"] else None


def _moment(seconds: str) -> datetime | None:
    """None: no time that anybody means; they are milliseconds, perhaps."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        return None
