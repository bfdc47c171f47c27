"""The database under examination, and what is found."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from fairlead.backends.base import Op, Rows
from fairlead.backends.catalogue import parse
from fairlead.limits import SECOND
from fairlead.operations.call import Call
from fairlead.operations.insight import duration_text
from fairlead.operations.queues import settings_value
from fairlead.sync.database import Database
from fairlead.values import Settings

Level = Literal["ok", "warn", "bad"]
LEVELS: tuple[Level, ...] = ("ok", "warn", "bad")
Command = Callable[..., str]

_PLACES = {
    "sqlite": ("sqlite", "?{}", None),
    "postgresql": ("postgres", "${}", "fairlead."),
    "mysql": ("mysql", "%s", "fairlead_"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``fix`` is a command wherever there is one."""

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
    return " ".join(["fairlead", *(shlex.quote(str(word)) for word in words)])


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
    """Every queue's settings, in one statement."""

    def op() -> Op[list[dict[str, Any]]]:
        return db.core.backend.queues(None)

    return [
        settings_value(row)
        for row in db.runner.run(Call("queues", op, True, needs_schema=db.target.migrates_itself))
    ]


class Patient:
    """A Database, its dialect's questions, and how to word a command for it."""

    def __init__(self, db: Database, command: Command, schema: str, deep: bool) -> None:
        self.db = db
        self.command = command
        self.schema = schema
        self.deep = deep
        self.dialect = db.target.backend.dialect
        folder, placeholder, own = _PLACES[self.dialect]
        text = files(f"fairlead.backends.{folder}").joinpath("doctor.sql").read_text("utf-8")
        if own is not None:
            text = text.replace(own, f"{schema}{own[-1]}")
        self._sql = parse(text, placeholder)

    def text(self, name: str) -> str:
        return self._sql[name]

    def ask(self, name: str, *params: int | str) -> Rows:
        """One question of the dialect's doctor.sql."""
        statement = (self._sql[name], params)

        def op() -> Op[Rows]:
            return (yield statement)

        return self.db.runner.run(
            Call("doctor", op, repeatable=True, needs_schema=self.db.target.migrates_itself)
        )

    def try_ask(self, name: str, *params: int | str) -> Rows | None:
        """None if this user may not see it, or this version has no such view."""
        try:
            return self.ask(name, *params)
        except Exception as error:
            # Only what the database itself refused; our own mistakes must be seen.
            if type(error).__module__.split(".")[0] in ("psycopg", "pymysql", "sqlite3"):
                return None
            raise

    def settings(self) -> list[Settings]:
        return all_settings(self.db)

    def delivered_since(self, queue: str, since: int) -> int:
        """How many messages the queue gave out since the minute of then."""
        backend = self.db.core.backend
        since -= since % (60 * SECOND)

        def op() -> Op[Rows]:
            return backend.history(queue, since, None)

        rows: Sequence[Any] = self.db.runner.run(
            Call("history", op, True, needs_schema=self.db.target.migrates_itself)
        )
        return sum(row[2] for row in rows)

    def skew(self) -> tuple[float, float]:
        """(database's clock minus ours, round trip), in seconds; the best of three looks."""
        best = (0.0, float("inf"))
        for _ in range(3):
            started, before = time.time(), time.monotonic()
            theirs = self.db.clock() / 1_000_000
            trip = time.monotonic() - before
            if trip < best[1]:
                best = (theirs - (started + trip / 2), trip)
        return best
