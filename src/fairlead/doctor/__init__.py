"""What is wrong with this database, why it matters, and the command that mends it.

    import fairlead.doctor

    for finding in fairlead.doctor.examine(db):
        print(finding.level, finding.what, finding.fix)

Every check looks only; nothing here changes a row. What each database is asked stands in
``backends/<dialect>/doctor.sql``.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.doctor import mysql, postgres, queues, sqlite
from fairlead.doctor.patient import LEVELS, Command, Finding, Patient, bad, command_text
from fairlead.errors import DatabaseError
from fairlead.sync.database import Database

__all__ = ["LEVELS", "Finding", "examine"]

_DIALECTS = {"sqlite": sqlite.examine, "postgresql": postgres.examine, "mysql": mysql.examine}


def examine(
    db: Database,
    command: Command = command_text,
    *,
    schema: str = "fairlead",
    deep: bool = False,
) -> list[Finding]:
    """Everything that was looked at, in the order of looking. ``command`` makes the text of a
    ``fairlead`` command out of its words, with whatever options name this database."""
    return list(_examine(Patient(db, command, schema, deep)))


def _examine(patient: Patient) -> Iterator[Finding]:
    found = 0
    try:
        for finding in _look(patient):
            found += 1
            yield finding
    except DatabaseError as error:
        what = "the examination broke off: " if found else ""
        yield bad(
            "connection",
            f"{what}{error}",
            "nothing can be sent or received",
            "start or mend the database, or correct the URL",
        )


def _look(patient: Patient) -> Iterator[Finding]:
    installed = queues.installed(patient)
    yield from _DIALECTS[patient.dialect](patient)
    if not installed:
        yield queues.missing(patient)
        return
    yield from queues.clock(patient)
    finding = queues.schema(patient)
    yield finding
    if finding.level != "bad":
        yield from queues.examine(patient)
