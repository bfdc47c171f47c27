"""The SQL of the SQLite backend: reading its files, what is sent, and its plans and costs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fairturn.backends.catalogue import many_rows, parse, split_statements, without_comments
from fairturn.backends.sqlite.common import SQL
from fairturn.backends.verbs import ACK, Fail, Lease
from tests.unit.sqlite_desk import BACKEND, NOW, SECOND, Db, db, item, plan

__all__ = ["db"]  # fixture


# --- reading SQL files --------------------------------------------------------------------------

TRIGGER = """CREATE TRIGGER t AFTER INSERT ON a BEGIN
    UPDATE a SET x = CASE WHEN 1 THEN 2 END;
    DELETE FROM b;
END"""
PROCEDURE = """CREATE PROCEDURE p() BEGIN
    IF a THEN BEGIN x; END; END IF;
    CASE b WHEN 1 THEN y; END CASE;
    l: LOOP z; END LOOP;
END"""


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("", []),
        ("  ;; -- nothing\n;", []),
        ("SELECT 1; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';'; SELECT 'it''s; x'", ["SELECT ';'", "SELECT 'it''s; x'"]),
        ('SELECT "a;b", `c;d`; X', ['SELECT "a;b", `c;d`', "X"]),
        ("-- a; b\nSELECT 1 /* ; */ + 2;", ["SELECT 1 /* ; */ + 2"]),
        ("/* a; */ -- b;\n SELECT 1; -- done;", ["SELECT 1"]),
        ("SELECT $$a;b$$; SELECT $x$ $$;$$ ; $x$", ["SELECT $$a;b$$", "SELECT $x$ $$;$$ ; $x$"]),
        ("BEGIN; SELECT 1; END; SELECT 2", ["BEGIN", "SELECT 1", "END", "SELECT 2"]),
        (f"{TRIGGER}; SELECT 1", [TRIGGER, "SELECT 1"]),
        (f"{PROCEDURE}; SELECT 1", [PROCEDURE, "SELECT 1"]),
        ("CREATE TABLE begin_end (a); SELECT 1", ["CREATE TABLE begin_end (a)", "SELECT 1"]),
    ],
)
def test_a_script_is_split_into_its_statements(script: str, statements: list[str]) -> None:
    assert split_statements(script) == statements


def test_a_catalogue_is_rendered_once() -> None:
    text = """
    -- A file's own comment.
    -- fragment: pair
    a,
    b -- of each

    -- name: one(x, y)
    -- Why it is so.
    SELECT {pair}, ':x', y::int FROM t WHERE a = :y AND b = :x AND c = :y; -- end
    -- name: two()
    SELECT 2
    """
    text = re.sub("^    ", "", text, flags=re.MULTILINE)
    one = "SELECT a, b, ':x', y::int FROM t WHERE a = ?2 AND b = ?1 AND c = ?2"
    assert parse(text) == {"one": one, "two": "SELECT 2"}
    assert "$2 AND b = $1" in parse(text, "${}")["one"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("-- name: a(x)\nSELECT 1", "never used: .'x'"),
        ("-- name: a()\nSELECT :x", ":x is not among"),
        ("-- name: a()\nSELECT 1\n-- name: a()\nSELECT 2", "two statements"),
    ],
)
def test_a_broken_catalogue_is_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse(text)


def test_strings_keep_their_spaces_when_comments_go() -> None:
    assert without_comments("SELECT  'a  --b'  -- c\n , 1") == "SELECT 'a  --b' , 1"


def test_an_insert_of_many_rows_shares_its_first_parameters() -> None:
    one = "INSERT INTO t (a, b, c) VALUES (?1, ?2, ?3) RETURNING id"
    many = "INSERT INTO t (a, b, c) VALUES (?1, ?2, ?3), (?1, ?4, ?5) RETURNING id"
    assert many_rows(one, 2, shared=1) == many


def test_an_unknown_statement_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no statement is called 'nonsense'"):
        _ = SQL.nonsense


# --- the catalogue ------------------------------------------------------------------------------


def test_every_statement_is_used_and_can_be_prepared(db: Db) -> None:
    package = Path(__import__("fairturn.backends.sqlite", fromlist=["x"]).__file__).parent
    code = "".join(file.read_text() for file in package.rglob("*.py"))
    for name, text in SQL.statements.items():
        assert re.search(rf"SQL\.{name}\b", code), f"{name} is never used"
        numbers = [int(n) for n in re.findall(r"\?(\d+)", text)]
        db.driver.execute(f"EXPLAIN {text}", [None] * max(numbers, default=0))


def test_what_writes_starts_with_a_verb_python_knows() -> None:
    # sqlite3 opens your transaction for these alone: a WITH … UPDATE would commit by itself.
    for name, text in SQL.statements.items():
        writes = re.search(r"\b(INSERT INTO|UPDATE \w+ SET|DELETE FROM)\b", text)
        if writes:
            assert text.startswith(("INSERT", "UPDATE", "DELETE")), name


def test_nothing_outside_the_catalogue_is_sent(db: Db) -> None:
    allowed = BACKEND.statements() | {"BEGIN IMMEDIATE", "BEGIN", "COMMIT", "ROLLBACK"}
    db.send(*(item(f"c{i % 3}", key=f"k{i}", version=i % 2) for i in range(100)))
    rows = db.receive(7, types=None).rows
    db.do(BACKEND.apply_verb("q", Fail("e"), [Lease(rows[0].id, 1)], True, NOW))
    db.do(BACKEND.apply_verb("q", ACK, [Lease(row.id, 1) for row in rows[1:]], True, NOW))
    db.do(BACKEND.stats(None, NOW))
    db.do(BACKEND.maintain(10, NOW))
    assert set(db.driver.texts) <= allowed


# --- plans and costs ----------------------------------------------------------------------------

HOT = {
    "walk": "fairturn_ready",
    "walk_filtered": "fairturn_ready",
    "take": "fairturn_ready",
    "take_each": "fairturn_ready",
    "take_filtered": "fairturn_ready",
    "run": "fairturn_ready",
    "versions": "fairturn_ready",
    "promote": "fairturn_scheduled",
    "promote_early": "fairturn_scheduled",
    "lapsed": "fairturn_leased",
    "expire": "fairturn_expiry",
    "begun_first": "fairturn_begun",
    "gates": "fairturn_busy",
    "holders": "fairturn_key",
    "oldest_dead": "fairturn_finished",
    "forget_done": "fairturn_finished",
    "forget_dead": "fairturn_finished",
    "stats_due": "fairturn_scheduled",
}
BY_ID = ("lease", "ack", "valid_leases", "delete", "complete", "defer", "retry", "bury", "release")


@pytest.mark.parametrize("name", [*HOT, "open_queue", *BY_ID])
def test_hot_statements_scan_no_table(db: Db, name: str) -> None:
    found = plan(db, name)
    assert not re.search(r"SCAN (fairturn_message|m|n|h)\b(?! USING)", found), found
    if name in HOT:
        assert HOT[name] in found, found
    if name in BY_ID:
        assert "INTEGER PRIMARY KEY (rowid=?)" in found, found


@pytest.mark.parametrize(
    "name", ["walk", "take", "promote", "promote_early", "lapsed", "expire", "oldest_dead"]
)
def test_no_hot_statement_sorts_the_backlog(db: Db, name: str) -> None:
    assert "TEMP B-TREE" not in plan(db, name)


def test_counts_come_from_indexes_alone(db: Db) -> None:
    assert "COVERING INDEX fairturn_ready" in plan(db, "stats_ready")
    assert "COVERING INDEX fairturn_busy" in plan(db, "stats_busy")
    assert "COVERING INDEX fairturn_busy" in plan(db, "gates")


def cost_of_receive(channels: int, backlog: int, future: int, **columns: Any) -> int:
    db = Db(**columns)
    db.send(*(item(f"c{i % channels}") for i in range(backlog)))
    db.send(*(item(f"c{i % channels}", delay_us=SECOND) for i in range(future)))
    db.receive(10)
    db.driver.steps = 0
    assert len(db.receive(10).rows) == 10
    steps = db.driver.steps
    db.driver.close()
    return steps


@pytest.mark.parametrize("columns", [{}, {"max_concurrency": 5}, {"weight": 3}])
def test_the_cost_of_a_receive_does_not_grow(columns: dict[str, int]) -> None:
    # Counted in instructions of SQLite's virtual machine, which no noise can change.
    base = cost_of_receive(100, 300, 0, **columns)
    for channels, backlog, future in ((100, 6000, 0), (100, 300, 6000), (3000, 6000, 0)):
        assert cost_of_receive(channels, backlog, future, **columns) < base * 1.2


def test_fifty_times_the_messages_cost_fifty_times_as_much() -> None:
    def steps(number: int) -> int:
        db = Db()
        db.driver.steps = 0
        assert len(db.send(*(item(body=b"x", key=f"k{i}") for i in range(number)))) == number
        taken = db.driver.steps
        db.driver.close()
        return taken

    assert steps(10_000) < steps(200) * 50 * 1.2
