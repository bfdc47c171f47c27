"""Processes that receive and settle, each message in one of the ways there are."""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict, deque
from typing import Any

import fairturn
from tests.campaign.history import Writer
from tests.campaign.roles.producers import begin, write
from tests.campaign.roles.role import Stage
from tests.campaign.world import CONSUMED, LEASE

WAYS = {
    "ack": 60,
    "carry": 12,
    "many": 6,
    "transaction": 8,
    "fail": 6,
    "defer": 4,
    "release": 4,
    "extend": 4,
    "kill": 1,
    "late": 2,  # works longer than its lease, then acks
}
HOARD = 300  # messages of each queue


def leases(messages: Any) -> list[list[int]]:
    return [[message.id, message.deliveries, message.token] for message in messages]


def seen(messages: Any) -> list[dict[str, Any]]:
    """What the history knows about the deliveries of one answer, in their order."""
    return [
        {
            "id": message.id,
            "number": message.deliveries,
            "token": message.token,
            "value": value_of(message),
            "channel": message.channel,
            "key": message.key,
        }
        for message in messages
    ]


def value_of(message: Any) -> str:
    tick = message.headers.get("fairturn.schedule") if message.queue == "ticks" else None
    return f"tick {tick['tick']}" if tick else message.body["v"]


def answer(value: str) -> dict[str, Any]:
    """The result that a value of the queue `asks` gets."""
    return {"answer": value[::-1]}


def ways_for(queue: str) -> dict[str, int]:
    if queue == "asks":
        return {"complete": 8, "release": 1, "fail": 1}
    if queue in ("plain", "watched"):
        return WAYS
    # Elsewhere a message ends only by an ack: the checker relies on it.
    return {way: weight for way, weight in WAYS.items() if way != "kill"}


def work(message: Any, dice: random.Random) -> tuple[float, float]:
    """The least and the most seconds to work on a message. If somebody else had it and may still
    believe that he has it, often long: his ack then meets a lease that is alive."""
    return (0.1, LEASE * 0.4) if message.recovered and dice.random() < 0.5 else (0, 0.01)


class Consumer:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._drains = stage.spec.options.get("drains", False)
        self._driver: Any = None
        self._carried: dict[str, list[fairturn.LeasedMessage]] = {}

    def step(self) -> None:
        dice = self._stage.dice
        queue = dice.choice(CONSUMED)
        if self._drains:
            self._drain(queue)
            return
        messages = self.receive(queue, dice.randint(1, 6), dice.choice([0, 0, 0.1]))
        ways = ways_for(queue)
        for message in messages:
            self._stage.pause(*work(message, dice))
            way = dice.choices(list(ways), weights=list(ways.values()))[0]
            self.settle(queue, message, way)
        if not messages:
            self._stage.pause(0.005, 0.03)

    def _drain(self, queue: str) -> None:
        """As much as possible at once."""
        messages = self.receive(queue, 50, 0)
        if messages:
            about = {"verb": "ack", "leases": leases(messages), "queue": queue}
            with self._stage.history.call("verb", **about) as call:
                call.ok(lost=leases(self._stage.db.queue(queue).ack(messages).lost))
        else:
            self._stage.pause(0.005, 0.02)

    def receive(self, queue: str, n: int, wait: float) -> Any:
        history = self._stage.history
        carried = self._carried.pop(queue, [])
        op = history.begin("verb", verb="ack", leases=leases(carried), queue=queue, carried=True)
        with history.call("receive", queue=queue, n=n, lease=LEASE) as call:
            try:
                found = self._stage.db.queue(queue).receive(n, wait=wait, lease=LEASE, ack=carried)
            except Exception as error:
                history.end(op, "info", error)
                raise
            history.end(op, "ok", lost=leases(found.lost))
            call.ok(deliveries=seen(found))
            return found
        return []

    def settle(self, queue: str, message: fairturn.LeasedMessage, way: str) -> None:
        if way == "carry":
            self._carried.setdefault(queue, []).append(message)
        elif way == "transaction":
            self._transaction(queue, message)
        elif way == "late":
            self._stage.pause(LEASE, LEASE * 1.3)
            self.verb(queue, message, "ack", message.ack)
        elif way == "many":
            self.verb(queue, message, "ack", lambda: self._many(queue, message))
        elif way == "extend":
            self.verb(queue, message, "extend", lambda: message.extend(LEASE), lease=LEASE)
            self.verb(queue, message, "ack", message.ack)
        elif way == "defer":
            self.verb(queue, message, "defer", lambda: message.defer(0.3))
        elif way == "complete":
            result = answer(value_of(message))
            self.verb(queue, message, "complete", lambda: message.complete(result))
        else:
            self.verb(queue, message, way, getattr(message, way))

    def _many(self, queue: str, message: fairturn.LeasedMessage) -> None:
        lost = self._stage.db.queue(queue).ack([message]).lost
        if lost:
            raise fairturn.LeaseLost(queue, [message.id])

    def verb(self, queue: str, message: Any, verb: str, act: Any, **more: Any) -> None:
        verb_of(self._stage.history, queue, message, verb, act, **more)

    def _transaction(self, queue: str, message: fairturn.LeasedMessage) -> None:
        """Ack it in the transaction of its effect."""
        history, value = self._stage.history, value_of(message)
        op = history.begin("verb", verb="ack", leases=leases([message]), queue=queue, effect=value)
        told = False
        try:
            if self._driver is None:
                self._driver = self._stage.db.target.open()
            connection = self._driver.connection
            begin(connection)
            write(connection, "effect", value)
            message.using(connection).ack()
            told = True
            connection.cursor().execute("COMMIT")
            history.end(op, "ok")
        except Exception as error:
            # Before the COMMIT nothing can have happened. Closing the connection rolls back.
            history.end(op, "info" if told else "fail", error)
            self.close_connection()

    def close_connection(self) -> None:
        if self._driver is not None:
            with contextlib.suppress(Exception):
                self._driver.close()
            self._driver = None

    def close(self) -> None:
        self.close_connection()
        for queue in list(self._carried):
            carried = self._carried.pop(queue)
            about = {"verb": "ack", "leases": leases(carried), "queue": queue}
            with self._stage.history.call("verb", **about) as call:
                call.ok(lost=leases(self._stage.db.queue(queue).ack(carried).lost))


class Hoarder(Consumer):
    """Forgets nothing: again and again it acks what it had long ago, and finished or lost."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._had: dict[str, deque[Any]] = defaultdict(lambda: deque(maxlen=HOARD))

    def step(self) -> None:
        super().step()
        queue = self._stage.dice.choice(CONSUMED)
        if queue == "sqs":
            return  # there an old receipt is good
        old = self._stage.dice.sample(self._had[queue], min(5, len(self._had[queue])))
        if old:
            with self._stage.history.call(
                "verb", verb="ack", leases=leases(old), queue=queue
            ) as call:
                call.ok(lost=leases(self._stage.db.queue(queue).ack(old).lost))

    def receive(self, queue: str, n: int, wait: float) -> Any:
        found = super().receive(queue, n, wait)
        self._had[queue].extend(found)
        return found


def verb_of(history: Writer, queue: str, message: Any, verb: str, act: Any, **more: Any) -> None:
    about = {"verb": verb, "leases": leases([message]), "queue": queue, **more}
    with history.call("verb", **about):
        act()


ROLES = {"consumer": Consumer, "hoarder": Hoarder}
