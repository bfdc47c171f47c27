"""The schema on PostgreSQL. A whole migration is one transaction."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from fairturn.backends.catalogue import without_comments
from fairturn.backends.schema import (
    GENERATION,
    OLDEST_CLIENT,
    REPAIRED,
    ROUTINES,
    Installed,
    Migration,
    SchemaFit,
    routine_files,
    table_migrations,
)
from fairturn.backends.steps import BEGIN, Op

HERE = Path(__file__).parent
MIGRATIONS = table_migrations(HERE)

# A migration records itself, also if people run the SQL themselves.
_RECORD = "\nINSERT INTO fairturn.migration (version, name) VALUES ({0.number}, '{0.name}');\n"
_FUNCTION = re.compile(r"^CREATE OR REPLACE FUNCTION fairturn\.(\w+)(.*?)\bLANGUAGE\b", re.M | re.S)


@cache
def _signatures(texts: tuple[str, ...]) -> dict[str, str]:
    """By function name: the arguments and the result, as in the files."""
    found = (match for text in texts for match in _FUNCTION.finditer(text))
    return {match[1]: without_comments(match[2]) for match in found}


class Schema(SchemaFit):
    schema: str
    statements: dict[str, str]
    version = MIGRATIONS[-1].number
    routine_texts = routine_files(HERE)

    def named(self, text: str) -> str:
        """The files say `fairturn`; another schema's name is put in its place."""
        return text if self.schema == "fairturn" else re.sub(r"\bfairturn\b", self.schema, text)

    def migrations(self) -> list[tuple[str, str]]:
        return [*((m.name, self._script(m)) for m in MIGRATIONS), (ROUTINES, self._replacement())]

    def _script(self, migration: Migration) -> str:
        return self.named(migration.text + _RECORD.format(migration))

    def _replacement(self) -> str:
        """The script that replaces all functions."""
        text = (HERE / "schema" / "replace_routines.sql").read_text("utf-8")
        for name, value in {
            "signatures": json.dumps(_signatures(self.routine_texts), indent=0),
            "generation": str(GENERATION),
            "oldest_client": str(OLDEST_CLIENT),
            "hash": self.routines,
        }.items():
            text = text.replace(f":{name}", value)
        return self.named(text.replace("-- :routines", "\n".join(self.routine_texts)))

    def installed(self) -> Op[Installed]:
        names = ",".join(_signatures(self.routine_texts))
        [(version, generation, oldest_client, routines, missing)] = yield (
            self.statements["installed"],
            (f"{{{names}}}",),
        )
        missing = missing.split(",") if missing else ()
        return Installed(version, generation, oldest_client, routines, missing)

    def migrate(self) -> Op[list[str]]:
        yield BEGIN
        yield self.statements["lock_migrations"], (self.schema,)
        [(exists,)] = yield self.statements["schema_exists"], (self.schema,)
        has = (yield from self.installed()) if exists else Installed()
        if self.is_current(has):
            return []
        missing = [migration for migration in MIGRATIONS if migration.number > has.version]
        for migration in missing:
            yield self._script(migration), ()
        yield self._replacement(), ()
        repaired = bool(has.missing) and has.routines == self.routines
        return [*(migration.name for migration in missing), REPAIRED if repaired else ROUTINES]
