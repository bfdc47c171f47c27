"""Messages that wait in DynamoDB until SQS can take them, without a SQL database.

The tables are those of the Ruby gem shoryuken-waiter: each of the two can drain what the other
wrote. See docs/relay-dynamodb.md.

    store = DynamoStore(boto3.client("dynamodb"), boto3.client("sqs"))
    store.create_table("orders")
    store.put("orders", job, at=datetime(2030, 1, 31, 9, tzinfo=UTC))
    store.run()
"""

from __future__ import annotations

import functools
import logging
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event
from typing import Any

from fairturn.core import check
from fairturn.core.errors import InvalidArgument
from fairturn.core.values import Moment
from fairturn.relay.destination import DestinationError
from fairturn.relay.dynamodb import errors
from fairturn.relay.dynamodb.drain import AT_ONCE, Drained, OnStep, Poll
from fairturn.relay.dynamodb.items import (
    ACTIVE_JOB,
    CLAIM,
    CLAIMED_UNTIL,
    HORIZON,
    Unreadable,
    Waiting,
    item,
    job,
    own_id,
    read,
)
from fairturn.relay.dynamodb.run import EVERY, Rounds
from fairturn.relay.dynamodb.table import Table
from fairturn.relay.sqs.errors import explained
from fairturn.sqs import checks

log = logging.getLogger("fairturn.relay")
CLAIM_SECONDS = 120.0
GROUP = "ShoryukenMessage"  # the MessageGroupId that Shoryuken uses in FIFO queues


@dataclass(frozen=True, slots=True)
class Summary:
    """What a table holds."""

    waiting: int
    soon: int  # of these, due within the 15 minutes of SQS
    overdue: int  # of these, due before now
    oldest: datetime | None  # also None if its due time cannot be read


class DynamoStore:
    """``dynamodb`` and ``sqs`` are clients of boto3. Threads may share a store.

    ``gem``: bodies are jobs of Active Job, which the gem can read, too. False: a body is any text;
    then the gem must not drain the tables, because it fails at such items and loses the ones before
    them. ``claim``: seconds that a drain has for ten messages, twice as many as one call of ``sqs``
    can take. ``group``: the MessageGroupId in FIFO queues. ``clock`` and ``on_step`` are for
    tests."""

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
        self._poll = functools.partial(
            Poll,
            sqs=sqs,
            claim_seconds=claim,
            group=group,
            clock=clock,
            on_step=on_step or (lambda step, job_ids: None),
        )
        self._owed: dict[str, dict[str, str]] = {}  # by queue: see Poll

    def _table(self, queue: str) -> Table:
        return Table(self._dynamodb, queue)

    # --- tables -----------------------------------------------------------------------------------
    def create_table(self, queue: str) -> bool:
        """Create the queue's table and wait until it can be used. False: it exists already."""
        return self._table(queue).create()

    def check_table(self, queue: str) -> None:
        """Raise an error that says what to do, unless the queue has a table with the gem's
        layout."""
        self._table(queue).check()

    def tables(self) -> list[str]:
        """The names of the tables that have the gem's layout. Their queues have the same names."""
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
            raise DestinationError(explained(error, "DynamoDB")) from error
        return [name for name in names if self._has_layout(name)]

    def _has_layout(self, name: str) -> bool:
        try:
            return self._table(name).has_layout()
        except errors.TableError as error:
            if not error.excluded:
                raise  # it may have the layout, and its drain must go on
            log.debug("%s", str(error))
            return False

    # --- what waits -------------------------------------------------------------------------------
    def put(
        self,
        queue: str,
        body: Any,
        at: Moment,
        job_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        """Keep a message until ``at`` and return its job id. A second put with the same id replaces
        it.

        ``body``: the job as Active Job serialises it, a dict or its JSON text; its ``job_id`` is
        the id. With ``gem=False`` it is any text. ``attributes``: those of SQS, as in boto3. A job
        without them gets the attributes that Shoryuken's adapter gives it."""
        due = check.instant(at, "at") / 1_000_000
        if self._gem:
            body = job(body)
            job_id = own_id(body, queue, job_id)
            attributes = ACTIVE_JOB if attributes is None else attributes
        elif not isinstance(body, str):
            raise InvalidArgument(f"with gem=False the body is a text, not {type(body).__name__}")
        job_id = uuid.uuid4().hex if job_id is None else job_id
        self._table(queue).put(item(job_id, due, body, attributes or {}))
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
        """boto3's ``send_message``, with any DelaySeconds, or with ``At`` instead: a datetime, or
        seconds since the epoch. Up to the longest delay of SQS (900 seconds; a FIFO queue: none) it
        goes to SQS, otherwise to the table. It replaces the waiting message with the same
        ``JobId``."""
        queue = QueueUrl.rstrip("/").rsplit("/", 1)[-1]
        fifo = queue.endswith(checks.FIFO)
        given, now = more.pop("DelaySeconds", None), self._clock()
        at, delay = now + (given or 0), given or 0
        if At is not None:
            if given is not None:
                raise InvalidArgument("give At= or DelaySeconds=, not both")
            at = check.instant(At, "At") / 1_000_000
            delay = max(0, math.ceil(at - now))  # rounded up: never early
        if delay > (0 if fifo else HORIZON):
            attributes: Any = more.pop("MessageAttributes", {})
            if more:
                names = ", ".join(sorted(more))
                raise InvalidArgument(f"{names}: the gem's tables have no place for it")
            return {"MessageId": self.put(queue, MessageBody, at, JobId, attributes)}
        if given is not None or (At is not None and not fifo):
            more["DelaySeconds"] = delay  # also 0: it overrides the queue's own delay
        if JobId is not None:
            self._table(queue)  # checks the name, before the message is sent
        answer = self._sqs.send_message(QueueUrl=QueueUrl, MessageBody=MessageBody, **more)
        if JobId is not None:
            try:
                self.cancel(queue, JobId)
            except DestinationError as error:  # not raised: the caller would send the new one again
                log.warning(
                    "job %r was sent; if an older one waits, it is sent as well: %s", JobId, error
                )
        return answer

    def cancel(self, queue: str, job_id: str) -> bool:
        """True: it will not be sent. False: it is not there, or a drain has claimed it."""
        condition = (
            "attribute_exists(job_id) AND "
            f"(attribute_not_exists({CLAIM}) OR {CLAIMED_UNTIL} < :now)"
        )
        now = {":now": {"N": repr(self._clock())}}
        return self._table(queue).change("delete_item", job_id, condition, now) is not None

    def waiting(self, queue: str, limit: int = 100) -> list[Waiting]:
        """The waiting messages by their due time, without items that cannot be read."""
        found: list[Waiting] = []
        for page in self._table(queue).pages(Limit=max(1, min(limit, 1000))):
            for one in page["Items"]:
                if len(found) == limit:
                    return found
                try:
                    found.append(read(one, self._clock()))
                except Unreadable:
                    continue
        return found

    def count(self, queue: str) -> int:
        """The number of waiting messages. It reads all of them, which DynamoDB charges for."""
        return self._table(queue).count()

    def summary(self, queue: str) -> Summary:
        now, table = self._clock(), self._table(queue)
        first = next(iter(next(table.pages(Limit=1))["Items"]), None)
        return Summary(
            waiting=table.count(),
            soon=table.count(now + HORIZON),
            overdue=table.count(now),
            oldest=None if first is None else _moment(first["perform_at"]["N"]),
        )

    # --- to SQS -----------------------------------------------------------------------------------
    def drain(self, queue: str, stop: Event | None = None) -> Drained:
        """Hand over to SQS what is due within 15 minutes, once."""
        table, owed = self._table(queue), self._owed.setdefault(queue, {})
        with ThreadPoolExecutor(AT_ONCE, f"drain {queue}") as pool:
            return self._poll(table=table, pool=pool, owed=owed).run(stop)

    def run(
        self, queues: Sequence[str] = (), every: float = EVERY, stop: Event | None = None
    ) -> None:
        """Drain these tables, or all that have the layout, every so many seconds until ``stop`` is
        set. Each table has a thread, so that a failure in one delays no other."""
        for queue in queues:
            self.check_table(queue)
        named = list(queues)
        Rounds(
            self.drain,
            self._next_at,
            (lambda: named) if named else self.tables,
            every,
            Event() if stop is None else stop,
            self._clock,
        ).run()

    def _next_at(self, queue: str, since: float) -> float | None:
        """The first due time from ``since`` on, if messages are handed over only when due."""
        table = self._table(queue)
        if not table.fifo:
            return None
        items = next(table.pages(since=since, Limit=1))["Items"]
        return float(items[0]["perform_at"]["N"]) if items else None


def _moment(seconds: str) -> datetime | None:
    """None: not a time that a datetime can show; it may be in milliseconds."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        return None
