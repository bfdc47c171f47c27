"""Processes that send: plain, in batches, under keys, in order, and in the user's transaction."""

from __future__ import annotations

import contextlib
from typing import Any

import fairturn
from tests.campaign.roles.role import Stage
from tests.campaign.world import NARROW, TASK

CHANNELS = ["a", "b", "c", "d"]
KEYS = 20  # few, so that they meet


class Producer:
    """Sends to all queues, one message or several, with and without keys."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def step(self) -> None:
        dice = self._stage.dice
        ways = [
            self.one,
            self.many,
            self.keyed,
            self.limited,
            self.watched,
            self.task,
            self.relayed,
        ]
        dice.choices(ways, weights=[4, 2, 2, 2, 2, 2, 1])[0]()
        self._stage.pause(0.01, 0.05)

    def _send(self, queue: str, channel: str = "", **options: Any) -> None:
        value = self._stage.value()
        about = {"queue": queue, "values": [value], "channel": channel, "key": options.get("key")}
        with self._stage.history.call("send", **about) as call:
            sent = self._stage.db.queue(queue).send({"v": value}, channel=channel, **options)
            call.ok(ids=[sent.id], outcomes=[sent.outcome])

    def one(self) -> None:
        delay = self._stage.dice.choice([None, None, None, 0.5])
        self._send("plain", self._stage.dice.choice(CHANNELS), delay=delay)

    def many(self) -> None:
        values = [self._stage.value() for _ in range(self._stage.dice.randint(2, 8))]
        with self._stage.history.call("send", queue="plain", values=values, channel="a") as call:
            items = [fairturn.Send({"v": value}, channel="a") for value in values]
            sent = self._stage.db.queue("plain").send_many(items)
            call.ok(ids=[one.id for one in sent], outcomes=[one.outcome for one in sent])

    def keyed(self) -> None:
        key = f"key-{self._stage.dice.randrange(KEYS)}"
        self._send("keyed", key=key, on_conflict="ignore")

    def limited(self) -> None:
        self._send("limited", self._stage.dice.choice([NARROW, *CHANNELS]))

    def watched(self) -> None:
        self._send("watched")

    def relayed(self) -> None:
        self._send("relayed")

    def task(self) -> None:
        self._send("tasks", type=TASK)


class Ordered:
    """The only sender of its ordered channel: one after the other."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._channel = stage.history.process

    def step(self) -> None:
        value = self._stage.value()
        about = {"queue": "ordered", "values": [value], "channel": self._channel}
        with self._stage.history.call("send", **about) as call:
            sent = self._stage.db.queue("ordered").send({"v": value}, channel=self._channel)
            call.ok(ids=[sent.id], outcomes=[sent.outcome])
        self._stage.pause(0.05, 0.15)


class Transactional:
    """Sends in a transaction of its own, beside a row in a table of its own. Some it rolls back."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._driver: Any = None

    def step(self) -> None:
        history, dice = self._stage.history, self._stage.dice
        values = [self._stage.value() for _ in range(dice.randint(1, 2))]
        commits = dice.random() < 0.8
        op = history.begin(
            "send" if commits else "rollback", queue="plain", values=values, channel="b", tx=True
        )
        told = False
        try:
            if self._driver is None:
                self._driver = self._stage.db.target.open()
            connection = self._driver.connection
            begin(connection)
            ids = [self._one(connection, value) for value in values]
            told = commits
            connection.cursor().execute("COMMIT" if commits else "ROLLBACK")
            history.end(op, "ok" if commits else "fail", ids=ids, outcomes=["sent"] * len(ids))
        except Exception as error:
            # Before the COMMIT nothing can have happened.
            history.end(op, "info" if told else "fail", error)
            self.close()
        self._stage.pause(0.05, 0.15)

    def _one(self, connection: Any, value: str) -> int:
        write(connection, "ledger", value)
        return self._stage.db.queue("plain").using(connection).send({"v": value}, channel="b").id

    def close(self) -> None:
        if self._driver is not None:
            with contextlib.suppress(Exception):
                self._driver.close()
            self._driver = None


def begin(connection: Any) -> None:
    """A transaction of ours, of the kind that the database needs."""
    sqlite = type(connection).__module__.startswith("sqlite3")
    connection.cursor().execute("BEGIN IMMEDIATE" if sqlite else "BEGIN")


def write(connection: Any, table: str, value: str) -> None:
    connection.cursor().execute(f"INSERT INTO {table} (v) VALUES ('{value}')")


ROLES = {"producer": Producer, "ordered": Ordered, "transactional": Transactional}
