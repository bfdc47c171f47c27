"""A SQLite database for the tests of its backend, by a driver that records and counts."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

import pytest

from fairturn.backends.base import ConsumerState, Receive
from fairturn.backends.sqlite import SqliteBackend
from fairturn.backends.sqlite.common import SQL
from fairturn.core.rows import SendRow
from fairturn.core.settings import Policy, policy_row
from fairturn.drivers.run import run
from fairturn.drivers.sqlite import SqliteDriver, connect

BACKEND = SqliteBackend()
NOW = 1_700_000_000_000_000
SECOND = 1_000_000


class Recorder(SqliteDriver):
    """A driver that remembers what it was asked, and what its statements cost."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.texts: list[str] = []
        self.steps = 0
        connection.set_progress_handler(self._step, 1)

    def _step(self) -> int:
        self.steps += 1
        return 0

    def execute(self, text: str, params: Any) -> Any:
        self.texts.append(text)
        return super().execute(text, params)


class Desk:
    """One database with a queue `q`."""

    def __init__(self, **columns: Any) -> None:
        self.driver = Recorder(connect(":memory:"))
        self.do(BACKEND.migrate())
        self.do(BACKEND.queue_create("q", columns, NOW))

    def do(self, operation: Any) -> Any:
        return run(operation, self.driver, True)


class Db(Desk):
    """A desk at a fixed time."""

    def __init__(self, **columns: Any) -> None:
        super().__init__(**columns)
        self.consumer = ConsumerState()

    def send(self, *items: SendRow, now: int | None = NOW) -> list[tuple[int, str]]:
        return self.do(BACKEND.send("q", items, now))

    def receive(self, n: int, now: int | None = NOW, **args: Any) -> Any:
        return self.do(BACKEND.receive("q", Receive(n, **{"token": 1, **args}), self.consumer, now))

    def channels_of(self, n: int, **args: Any) -> list[str]:
        return [row.channel for row in self.receive(n, **args).rows]

    def policy(self, channel: str, **columns: Any) -> None:
        row = policy_row(Policy())._replace(**columns)
        self.do(BACKEND.policy_set("q", channel, row, NOW))


def item(channel: str = "", body: bytes = b"", **more: Any) -> SendRow:
    return SendRow(channel, body, 0, **more)


def plan(db: Desk, name: str) -> str:
    text = SQL.statements[name]
    numbers = [int(n) for n in re.findall(r"\?(\d+)", text)]
    rows = db.driver.execute(f"EXPLAIN QUERY PLAN {text}", [None] * max(numbers, default=0))
    return "\n".join(detail for _, _, _, detail in rows)


@pytest.fixture
def db() -> Any:
    db = Db()
    yield db
    db.driver.close()
