"""The database under examination, and the findings."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from fairturn.backends.catalogue import parse
from fairturn.backends.schema import Fit
from fairturn.backends.steps import Op, Rows
from fairturn.core.limits import SECOND
from fairturn.core.settings import Settings, settings_value
from fairturn.core.values import duration_text
from fairturn.internal import examine
from fairturn.sync.database import Database

Level = Literal["ok", "warn", "bad"]
LEVELS: tuple[Level, ...] = ("ok", "warn", "bad")
Command = Callable[..., str]

_PLACES = {
    "sqlite": ("sqlite", "?{}", None),
    "postgresql": ("postgres", "${}", "fairturn."),
    "mysql": ("mysql", "%s", "fairturn_"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``fix`` is a command if there is one."""

    level: Level
    check: str
    what: str
    why: str = ""
    fix: str = ""


def ok(check: str, what: str, why: str = "") -> Finding:
    return Finding("ok", check, what, why)


def warn(check: str, what: str, why: str, fix: str) -> Finding:
    return Finding("warn", check, what, why, fix)


def bad(check: str, what: str, why: str, fix: str) -> Finding:
    return Finding("bad", check, what, why, fix)


def command_text(*words: str | int) -> str:
    return " ".join(["fairturn", *(shlex.quote(str(word)) for word in words)])


def span(seconds: float) -> str:
    return duration_text(round(seconds * 1_000_000))


def many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(bytes: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes >= factor:
            return f"{bytes / factor:.1f} {unit}"
    return f"{bytes:,} bytes"


def all_settings(db: Database) -> list[Settings]:
    """Return the settings of all queues, in one statement."""
    rows = examine(db, "queues", lambda backend: backend.queues(None))
    return [settings_value(row) for row in rows]


class Examination:
    """A Database, its dialect's queries, and the function that makes commands for it."""

    def __init__(self, db: Database, command: Command, schema: str, deep: bool) -> None:
        self.db = db
        self.command = command
        self.schema = schema
        self.deep = deep
        self.dialect = db.target.backend.dialect
        folder, placeholder, own = _PLACES[self.dialect]
        text = files(f"fairturn.backends.{folder}").joinpath("doctor.sql").read_text("utf-8")
        if own is not None:
            text = text.replace(own, f"{schema}{own[-1]}")
        self._sql = parse(text, placeholder)

    def text(self, name: str) -> str:
        return self._sql[name]

    def ask(self, name: str, *params: int | str) -> Rows:
        """Run one query of the dialect's doctor.sql."""
        statement = (self._sql[name], params)

        def op() -> Op[Rows]:
            return (yield statement)

        return examine(self.db, "doctor", lambda _: op())

    def try_ask(self, name: str, *params: int | str) -> Rows | None:
        """Return None if this user lacks the privilege, or this version has no such view."""
        try:
            return self.ask(name, *params)
        except Exception as error:
            # Only errors of the database itself: our own bugs must be raised.
            if type(error).__module__.split(".")[0] in ("psycopg", "pymysql", "sqlite3"):
                return None
            raise

    def fit(self) -> Fit:
        """How the schema fits this client."""
        return examine(self.db, "doctor", lambda backend: backend.fit())

    def settings(self) -> list[Settings]:
        return all_settings(self.db)

    def delivered_since(self, queue: str, since: int) -> int:
        """Return how many messages of the queue were delivered since the start of that minute."""
        since -= since % (60 * SECOND)
        rows = examine(self.db, "history", lambda backend: backend.history(queue, since, None))
        return sum(row.delivered for row in rows)

    def skew(self) -> tuple[float, float]:
        """Return (database's clock minus ours, round trip) in seconds, the best of three."""
        skew, shortest = 0.0, float("inf")
        for _ in range(3):
            started, before = time.time(), time.monotonic()
            theirs = self.db.clock() / 1_000_000
            trip = time.monotonic() - before
            if trip < shortest:
                skew, shortest = theirs - (started + trip / 2), trip
        return skew, shortest
