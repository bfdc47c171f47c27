"""The schema that Fairturn needs, the schema that a database has, and whether they fit.

Tables are history: ``schema/tables/NNN_name.sql``, each applied once and never changed after a
release. Routines (functions and procedures) are current: ``schema/routines/*.sql`` hold their
present texts, and ``migrate`` replaces them if the database has another hash of the texts.
docs/decisions/007-routines-and-upgrades.md says how older clients keep working during an upgrade.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from fairturn.core.errors import SchemaOutdated

if TYPE_CHECKING:
    from fairturn.backends.steps import Op

GENERATION = 1  # each release that changes a table or a routine has the next number
OLDEST_CLIENT = 1  # the schema of this release serves clients of this generation and later
ROUTINES = "routines"  # their name in the result of migrate
REPAIRED = "routines (repaired)"


class Migration(NamedTuple):
    """A file of schema/tables."""

    number: int
    name: str
    text: str


class Installed(NamedTuple):
    """The schema that a database has."""

    version: int = 0  # the number of the newest migration that was applied
    generation: int = 0  # of the Fairturn that migrated last; 0: no migration is complete
    oldest_client: int = 0
    routines: str = ""  # the hash of their texts
    missing: Sequence[str] = ()  # routines of this client that the database does not have


class Fit(NamedTuple):
    """Whether a database's schema fits this client, and what to do if not."""

    what: str
    remedy: Literal["", "migrate", "upgrade"] = ""
    newer: bool = False  # the schema is newer than this client, and serves it


def table_migrations(backend: Path) -> list[Migration]:
    """The files of a backend's schema/tables, in order."""
    files = sorted((backend / "schema" / "tables").glob("*.sql"))
    return [
        Migration(int(file.stem.split("_")[0]), file.stem, file.read_text("utf-8"))
        for file in files
    ]


def routine_files(backend: Path) -> tuple[str, ...]:
    """The texts of a backend's schema/routines."""
    files = sorted((backend / "schema" / "routines").glob("*.sql"))
    return tuple(file.read_text("utf-8") for file in files)


@cache
def hash_of(texts: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def fit(has: Installed, version: int, routines: str) -> Fit:
    """Compare what a database has with what this client needs: tables up to this migration, and
    routines of this hash."""
    if has.oldest_client > GENERATION:
        return Fit(
            f"this database serves Fairturn clients of generation {has.oldest_client} and later, "
            f"and this one is of generation {GENERATION}",
            "upgrade",
        )
    if has.generation > GENERATION:
        return Fit(
            f"the schema is of generation {has.generation}, newer than this Fairturn "
            f"({GENERATION}), and serves clients of generation {has.oldest_client} and later",
            newer=True,
        )
    if has.version < version:
        return Fit(
            f"Fairturn's tables are at migration {has.version} here, and this Fairturn needs "
            f"{version}",
            "migrate",
        )
    if has.generation == 0:
        return Fit("a migration of Fairturn's schema here has not come to its end", "migrate")
    if has.routines != routines:
        return Fit("Fairturn's routines here are not the ones of this Fairturn", "migrate")
    if has.missing:
        some = ", ".join(has.missing[:3]) + (", …" if len(has.missing) > 3 else "")
        return Fit(
            f"{len(has.missing)} of Fairturn's routines are missing here, as in a dump that was "
            f"restored without them, or this user may not execute them ({some})",
            "migrate",
        )
    return Fit(f"tables and routines are the ones of this Fairturn (migration {version})")


class SchemaFit:
    """The part of a backend that compares its schema with the one that a database has."""

    version: int  # the number of the newest table migration
    routine_texts: tuple[str, ...] = ()  # the files of schema/routines

    @property
    def routines(self) -> str:
        return hash_of(self.routine_texts) if self.routine_texts else ""

    def installed(self) -> Op[Installed]:
        raise NotImplementedError

    def fit(self) -> Op[Fit]:
        return fit((yield from self.installed()), self.version, self.routines)

    def check(self) -> Op[None]:
        _refuse((yield from self.fit()))

    def is_current(self, has: Installed) -> bool:
        """Is there nothing to migrate? Raises if the schema no longer serves this client."""
        found = fit(has, self.version, self.routines)
        if found.remedy == "upgrade":
            _refuse(found)
        return not found.remedy and has.generation >= GENERATION


def _refuse(found: Fit) -> None:
    if found.remedy:
        raise SchemaOutdated(found.what, found.remedy)
