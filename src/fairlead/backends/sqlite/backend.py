"""The SQLite backend: the schema, what its errors mean, and all operations together."""

from __future__ import annotations

from fairlead.backends.base import BEGIN, Op
from fairlead.backends.catalogue import split_statements
from fairlead.backends.sqlite.batches import Batches
from fairlead.backends.sqlite.care import Care
from fairlead.backends.sqlite.common import HERE, SQL
from fairlead.backends.sqlite.events import Events
from fairlead.backends.sqlite.groups import Groups
from fairlead.backends.sqlite.insight import Insight
from fairlead.backends.sqlite.messages import Messages
from fairlead.backends.sqlite.moving import Moving
from fairlead.backends.sqlite.queues import Queues
from fairlead.backends.sqlite.receiving import Receiving
from fairlead.backends.sqlite.remembering import Remembering
from fairlead.backends.sqlite.schedules import Schedules
from fairlead.backends.sqlite.sending import INSERTS, MEMBER_INSERTS, Sending
from fairlead.backends.sqlite.verbs import Verbs
from fairlead.errors import DatabaseUnavailable, SchemaOutdated, UnsafeTransaction

CLIENT = 1  # this code's generation, compared with the oldest a schema serves

# The oldest client each migration leaves working; one that is not named serves them all.
OLDEST_CLIENT: dict[str, int] = {}

# Every migration says that it was applied, also to people who run the SQL themselves. The row comes
# first: whoever got here without the write lock fails before any change.
_RECORD = """\
CREATE TABLE IF NOT EXISTS fairlead_migration (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at INTEGER NOT NULL,
    oldest_client INTEGER NOT NULL  -- the oldest generation of clients it still serves
);
INSERT INTO fairlead_migration (version, name, applied_at, oldest_client)
VALUES ({version}, '{name}', CAST(strftime('%s', 'now') AS INTEGER) * 1000000, {oldest});

"""


def _recorded(name: str, text: str) -> str:
    version = int(name.split("_")[0])
    return _RECORD.format(version=version, name=name, oldest=OLDEST_CLIENT.get(name, 1)) + text


# What to tell about errors that waiting does not mend, by the start of SQLite's name for them.
UNAVAILABLE = {
    "SQLITE_FULL": "the disk (or the database's size limit) is full: nothing was written, and acks "
    "fail too until there is room. Free some space; nothing else needs to be repaired",
    "SQLITE_READONLY": "the database cannot be written: check the permissions of the file and of "
    "its directory (SQLite makes -wal and -shm files beside it)",
    "SQLITE_CANTOPEN": "the database file cannot be opened: check that its directory exists and "
    "that this user may write there",
    "SQLITE_NOTADB": "the file is not an SQLite database, or it is encrypted: check the path",
    "SQLITE_CORRUPT": "the database file is damaged: stop writing, keep a copy, and restore a "
    "backup or run the sqlite3 shell's .recover",
    "SQLITE_IOERR": "the operating system could not read or write the database file: check the "
    "disk; a network file system is not a place for SQLite",
    "SQLITE_PERM": "access to the database file was refused: check its permissions",
}


class SqliteBackend(
    Queues,
    Sending,
    Receiving,
    Verbs,
    Messages,
    Moving,
    Groups,
    Batches,
    Schedules,
    Remembering,
    Insight,
    Events,
    Care,
):
    """Every operation of ``base.Backend`` as statements for SQLite 3.35 or later."""

    dialect = "sqlite"

    def translate(self, code: str, message: str) -> Exception | str | None:
        if code == "gone":
            return "gone"
        if code == "SQLITE_BUSY_SNAPSHOT":
            # Only a transaction that began by reading gets here, and ours never do.
            return UnsafeTransaction(
                "your SQLite transaction read before it wrote and another connection has written "
                "since, so it can never commit: begin it with BEGIN IMMEDIATE"
            )
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return "busy"
        if code == "SQLITE_ERROR" and _names_our_schema(message):
            return SchemaOutdated(
                f"the database has no Fairlead schema, or an older one ({message}): run "
                "`fairlead migrate`, or call db.migrate()"
            )
        for start, advice in UNAVAILABLE.items():
            if code.startswith(start):
                return DatabaseUnavailable(f"{advice} ({message})")
        return None

    def migrations(self) -> list[tuple[str, str]]:
        files = sorted((HERE / "schema").glob("[0-9]*.sql"))
        return [(file.stem, _recorded(file.stem, file.read_text("utf-8"))) for file in files]

    def migrate(self) -> Op[list[str]]:
        # Look before taking the write lock: SQLite migrates at every connect, mostly for nothing.
        applied: set[int] | None = yield from _applied()
        if applied is not None and not self._missing(applied):
            return []
        yield BEGIN
        applied = yield from _applied()
        missing = self._missing(applied or set())
        for _, _, text in missing:
            for statement in split_statements(text):
                yield statement, ()
        return [name for _, name, _ in missing]

    def check(self) -> Op[None]:
        applied = yield from _applied()
        if applied is None or self._missing(applied):
            raise SchemaOutdated(
                "Fairlead's tables are missing or out of date in this file: run `fairlead migrate`"
            )

    def _missing(self, applied: set[int]) -> list[tuple[int, str, str]]:
        numbered = ((int(name.split("_")[0]), name, text) for name, text in self.migrations())
        return [migration for migration in numbered if migration[0] not in applied]

    def statements(self) -> frozenset[str]:
        """Every text this backend ever sends, for tests that nothing else is sent."""
        schema = (split_statements(text) for _, text in self.migrations())
        inserts = (*INSERTS.values(), *MEMBER_INSERTS.values())
        return frozenset(
            (*SQL.statements.values(), *inserts, *(s for file in schema for s in file))
        )


def _applied() -> Op[set[int] | None]:
    """The numbers of the migrations in the database; None if it never saw one."""
    exists = yield SQL.has_schema, ()
    if not exists[0][0]:
        return None
    rows = yield SQL.migrations, ()
    oldest = max((row[1] for row in rows), default=0)
    if oldest > CLIENT:
        raise SchemaOutdated(
            f"this database's schema serves Fairlead clients from generation {oldest} on and this "
            f"one is generation {CLIENT}: upgrade the fairlead package here"
        )
    return {row[0] for row in rows}


def _names_our_schema(message: str) -> bool:
    missing = ("no such table", "no such column", "has no column named", "no such index")
    return message.startswith("no such table: fairlead_") or (
        "fairlead_" in message and any(words in message for words in missing)
    )
