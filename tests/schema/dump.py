"""What the migrations make of an empty database, as text: one line for each fact.

``python -m tests.schema.dump`` writes the text of each engine anew, beside this file, and
``test_dump.py`` compares. So a review sees what a change does to the database. Bodies of routines
and texts of views are left out: they are in the tree. What differs from one server version to the
next (display widths, the wording of catalogs) is left out, too.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fairturn
from tests import servers

HERE = Path(__file__).parent
# They say what was migrated when, and by whom.
RECORDS = {"migration", "installed", "routine", "event_server"}

Ask = Callable[..., list[dict[str, Any]]]


def block(title: str, lines: Iterator[str]) -> Iterator[str]:
    yield title
    yield from (f"  {line}" for line in lines)
    yield ""


def words(*parts: str | None) -> str:
    return " ".join(part for part in parts if part)


# --- PostgreSQL ---------------------------------------------------------------------------------

_RELATIONS = """
SELECT c.oid, c.relname AS name, c.relkind::text AS kind, c.relpersistence::text AS persistence,
  (SELECT string_agg(o, ', ' ORDER BY o) FROM unnest(c.reloptions) o) AS options
FROM pg_class c
WHERE c.relnamespace = 'fairturn'::regnamespace AND c.relkind IN ('r', 'v', 'c', 'm', 'p', 'f')
ORDER BY c.relkind = 'c', c.relkind = 'v', c.relname
"""
_COLUMNS = """
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS filled,
  pg_get_expr(d.adbin, d.adrelid) AS initial, a.attidentity::text AS identity,
  a.attgenerated::text AS generated,
  (SELECT l.collname FROM pg_collation l JOIN pg_type t ON t.oid = a.atttypid
    WHERE l.oid = a.attcollation AND l.oid <> t.typcollation) AS collation
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
# (From PostgreSQL 18 on NOT NULL is a constraint as well; the columns say it already.)
_CONSTRAINTS = """
SELECT conname AS name, pg_get_constraintdef(oid) AS definition FROM pg_constraint
WHERE conrelid = %s AND contype <> 'n' ORDER BY conname
"""
_INDEXES = """
SELECT pg_get_indexdef(i.indexrelid) AS definition,
  (SELECT string_agg(o, ', ' ORDER BY o) FROM unnest(c.reloptions) o) AS options
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = %s ORDER BY c.relname
"""
_TRIGGERS = """
SELECT pg_get_triggerdef(oid) AS definition FROM pg_trigger
WHERE tgrelid = %s AND NOT tgisinternal ORDER BY tgname
"""
_SEQUENCES = """
SELECT s.* FROM pg_sequences s WHERE s.schemaname = 'fairturn' ORDER BY s.sequencename
"""
_FUNCTIONS = """
SELECT p.proname AS name, p.prokind::text AS kind, pg_get_function_arguments(p.oid) AS arguments,
  pg_get_function_result(p.oid) AS result, l.lanname AS language, p.provolatile::text AS volatile,
  p.proparallel::text AS parallel, p.proisstrict AS strict, p.prosecdef AS definer,
  p.proleakproof AS leakproof, p.procost AS cost, p.prorows AS rows,
  (SELECT string_agg(o, ', ' ORDER BY o) FROM unnest(p.proconfig) o) AS settings
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = 'fairturn'::regnamespace ORDER BY p.proname, arguments
"""
_KINDS = {"r": "table", "p": "table", "f": "table", "v": "view", "m": "view", "c": "type"}
_VOLATILE = {"i": "immutable", "s": "stable", "v": ""}
_PARALLEL = {"s": "parallel safe", "r": "parallel restricted", "u": ""}
_PERSISTENCE = {"p": "", "u": "unlogged", "t": "temporary"}


def postgresql(url: str) -> Iterator[str]:
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(url, row_factory=dict_row) as connection:
        connection.execute("SET search_path = pg_catalog")  # catalogs then name every schema

        def ask(text: str, *params: Any) -> list[dict[str, Any]]:
            return connection.execute(text, params or None).fetchall()  # type: ignore

        for row in ask(_SEQUENCES):
            yield from block(f"sequence {row['sequencename']}", _postgresql_sequence(row))
        for row in ask(_RELATIONS):
            title = words(_PERSISTENCE[row["persistence"]], _KINDS[row["kind"]], row["name"])
            yield from block(title, _postgresql_relation(ask, row))
        for row in ask(_FUNCTIONS):
            yield from block(f"function {row['name']}", _postgresql_function(row))


def _postgresql_sequence(row: dict[str, Any]) -> Iterator[str]:
    yield f"{row['data_type']} from {row['start_value']} by {row['increment_by']}"
    yield f"{row['min_value']} to {row['max_value']}, cache {row['cache_size']}" + (
        ", cycle" if row["cycle"] else ""
    )


def _postgresql_relation(ask: Ask, relation: dict[str, Any]) -> Iterator[str]:
    for row in ask(_COLUMNS, relation["oid"]):
        yield words(
            f"column {row['name']} {row['type']}",
            f'collate "{row["collation"]}"' if row["collation"] else None,
            "not null" if row["filled"] else None,
            {"a": "identity always", "d": "identity by default"}.get(row["identity"]),
            "generated as" if row["generated"] else "default" if row["initial"] else None,
            row["initial"],
        )
    for row in ask(_CONSTRAINTS, relation["oid"]):
        yield f"constraint {row['name']} {row['definition']}"
    for row in ask(_INDEXES, relation["oid"]):
        yield words(row["definition"], f"with ({row['options']})" if row["options"] else None)
    for row in ask(_TRIGGERS, relation["oid"]):
        yield row["definition"]
    if relation["options"]:
        yield f"with {relation['options']}"
    if relation["kind"] == "r" and relation["name"] not in RECORDS:
        for row in ask(f"SELECT * FROM fairturn.{relation['name']}"):
            yield f"row {tuple(row.values())}"


def _postgresql_function(row: dict[str, Any]) -> Iterator[str]:
    for argument in re.split(r", (?=(?:OUT |INOUT |VARIADIC )?\w+ )", row["arguments"]):
        if argument:
            yield argument
    yield f"returns {row['result']}"
    common = row["cost"] == (1 if row["language"] in ("c", "internal") else 100)
    yield words(
        f"language {row['language']}",
        _VOLATILE[row["volatile"]],
        _PARALLEL[row["parallel"]],
        "strict" if row["strict"] else None,
        "security definer" if row["definer"] else None,
        "leakproof" if row["leakproof"] else None,
        None if common else f"cost {row['cost']:g}",
        None if row["rows"] in (0, 1000) else f"rows {row['rows']:g}",
        {"p": "procedure", "a": "aggregate", "w": "window"}.get(row["kind"]),
    )
    if row["settings"]:
        yield f"set {row['settings']}"


# --- MySQL and MariaDB --------------------------------------------------------------------------

_WIDTH = re.compile(r"\b((?:tiny|small|medium|big)?int)\(\d+\)")


def mysql(url: str) -> Iterator[str]:
    from urllib.parse import urlsplit

    import pymysql
    from pymysql.cursors import DictCursor

    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        database=parts.path[1:],
        cursorclass=DictCursor,
    )

    def ask(text: str, *params: Any) -> list[dict[str, Any]]:
        with connection.cursor() as cursor:
            cursor.execute(text, params)
            return list(cursor.fetchall())

    mine = "TABLE_SCHEMA = DATABASE()"
    try:
        for row in ask(f"SELECT * FROM information_schema.TABLES WHERE {mine} ORDER BY TABLE_NAME"):
            kind = "view" if row["TABLE_TYPE"] == "VIEW" else "table"
            yield from block(f"{kind} {row['TABLE_NAME']}", _mysql_table(ask, row))
        for row in ask(
            "SELECT * FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE() "
            "ORDER BY TRIGGER_NAME"
        ):
            when = f"{row['ACTION_TIMING']} {row['EVENT_MANIPULATION']}".lower()
            yield from block(
                f"trigger {row['TRIGGER_NAME']}", iter([f"{when} {row['EVENT_OBJECT_TABLE']}"])
            )
        for row in ask(
            "SELECT * FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = DATABASE() "
            "ORDER BY ROUTINE_NAME"
        ):
            title = f"{row['ROUTINE_TYPE'].lower()} {row['ROUTINE_NAME']}"
            yield from block(title, _mysql_routine(ask, row))
    finally:
        connection.close()


def _mysql_type(text: str, charset: str | None) -> str:
    # MySQL 8 shows no display widths, and what nobody chose follows the database.
    kind = _WIDTH.sub(r"\1", text.lower())
    return f"{kind} character set {charset}" if charset and charset != "utf8mb4" else kind


def _mysql_table(ask: Ask, table: dict[str, Any]) -> Iterator[str]:
    name = table["TABLE_NAME"]
    where = "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s"
    for row in ask(
        f"SELECT * FROM information_schema.COLUMNS {where} ORDER BY ORDINAL_POSITION", name
    ):
        default = row["COLUMN_DEFAULT"]
        yield words(
            f"column {row['COLUMN_NAME']}",
            _mysql_type(row["COLUMN_TYPE"], row["CHARACTER_SET_NAME"]),
            "not null" if row["IS_NULLABLE"] == "NO" else None,
            None if default in (None, "NULL") else f"default {default}",
            row["EXTRA"].lower(),
        )
    for row in ask(
        "SELECT INDEX_NAME, NON_UNIQUE, INDEX_TYPE, GROUP_CONCAT(COLUMN_NAME, "
        "IF(SUB_PART IS NULL, '', CONCAT('(', SUB_PART, ')')), IF(COLLATION = 'D', ' desc', '') "
        "ORDER BY SEQ_IN_INDEX SEPARATOR ', ') AS parts "
        f"FROM information_schema.STATISTICS {where} "
        "GROUP BY INDEX_NAME, NON_UNIQUE, INDEX_TYPE ORDER BY INDEX_NAME",
        name,
    ):
        unique = None if row["NON_UNIQUE"] else "unique"
        other = None if row["INDEX_TYPE"] == "BTREE" else row["INDEX_TYPE"].lower()
        yield words(unique, other, f"index {row['INDEX_NAME']} ({row['parts']})")
    for row in ask(
        f"SELECT * FROM information_schema.TABLE_CONSTRAINTS {where} "
        "AND CONSTRAINT_TYPE NOT IN ('PRIMARY KEY', 'UNIQUE') ORDER BY CONSTRAINT_NAME",
        name,
    ):
        yield f"constraint {row['CONSTRAINT_NAME']} {row['CONSTRAINT_TYPE'].lower()}"
    if table["TABLE_TYPE"] == "VIEW":
        return
    yield words(
        f"engine {table['ENGINE']}, row format {table['ROW_FORMAT'].lower()}",
        table["CREATE_OPTIONS"].lower(),
    )
    if name.removeprefix("fairturn_") not in RECORDS:
        for row in ask(f"SELECT * FROM {name}"):
            yield f"row {tuple(row.values())}"


def _mysql_routine(ask: Ask, routine: dict[str, Any]) -> Iterator[str]:
    for row in ask(
        "SELECT * FROM information_schema.PARAMETERS WHERE SPECIFIC_SCHEMA = DATABASE() "
        "AND SPECIFIC_NAME = %s ORDER BY ORDINAL_POSITION",
        routine["SPECIFIC_NAME"],
    ):
        kind = _mysql_type(row["DTD_IDENTIFIER"], row["CHARACTER_SET_NAME"])
        if row["ORDINAL_POSITION"] == 0:
            yield f"returns {kind}"
        else:
            yield f"{row['PARAMETER_MODE'].lower()} {row['PARAMETER_NAME']} {kind}"
    yield words(
        f"security {routine['SECURITY_TYPE'].lower()}, {routine['SQL_DATA_ACCESS'].lower()},",
        "deterministic," if routine["IS_DETERMINISTIC"] == "YES" else None,
        f"sql_mode {routine['SQL_MODE']}",
    )


# --- SQLite -------------------------------------------------------------------------------------


def sqlite(path: str) -> Iterator[str]:
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row

    def ask(text: str, *params: Any) -> list[dict[str, Any]]:
        return [dict(row) for row in connection.execute(text, params)]

    try:
        for row in ask(
            "SELECT type, name, sql FROM sqlite_schema WHERE type <> 'index' "
            "AND name NOT LIKE 'sqlite_%' ORDER BY type, name"
        ):
            yield from block(f"{row['type']} {row['name']}", _sqlite_relation(ask, row))
    finally:
        connection.close()


def _sqlite_relation(ask: Ask, relation: dict[str, Any]) -> Iterator[str]:
    name = relation["name"]
    if relation["type"] == "trigger":
        yield re.sub(r"\s+", " ", relation["sql"]).split(" BEGIN ")[0]
        return
    for row in ask("SELECT * FROM pragma_table_xinfo(?)", name):
        yield words(
            f"column {row['name']} {row['type'].lower()}",
            "not null" if row["notnull"] else None,
            None if row["dflt_value"] is None else f"default {row['dflt_value']}",
        )
    if relation["type"] == "view":
        return
    key = [
        row["name"]
        for row in ask("SELECT * FROM pragma_table_xinfo(?) WHERE pk > 0 ORDER BY pk", name)
    ]
    definition = re.sub(r"--[^\n]*", "", relation["sql"])
    yield words(
        f"primary key ({', '.join(key)})",
        "autoincrement" if "AUTOINCREMENT" in definition.upper() else None,
        "without rowid" if "WITHOUT ROWID" in definition.upper() else None,
    )
    for check in re.findall(r"CHECK\s*\((?:[^()]|\([^()]*\))*\)", definition):
        yield re.sub(r"\s+", " ", check)
    for row in ask("SELECT * FROM pragma_foreign_key_list(?)", name):
        yield f"foreign key {row['from']} references {row['table']} {row['to']}"
    for row in ask(
        "SELECT l.name, l.\"unique\", s.sql, (SELECT group_concat(i.name, ', ') "
        "FROM pragma_index_info(l.name) i) AS columns "
        "FROM pragma_index_list(?) l JOIN sqlite_schema s ON s.name = l.name "
        "WHERE l.origin <> 'pk' ORDER BY l.name",
        name,
    ):
        yield re.sub(r"\s+", " ", row["sql"]) if row["sql"] else f"unique ({row['columns']})"
    if name.removeprefix("fairturn_") not in RECORDS:
        for row in ask(f"SELECT * FROM {name}"):
            yield f"row {tuple(row.values())}"


# --- all ----------------------------------------------------------------------------------------

ENGINES: dict[str, Callable[[str], Iterator[str]]] = {
    "postgresql": postgresql,
    "mysql": mysql,
    "sqlite": sqlite,
}


def dump(engine: str, url: str) -> str:
    """The schema that migrate makes in this empty database."""
    with fairturn.connect(url) as db:
        db.migrate()
        db.queues()
    place = url.removeprefix("sqlite:///") if engine == "sqlite" else url
    return "\n".join(ENGINES[engine](place)).rstrip() + "\n"


def committed(engine: str) -> Path:
    return HERE / f"{engine}.txt"


def main() -> None:
    import tempfile

    with (
        tempfile.TemporaryDirectory() as directory,
        servers.Postgres() as postgres,
        servers.Mysql() as mariadb,
    ):
        urls = {
            "postgresql": postgres.create_database("dump"),
            "mysql": mariadb.create_database("dump"),
            "sqlite": f"sqlite:///{directory}/dump.db",
        }
        for engine, url in urls.items():
            committed(engine).write_text(dump(engine, url), "utf-8")
            print(f"wrote {committed(engine).name}")


if __name__ == "__main__":
    main()
