"""``Waiter``: an SQS client whose delays have no limit.

It takes the place of a boto3 client. What SQS can wait for itself (up to 900 seconds) goes straight
there, as it is; the rest is stored in a queue of Fairlead whose destination is that SQS queue, and
`fairlead relay` hands it over when it is time. Everything else is the client's own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairlead.errors import FairleadError, InvalidArgument, MessageLeased, QueueNotFound
from fairlead.relay import waiter_orders as orders
from fairlead.relay.waiter_orders import HandingOver, Order, Waiting
from fairlead.sync.database import Database
from fairlead.sync.queue import Queue
from fairlead.values import Moment, Send, Sent


class Front:
    """What both have in common: none of it asks anybody."""

    def __init__(self, client: Any, prefix: str, patience: float) -> None:
        self._client = client
        self._prefix = prefix
        self._patience = patience
        self._connection: Any = None
        self._there: set[str] = set()  # queues that are known to exist, and are committed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._client, name)

    @property
    def _always(self) -> bool:
        return self._connection is not None

    def _settings(self, url: str) -> dict[str, Any]:
        meta = getattr(self._client, "meta", None)
        return orders.queue_settings(url, getattr(meta, "region_name", None))

    def _asked(
        self, url: str, body: str, job: str | None, at: Moment | None, more: Mapping[str, Any]
    ) -> Order:
        given = {"MessageBody": body, "JobId": job, "At": at, **more}
        return orders.order(url, given, now(), always=self._always)

    def _deadline(self) -> float:
        return 0.0 if self._always else time.monotonic() + self._patience


def now() -> int:
    return time.time_ns() // 1_000


def refused(chosen: Sequence[Order], sent: Sequence[Sent]) -> list[int]:
    """The places of those that could not replace the message with their JobId."""
    return [n for n in range(len(chosen)) if sent[n].outcome == "refused"]


def bound(limit: int | None) -> float:
    if limit is None:
        return float("inf")
    if limit < 0:
        raise InvalidArgument(f"limit must not be negative, it is {limit}")
    return limit


def told(
    chosen: Sequence[tuple[str, Order]], stored: Sequence[Sent]
) -> dict[str, Mapping[str, Any]]:
    """By id: what became of the stored entries of a batch."""
    return {
        id: orders.failure(id, HandingOver(order.what))
        if sent.outcome == "refused"
        else {"Id": id, **order.answer(sent)}
        for (id, order), sent in zip(chosen, stored, strict=True)
    }


class Waiter(Front):
    """``Waiter(boto3.client("sqs"), fairlead.connect(…))``. ``patience``: how many seconds it waits
    for a message that is just being handed over."""

    def __init__(
        self,
        client: Any,
        db: Database,
        *,
        prefix: str = "waiter-",
        patience: float = orders.PATIENCE,
    ) -> None:
        super().__init__(client, prefix, patience)
        self._db = db

    def using(self, connection: Any) -> Waiter:
        """The same on your connection: what is sent becomes part of your transaction, so all of it
        is stored, however short its delay."""
        made = Waiter(self._client, self._db, prefix=self._prefix, patience=self._patience)
        made._connection, made._there = connection, self._there
        return made

    def prepare(self, *, QueueUrl: str) -> str:
        """Create the Fairlead queue for an SQS queue, which the first send would do as well; its
        name. Not in your transaction."""
        name = orders.queue_name(self._prefix, QueueUrl)
        self._db.queue(name).create(**self._settings(QueueUrl))
        self._there.add(name)
        return name

    # --- sending -------------------------------------------------------------------------------
    def send_message(
        self,
        *,
        QueueUrl: str,
        MessageBody: str,
        JobId: str | None = None,
        At: Moment | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """boto3's ``send_message``, with any DelaySeconds; ``At`` instead of it: a datetime, or
        seconds since the epoch. A second message with the same ``JobId`` replaces the first while
        that waits here."""
        order = self._asked(QueueUrl, MessageBody, JobId, At, more)
        if order.straight is not None:
            answer = self._client.send_message(QueueUrl=QueueUrl, **order.straight)
            self._supersede(QueueUrl, order)
            return answer
        [sent] = self._store(QueueUrl, [order])
        if sent.outcome == "refused":
            raise HandingOver(order.what)
        return {**order.answer(sent), "ResponseMetadata": orders.response_metadata()}

    def send_message_batch(
        self, *, QueueUrl: str, Entries: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """boto3's ``send_message_batch``; each entry may have a JobId and At. What is wrong with an
        entry that would be stored is raised, and nothing is sent."""
        made = orders.batch(QueueUrl, Entries, now(), always=self._always)
        straight = [one.straight for one in made if one.straight is not None]
        answer: dict[str, Any] = {}
        if straight or not made:  # an empty batch is SQS's to refuse
            answer = self._client.send_message_batch(QueueUrl=QueueUrl, Entries=straight)
        sent = {one["Id"] for one in answer.get("Successful", ())}
        for entry, one in zip(Entries, made, strict=True):
            if one.straight is not None and entry["Id"] in sent:
                self._supersede(QueueUrl, one)
        if len(straight) == len(made):
            return answer
        chosen = [(e["Id"], one) for e, one in zip(Entries, made, strict=True) if one.send]
        try:
            stored = self._store(QueueUrl, [one for _, one in chosen])
        except FairleadError as error:
            if not straight:
                raise
            return orders.whole(
                Entries, answer, {id: orders.failure(id, error) for id, _ in chosen}
            )
        return orders.whole(Entries, answer, told(chosen, stored))

    def _store(self, url: str, chosen: Sequence[Order]) -> list[Sent]:
        sends = [one.send for one in chosen if one.send is not None]
        sent = self._send(url, sends)
        deadline = self._deadline()
        while (again := refused(chosen, sent)) and time.monotonic() < deadline:
            time.sleep(orders.PAUSE)
            for n, one in zip(again, self._send(url, [sends[n] for n in again]), strict=True):
                sent[n] = one
        return sent

    def _send(self, url: str, sends: Sequence[Send]) -> list[Sent]:
        queue = self._queue(url)
        if self._always:
            return queue.send_many(sends)
        try:
            sent = queue.send_many(sends)
        except QueueNotFound:
            self.prepare(QueueUrl=url)
            return queue.send_many(sends)
        self._there.add(queue.name)
        return sent

    def _supersede(self, url: str, order: Order) -> None:
        """What went straight to SQS takes the place of what waits under the same JobId."""
        if order.job is None:
            return
        try:
            self.cancel(QueueUrl=url, JobId=order.job)
        except HandingOver:
            # The new one is sent, so all that can be done is to keep the old one from being tried
            # again.
            self._queue(url).cancel(key=order.job, force=True)

    # --- what waits ----------------------------------------------------------------------------
    def cancel(
        self, *, QueueUrl: str, JobId: str | None = None, MessageId: str | None = None
    ) -> bool:
        """Remove a message that waits here. False: there is none, or SQS has it already."""
        found = orders.which(JobId, MessageId)
        if found is None:
            return False
        deadline = self._deadline()
        while True:
            try:
                return self._queue(QueueUrl).cancel(**found)
            except QueueNotFound:
                return False
            except MessageLeased as error:
                if time.monotonic() >= deadline:
                    raise HandingOver(f"the message with {JobId or MessageId!r}") from error
            time.sleep(orders.PAUSE)

    def waiting(self, *, QueueUrl: str, limit: int | None = None) -> Iterator[Waiting]:
        """What has not been handed over yet, in the order in which it was sent."""
        queue, after, left = self._queue(QueueUrl), 0, bound(limit)
        while left > 0:
            try:
                page = queue.peek(orders.PAGE, after=after)
            except QueueNotFound:
                return
            for message in page:
                found = orders.waiting(message)
                if found is not None and left > 0:
                    left -= 1
                    yield found
            if len(page) < orders.PAGE:
                return
            after = page[-1].id

    def count(self, *, QueueUrl: str) -> int:
        """How many have not been handed over yet."""
        try:
            return orders.count(self._queue(QueueUrl).stats())
        except QueueNotFound:
            return 0

    def _queue(self, url: str) -> Queue:
        name = orders.queue_name(self._prefix, url)
        queue = self._db.queue(name)
        if not self._always:
            return queue
        queue = queue.using(self._connection)
        if name not in self._there:
            # An unknown queue would be an error, and an error is the end of a transaction.
            queue.create(**self._settings(url))
        return queue
