"""The SQLite backend: the schema, the meaning of errors, and all operations together."""

from __future__ import annotations

from fairturn.backends import schema
from fairturn.backends.catalogue import split_statements
from fairturn.backends.sqlite.common import HERE, SQL
from fairturn.backends.sqlite.events import Events
from fairturn.backends.sqlite.groups.groups import Groups
from fairturn.backends.sqlite.insight import Insight
from fairturn.backends.sqlite.maintenance import Care
from fairturn.backends.sqlite.messages import Messages
from fairturn.backends.sqlite.queues import Queues
from fairturn.backends.sqlite.receive.receives import Receiving
from fairturn.backends.sqlite.remembered import Remembering
from fairturn.backends.sqlite.schedules import Schedules
from fairturn.backends.sqlite.sends import INSERTS, MEMBER_INSERTS, Sending
from fairturn.backends.sqlite.verbs import Verbs
from fairturn.backends.steps import BEGIN, Op
from fairturn.core.errors import DatabaseUnavailable, SchemaOutdated, UnsafeTransaction

MIGRATIONS = schema.table_migrations(HERE)

# A migration records itself, also if people run the SQL themselves.
_RECORD = """
INSERT INTO fairturn_migration (version, name, applied_at)
VALUES ({0.number}, '{0.name}', CAST(strftime('%s', 'now') AS INTEGER) * 1000000);
"""
_INSTALLED = """\
INSERT INTO fairturn_installed (one, generation, oldest_client)
VALUES (1, {0.GENERATION}, {0.OLDEST_CLIENT})
ON CONFLICT (one) DO UPDATE SET generation = excluded.generation,
    oldest_client = excluded.oldest_client"""

# Advice for errors that a retry does not solve, by the start of SQLite's name for them.
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
    Groups,
    Schedules,
    Remembering,
    Insight,
    Events,
    Care,
    schema.SchemaFit,
):
    """Every operation of ``base.Backend`` as statements for SQLite 3.35 or later."""

    dialect = "sqlite"
    version = MIGRATIONS[-1].number

    def translate(self, code: str, message: str) -> Exception | str | None:
        if code == "gone":
            return "gone"
        if code == "SQLITE_BUSY_SNAPSHOT":
            # Only a transaction that began with a read gets this error, and ours never do.
            return UnsafeTransaction(
                "your SQLite transaction read before it wrote and another connection has written "
                "since, so it can never commit: begin it with BEGIN IMMEDIATE"
            )
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return "busy"
        if code == "SQLITE_ERROR" and _names_our_schema(message):
            return SchemaOutdated(
                f"the database has no Fairturn schema, or an older one ({message})"
            )
        for start, advice in UNAVAILABLE.items():
            if code.startswith(start):
                return DatabaseUnavailable(f"{advice} ({message})")
        return None

    def migrations(self) -> list[tuple[str, str]]:
        return [
            (m.name, f"{m.text}{_RECORD.format(m)}{_INSTALLED.format(schema)};\n")
            for m in MIGRATIONS
        ]

    def migrate(self) -> Op[list[str]]:
        # SQLite migrates at every connect, and there is mostly nothing to do: check this before the
        # write lock.
        if self.is_current((yield from self.installed())):
            return []
        yield BEGIN
        has = yield from self.installed()
        if self.is_current(has):
            return []
        missing = [m for m in MIGRATIONS if m.number > has.version]
        for migration in missing:
            for statement in split_statements(migration.text + _RECORD.format(migration)):
                yield statement, ()
        yield _INSTALLED.format(schema), ()
        return [migration.name for migration in missing]

    def installed(self) -> Op[schema.Installed]:
        [(exists,)] = yield SQL.has_schema, ()
        if not exists:
            return schema.Installed()
        [row] = yield SQL.installed, ()
        return schema.Installed(*row)

    def statements(self) -> frozenset[str]:
        """All texts that this backend sends, for the test that it sends no others."""
        scripts = (split_statements(text) for _, text in self.migrations())
        inserts = (*INSERTS.values(), *MEMBER_INSERTS.values())
        return frozenset(
            (*SQL.statements.values(), *inserts, *(s for script in scripts for s in script))
        )


def _names_our_schema(message: str) -> bool:
    missing = ("no such table", "no such column", "has no column named", "no such index")
    return message.startswith("no such table: fairturn_") or (
        "fairturn_" in message and any(words in message for words in missing)
    )
