"""The schema on MySQL and MariaDB.

DDL commits by itself, so every step can be run again. A file of tables is recorded at its end, each
procedure when it exists, and the whole migration when its hash is stored. A procedure keeps the
sql_mode with which it was created, whatever a caller's session has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fairturn.backends.catalogue import Catalogue
from fairturn.backends.schema import (
    GENERATION,
    OLDEST_CLIENT,
    REPAIRED,
    ROUTINES,
    Installed,
    Migration,
    SchemaFit,
    hash_of,
    routine_files,
    table_migrations,
)
from fairturn.backends.steps import Op
from fairturn.core.errors import DatabaseBusy, InvalidArgument

HERE = Path(__file__).parent
MIGRATIONS = table_migrations(HERE)
SQL_MODE = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_NAME = re.compile(r"\bfairturn_")
_DELIMITER = re.compile(r"^DELIMITER[ \t]+(\S+)[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"\A(?:\s+|--[^\n]*(?:\n|\Z))+")
_PROCEDURE = re.compile(r"CREATE PROCEDURE (\w+)")

# A migration records itself, also if people run the SQL themselves. REPLACE, since it may run again
# after a crash.
_RECORD = """
REPLACE INTO fairturn_migration (version, name, applied_at) VALUES
  ({0.number}, '{0.name}', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
"""
_INSTALLED = """\
REPLACE INTO fairturn_installed (one, generation, oldest_client, routines)
VALUES (1, {}, {}, '{}')"""
_MADE = "REPLACE INTO fairturn_routine (name, hash) VALUES ('{}', '{}')"
# MySQL has no CREATE OR REPLACE PROCEDURE. MariaDB has it: grants stay, and the procedure always
# exists. Each of the two ignores the other's comments.
_DROP = "/*!80000 DROP PROCEDURE IF EXISTS {} */ /*M! DO 0 */"
_CREATE = "CREATE /*M! OR REPLACE */"


def check_prefix(prefix: str) -> str:
    if not _PREFIX.fullmatch(prefix):
        raise InvalidArgument(f"the prefix must match [a-z_][a-z0-9_]*, {prefix!r} does not")
    return prefix


def named(text: str, prefix: str) -> str:
    """The files say `fairturn_`; another prefix is put in its place."""
    return text if prefix == "fairturn_" else _NAME.sub(prefix, text)


def statements(script: str) -> list[str]:
    """The statements of a script for the mariadb client, which splits at its DELIMITER."""
    found: list[str] = []
    parts = _DELIMITER.split(script)
    for delimiter, part in zip([";", *parts[1::2]], parts[0::2], strict=True):
        if delimiter == ";":
            pieces = re.split(r";[ \t]*(?:--[^\n]*)?$", part, flags=re.MULTILINE)
        else:
            pieces = part.split(delimiter)
        found += [_COMMENT.sub("", piece).strip() for piece in pieces]
    return [piece for piece in found if piece]


class Procedure(NamedTuple):
    hash: str  # of its text
    steps: tuple[str, ...]  # the statements that replace it and record that


@cache
def _procedures(texts: tuple[str, ...], prefix: str) -> dict[str, Procedure]:
    """The procedures of an installation, by name."""
    found: dict[str, Procedure] = {}
    for statement in (each for text in texts for each in statements(named(text, prefix))):
        match = _PROCEDURE.match(statement)
        if match is None or match[1] in found:
            raise ValueError(f"not a procedure with a name of its own: {statement[:60]}")
        name, hash = match[1], hash_of((statement,))
        create = statement.replace("CREATE", _CREATE, 1)
        made = named(_MADE.format(name, hash), prefix)
        found[name] = Procedure(hash, (_DROP.format(name), create, made))
    return found


class Schema(SchemaFit):
    prefix: str
    version = MIGRATIONS[-1].number
    routine_texts = routine_files(HERE)
    _sql: Catalogue

    @property
    def _procedures(self) -> dict[str, Procedure]:
        return _procedures(self.routine_texts, self.prefix)

    def migrations(self) -> list[tuple[str, str]]:
        steps = (step for procedure in self._procedures.values() for step in procedure.steps)
        replacement = "".join(f"{step} //\n\n" for step in steps)
        routines = f"DELIMITER //\n\n{replacement}DELIMITER ;\n\n{self._record()};\n"
        return [*((m.name, self._script(m)) for m in MIGRATIONS), (ROUTINES, routines)]

    def _script(self, migration: Migration) -> str:
        return named(migration.text + _RECORD.format(migration), self.prefix)

    def _record(self) -> str:
        return named(_INSTALLED.format(GENERATION, OLDEST_CLIENT, self.routines), self.prefix)

    def installed(self) -> Op[Installed]:
        rows = yield self._sql.installed, (self.prefix, self.prefix)
        there = {routine for *_, routine in rows}
        version, generation, oldest_client, routines, _ = rows[0]
        missing = [name for name in self._procedures if name not in there]
        return Installed(version, generation, oldest_client, routines.decode(), missing)

    def migrate(self) -> Op[list[str]]:
        if self.is_current((yield from self._installed_if_any())):
            return []
        [(locked,)] = yield self._sql.lock_migrations, (self.prefix,)
        if not locked:
            raise DatabaseBusy("another migration has been running for five minutes; try again")
        [(mode,)] = yield self._sql.sql_mode, ()
        yield self._sql.set_sql_mode, (SQL_MODE,)
        has = yield from self._installed_if_any()
        newer = has.generation > GENERATION  # another client was faster
        done = [] if newer or self.is_current(has) else (yield from self._apply(has))
        yield self._sql.set_sql_mode, (mode,)
        yield self._sql.unlock_migrations, (self.prefix,)
        return done

    def _installed_if_any(self) -> Op[Installed]:
        [(exists,)] = yield self._sql.has_schema, (f"{self.prefix}installed",)
        return (yield from self.installed()) if exists else Installed()

    def _apply(self, has: Installed) -> Op[list[str]]:
        missing = [migration for migration in MIGRATIONS if migration.number > has.version]
        for migration in missing:
            for statement in statements(self._script(migration)):
                yield statement, ()
        yield from self._replace_routines(has.missing)
        yield self._record(), ()
        repaired = bool(has.missing) and has.routines == self.routines
        return [*(migration.name for migration in missing), REPAIRED if repaired else ROUTINES]

    def _replace_routines(self, missing: Sequence[str]) -> Op[None]:
        """Create new procedures first, since others call them. Then replace only those that have
        changed: on MySQL a procedure is missing for a moment while it is replaced. One that is no
        longer in the files is only retired, since running calls still need it; the next
        replacement drops it."""
        rows = yield self._sql.routines, ()
        made = {name.decode(): (hash.decode(), retired) for name, hash, retired in rows}
        ours = self._procedures
        for name in sorted(ours, key=made.__contains__):
            if name in missing or made.get(name) != (ours[name].hash, 0):
                for step in ours[name].steps:
                    yield step, ()
        for name in made.keys() - ours.keys():
            _, retired = made[name]
            if retired:
                yield f"DROP PROCEDURE IF EXISTS {name}", ()
                yield self._sql.forget_routine, (name,)
            else:
                yield self._sql.retire_routine, (name,)
