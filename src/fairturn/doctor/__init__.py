"""Examines a database: what is wrong, why it matters, and the command that repairs it.

    import fairturn.doctor

    for finding in fairturn.doctor.examine(db):
        print(finding.level, finding.what, finding.fix)

The checks only read; nothing here changes a row. Their queries are in
``backends/<dialect>/doctor.sql``.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairturn.core.errors import DatabaseError
from fairturn.doctor import mysql, postgres, queues, sqlite
from fairturn.doctor.examination import LEVELS, Command, Examination, Finding, bad, command_text
from fairturn.sync.database import Database

__all__ = ["LEVELS", "Finding", "examine"]

_DIALECTS = {"sqlite": sqlite.examine, "postgresql": postgres.examine, "mysql": mysql.examine}


def examine(
    db: Database,
    command: Command = command_text,
    *,
    schema: str = "fairturn",
    deep: bool = False,
) -> list[Finding]:
    """Return all findings, good and bad, in the order of the checks. ``command`` turns the words of
    a ``fairturn`` command into text, with the options that name this database."""
    return list(_examine(Examination(db, command, schema, deep)))


def _examine(examination: Examination) -> Iterator[Finding]:
    found = 0
    try:
        for finding in _checks(examination):
            found += 1
            yield finding
    except DatabaseError as error:
        what = "the examination was interrupted: " if found else ""
        yield bad(
            "connection",
            f"{what}{error}",
            "nothing can be sent or received",
            "start or repair the database, or correct the URL",
        )


def _checks(examination: Examination) -> Iterator[Finding]:
    installed = queues.installed(examination)
    yield from _DIALECTS[examination.dialect](examination)
    if not installed:
        yield queues.missing(examination)
        return
    finding = queues.schema(examination)
    yield finding
    if finding.level != "bad":
        yield from queues.clock(examination)
        yield from queues.examine(examination)
