"""A SQLite database for the tests of its backend, by a driver that records and counts."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

import pytest

from fairlead.backends.base import Memory, Receive
from fairlead.backends.sqlite import SqliteBackend
from fairlead.backends.sqlite.common import SQL
from fairlead.drivers.sqlite import SqliteDriver, connect
from fairlead.run import run

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
        self.memory = Memory()

    def send(self, *items: tuple[Any, ...], now: int | None = NOW) -> list[tuple[int, str]]:
        return self.do(BACKEND.send("q", items, now))

    def receive(self, n: int, now: int | None = NOW, **args: Any) -> Any:
        return self.do(BACKEND.receive("q", Receive(n, **args), self.memory, now))

    def channels_of(self, n: int, **args: Any) -> list[str]:
        return [row[1] for row in self.receive(n, **args).rows]

    def policy(self, channel: str, **columns: Any) -> None:
        defaults = {"burst": 1, "weight": 1, "paused": 0, "ordered": 0}
        names = "max_concurrency rate_count rate_period_us burst weight paused ordered max_size"
        row = tuple({**defaults, **columns}.get(name) for name in names.split())
        self.do(BACKEND.policy_set("q", channel, row, NOW))


def item(channel: str = "", body: bytes = b"", **k: Any) -> tuple[Any, ...]:
    return (
        channel,
        body,
        0,
        -k.get("priority", 0),
        k.get("due"),
        k.get("delay", 0),
        k.get("key"),
        k.get("on_conflict", "e"),
        k.get("version", 0),
        k.get("type"),
        k.get("headers"),
        k.get("lease"),
        k.get("max_attempts"),
        k.get("expires"),
        k.get("max_wait"),
        k.get("group"),
        None,
        None,
    )


def plan(db: Desk, name: str) -> str:
    text = SQL.statements[name]
    numbers = [int(n) for n in re.findall(r"\?(\d+)", text)]
    rows = db.driver.execute(f"EXPLAIN QUERY PLAN {text}", [None] * max(numbers, default=0))
    return "\n".join(row[3] for row in rows)


@pytest.fixture
def db() -> Any:
    db = Db()
    yield db
    db.driver.close()
