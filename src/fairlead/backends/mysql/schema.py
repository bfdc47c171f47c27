"""The migrations: numbered SQL files, runnable by the mariadb client too.

DDL commits by itself, so each statement can be run again and a file only counts as applied once all
of it is. Procedures keep the sql_mode they were made with, whatever a caller's session has.
"""

from __future__ import annotations

import re
from pathlib import Path

from fairlead.backends.base import Op
from fairlead.backends.catalogue import Catalogue
from fairlead.errors import DatabaseBusy, InvalidArgument, SchemaOutdated

HERE = Path(__file__).parent
CLIENT = 1  # this client's generation; a schema names the oldest it serves
SQL_MODE = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_NAME = re.compile(r"\bfairlead_")
_DELIMITER = re.compile(r"^DELIMITER[ \t]+(\S+)[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"\A(?:\s+|--[^\n]*(?:\n|\Z))+")


def check_prefix(prefix: str) -> str:
    if not _PREFIX.fullmatch(prefix):
        raise InvalidArgument(f"the prefix must match [a-z_][a-z0-9_]*, {prefix!r} does not")
    return prefix


def named(text: str, prefix: str) -> str:
    """The files say `fairlead_`; another prefix is put in its place."""
    return text if prefix == "fairlead_" else _NAME.sub(prefix, text)


def migrations(prefix: str) -> list[tuple[str, str]]:
    files = sorted((HERE / "schema").glob("*.sql"))
    return [
        (path.stem, named(path.read_text("utf-8") + _record(path.stem), prefix)) for path in files
    ]


def _record(name: str) -> str:
    """Every migration says that it was applied, also to people who run the SQL themselves. Again
    after a crash in the middle: the same row."""
    version = int(name.split("_", 1)[0])
    return (
        "\nREPLACE INTO fairlead_migration (version, name, applied_at, oldest_client) VALUES "
        f"({version}, '{name}', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), "
        f"{CLIENT});\n"
    )


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


def migrate(sql: Catalogue, prefix: str) -> Op[list[str]]:
    locked = yield sql.lock_migrations, (prefix,)
    if not locked[0][0]:
        raise DatabaseBusy("another migration has been running for five minutes; try again")
    [(mode,)] = yield sql.sql_mode, ()
    yield sql.set_sql_mode, (SQL_MODE,)
    exists = yield sql.has_migrations, (f"{prefix}migration",)
    done: set[int] = {row[0] for row in (yield sql.applied, ())} if exists[0][0] else set()
    applied: list[str] = []
    for name, script in migrations(prefix):
        version = int(name.split("_", 1)[0])
        if version in done:
            continue
        for statement in statements(script):
            yield statement, ()
        applied.append(name)
    yield sql.set_sql_mode, (mode,)
    yield sql.unlock_migrations, (prefix,)
    return applied


def check(sql: Catalogue, prefix: str) -> Op[None]:
    """Refuse a schema that does not serve this client."""
    rows = yield sql.applied, ()
    newest = int(migrations(prefix)[-1][0].split("_", 1)[0])
    if not rows or rows[-1][0] < newest:
        found = rows[-1][0] if rows else "none"
        raise SchemaOutdated(
            f"Fairlead's schema has migration {found} and this version needs {newest}: run "
            "`fairlead migrate`, or db.migrate()"
        )
    oldest = max(row[1] for row in rows)
    if oldest > CLIENT:
        raise SchemaOutdated(
            f"Fairlead's schema serves clients from generation {oldest} on and this one is "
            f"{CLIENT}: upgrade the fairlead package here"
        )
