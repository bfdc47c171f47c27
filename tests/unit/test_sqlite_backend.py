"""The SQLite backend itself: its SQL files, its driver, its plans and its costs.

What the operations mean is tested through the public API (tests/conformance) and against the model
(tests/model); here is what only SQLite has.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from fairlead import limits
from fairlead.backends.base import BEGIN, CONFLICT, FULL, Memory, Receive
from fairlead.backends.catalogue import many_rows, parse, split_statements, without_comments
from fairlead.backends.sqlite import SqliteBackend
from fairlead.backends.sqlite.backend import CLIENT
from fairlead.backends.sqlite.common import SQL
from fairlead.backends.sqlite.gates import rate
from fairlead.drivers.sqlite import SqliteDriver, connect, register
from fairlead.errors import (
    DatabaseUnavailable,
    InvalidArgument,
    LeaseLost,
    QueueNotFound,
    SchemaOutdated,
    UnsafeTransaction,
)
from fairlead.run import run

BACKEND = SqliteBackend()
NOW = 1_700_000_000_000_000
SECOND = 1_000_000


class Recorder(SqliteDriver):
    """A driver that remembers what it was asked, and what its statements cost."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.texts: list[str] = []
        self.steps = 0
        connection.set_progress_handler(self._step, 1)

    def _step(self) -> int:
        self.steps += 1
        return 0

    def execute(self, text: str, params: Any) -> Any:
        self.texts.append(text)
        return super().execute(text, params)


class Db:
    """One database with a queue `q` at a fixed time."""

    def __init__(self, **columns: Any) -> None:
        self.driver = Recorder(connect(":memory:"))
        self.memory = Memory()
        self.do(BACKEND.migrate())
        self.do(BACKEND.queue_create("q", columns, NOW))

    def do(self, operation: Any) -> Any:
        return run(operation, self.driver, True)

    def send(self, *items: tuple[Any, ...], now: int | None = NOW) -> list[tuple[int, str]]:
        return self.do(BACKEND.send("q", items, now))

    def receive(self, n: int, now: int | None = NOW, **args: Any) -> Any:
        return self.do(BACKEND.receive("q", Receive(n, **args), self.memory, now))

    def channels_of(self, n: int, **args: Any) -> list[str]:
        return [row[1] for row in self.receive(n, **args).rows]

    def policy(self, channel: str, **columns: Any) -> None:
        defaults = {"burst": 1, "weight": 1, "paused": 0, "ordered": 0}
        names = "max_concurrency rate_count rate_period_us burst weight paused ordered max_size"
        row = tuple({**defaults, **columns}.get(name) for name in names.split())
        self.do(BACKEND.policy_set("q", channel, row, NOW))


def item(channel: str = "", body: bytes = b"", **k: Any) -> tuple[Any, ...]:
    return (
        channel,
        body,
        0,
        -k.get("priority", 0),
        k.get("due"),
        k.get("delay", 0),
        k.get("key"),
        k.get("on_conflict", "e"),
        k.get("version", 0),
        k.get("type"),
        k.get("headers"),
        k.get("lease"),
        k.get("max_attempts"),
        k.get("expires"),
        k.get("max_wait"),
        k.get("group"),
        None,
        None,
    )


@pytest.fixture
def db() -> Any:
    db = Db()
    yield db
    db.driver.close()


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
    package = Path(__import__("fairlead.backends.sqlite", fromlist=["x"]).__file__).parent
    code = "".join(file.read_text() for file in package.glob("*.py"))
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
    db.do(BACKEND.fail("q", [(rows[0][0], 1)], "e", None, None, None, True, NOW))
    db.do(BACKEND.ack("q", [(row[0], 1) for row in rows[1:]], True, NOW))
    db.do(BACKEND.stats(None, NOW))
    db.do(BACKEND.maintain(10, NOW))
    assert set(db.driver.texts) <= allowed


# --- plans and costs ----------------------------------------------------------------------------

HOT = {
    "walk": "fairlead_ready",
    "walk_filtered": "fairlead_ready",
    "take": "fairlead_ready",
    "take_each": "fairlead_ready",
    "take_filtered": "fairlead_ready",
    "run": "fairlead_ready",
    "versions": "fairlead_ready",
    "promote": "fairlead_scheduled",
    "promote_early": "fairlead_scheduled",
    "lapsed": "fairlead_leased",
    "expire": "fairlead_expiry",
    "begun_first": "fairlead_begun",
    "gates": "fairlead_busy",
    "holders": "fairlead_key",
    "oldest_dead": "fairlead_finished",
    "forget_done": "fairlead_finished",
    "forget_dead": "fairlead_finished",
    "stats_due": "fairlead_scheduled",
}
BY_ID = ("lease", "ack", "valid_leases", "delete", "complete", "defer", "retry", "bury", "release")


def plan(db: Db, name: str) -> str:
    text = SQL.statements[name]
    numbers = [int(n) for n in re.findall(r"\?(\d+)", text)]
    rows = db.driver.execute(f"EXPLAIN QUERY PLAN {text}", [None] * max(numbers, default=0))
    return "\n".join(row[3] for row in rows)


@pytest.mark.parametrize("name", [*HOT, "open_queue", *BY_ID])
def test_hot_statements_scan_no_table(db: Db, name: str) -> None:
    found = plan(db, name)
    assert not re.search(r"SCAN (fairlead_message|m|n|h)\b(?! USING)", found), found
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
    assert "COVERING INDEX fairlead_ready" in plan(db, "stats_ready")
    assert "COVERING INDEX fairlead_busy" in plan(db, "stats_busy")
    assert "COVERING INDEX fairlead_busy" in plan(db, "gates")


def cost_of_receive(channels: int, backlog: int, future: int, **columns: Any) -> int:
    db = Db(**columns)
    db.send(*(item(f"c{i % channels}") for i in range(backlog)))
    db.send(*(item(f"c{i % channels}", delay=SECOND) for i in range(future)))
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


# --- sending ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 7, 8, 9, 63, 64, 65, 200])
def test_ids_ascend_in_the_order_of_the_items(db: Db, number: int) -> None:
    sent = db.send(*(item(body=str(i).encode()) for i in range(number)))
    ids = [id for id, _ in sent]
    assert ids == sorted(set(ids))
    assert [row[2] for row in db.receive(500).rows] == [str(i).encode() for i in range(number)]


@pytest.mark.parametrize(
    "name", ["a", "A", "a ", "á", "a\u0301", "\U0001f600", "\x01\x1f\x7f\"\\'"]
)
def test_names_survive_byte_for_byte(db: Db, name: str) -> None:
    body = bytes(range(256))
    db.policy(name, weight=2)
    [(id, _)] = db.send(item(name, body, key=name, type=name))
    assert db.send(item(name, body, key=name)) == [(id, CONFLICT)]
    db.send(item(name), item(name + "x"))
    rows = db.receive(2, version=0).rows
    assert [row[1] for row in rows] == [name, name]
    assert (rows[0][2], rows[0][4], rows[0][6]) == (body, name, name)
    assert db.receive(5, types=[name]).rows == []


def test_nothing_is_sent_when_one_channel_is_full(db: Db) -> None:
    db.policy("full", max_size=2)
    db.send(item("full"), item("full", delay=SECOND))
    outcomes = db.send(item("free"), item("full"))
    assert [outcome for _, outcome in outcomes] == ["s", FULL]
    assert len(db.do(BACKEND.peek("q", 10, None, None, 0, NOW))) == 2


# --- receiving ----------------------------------------------------------------------------------


def test_a_turn_is_not_cut_short_by_a_channel_that_had_less(db: Db) -> None:
    # Found by the model: `a` was looked up for what was left if the one before gave its all.
    db.do(BACKEND.queue_set("q", {"weight": 2}, NOW))
    db.send(item(""), item("a"), item("a"), item("a"), item("b"))
    assert db.channels_of(3) == ["", "a", "a"]
    assert (db.memory.channel, db.memory.credit) == ("a", 0)


def test_many_different_weights(db: Db) -> None:
    for i in range(1, 10):
        db.policy(f"c{i}", weight=i)
    db.send(*(item(f"c{i}") for i in range(1, 10) for _ in range(40)))
    once = [f"c{i}" for i in range(1, 10) for _ in range(i)]
    assert db.channels_of(100) == (once * 3)[:100]
    # Twice 45, then 1 + 2 + 3 + 4.
    assert (db.memory.channel, db.memory.credit) == ("c4", 0)


def test_versions_are_merged_and_ordered_within_a_channel(db: Db) -> None:
    db.send(*(item("a", bytes([i]), version=i % 3, priority=i % 2) for i in range(12)))
    order = [bytes([i]) for i in (1, 3, 5, 7, 9, 11, 0, 2, 4, 6, 8, 10)]
    assert [row[2] for row in db.receive(5).rows] == order[:5]
    assert [row[2] for row in db.receive(12).rows] == order[5:]


def test_a_call_walks_past_a_bounded_number_of_closed_channels(db: Db) -> None:
    closed = limits.SCAN * 2 + 10
    for i in range(closed):
        db.policy(f"c{i:04}", paused=1)
    db.send(*(item(f"c{i:04}") for i in range(closed)), item("open"))
    found = db.receive(1)
    assert (found.rows, found.retry_after_us) == ([], 0)
    tries = 1
    while not (found := db.receive(1)).rows:
        assert found.retry_after_us == 0
        tries += 1
    assert found.rows[0][1] == "open"
    assert tries <= closed // limits.SCAN + 1
    # Once round without anything is empty, not another "go on".
    answers = [db.receive(1).retry_after_us for _ in range(tries + 1)]
    assert None not in answers[: tries - 1]
    assert answers[-1] != 0 or 30 * SECOND in answers


def test_rates_that_are_met_among_closed_channels_are_remembered(db: Db) -> None:
    db.policy("a", rate_count=1, rate_period_us=5 * SECOND)
    for i in range(limits.SCAN * 2):
        db.policy(f"c{i:04}", paused=1)
    db.send(item("a"), item("a"), *(item(f"c{i:04}") for i in range(limits.SCAN * 2)))
    [row] = db.receive(1).rows
    db.do(BACKEND.ack("q", [(row[0], 1)], True, NOW))
    answers = [db.receive(1).retry_after_us]
    while answers[-1] == 0:
        answers.append(db.receive(1).retry_after_us)
    assert answers[-1] == 5 * SECOND
    assert len(answers) <= 4


def test_more_expired_messages_than_one_sweep_takes_are_never_given(db: Db) -> None:
    gone = limits.SWEEP + 50
    db.send(*(item("a", expires=SECOND) for _ in range(gone)), item("a", b"alive"))
    found = db.receive(10, now=NOW + 2 * SECOND)
    assert [row[2] for row in found.rows] == [b"alive"]
    assert db.do(BACKEND.stats("q", NOW))[0][17] == limits.SWEEP


@pytest.mark.parametrize(
    ("tat", "allowed", "opens_at"),
    [(0, 3, -200), (100, 2, -100), (200, 1, 0), (201, 0, 1), (300, 0, 100)],
)
def test_gcra(tat: int, allowed: int, opens_at: int) -> None:
    found = rate(count=10, period_us=1000, burst=3, tat=NOW + tat if tat else 0, now=NOW)
    assert (found.allowed, found.interval, found.opens_at) == (allowed, 100, NOW + opens_at)


def test_a_purged_lane_is_swept_in_chunks(db: Db) -> None:
    db.send(*(item() for _ in range(25)))
    [row] = db.receive(1).rows
    db.do(BACKEND.queue_purge("q", False, NOW))
    with pytest.raises(LeaseLost):
        db.do(BACKEND.ack("q", [(row[0], 1)], True, NOW))
    answers = [db.do(BACKEND.maintain(10, NOW))[3:] for _ in range(4)]
    assert answers == [(10, True), (10, True), (5, False), (0, False)]
    assert db.driver.execute("SELECT count(*) FROM fairlead_lane", ()) == [(1,)]


def test_old_minutes_are_folded_into_the_totals(db: Db) -> None:
    db.send(item())
    later = NOW + 2 * limits.HISTORY_RETENTION
    db.send(item(), now=later)
    before = db.do(BACKEND.stats("q", later))
    db.do(BACKEND.maintain(100, later))
    assert db.do(BACKEND.stats("q", later)) == before
    assert len(db.do(BACKEND.history("q", 0, later))) == 1


# --- the schema ---------------------------------------------------------------------------------


def test_migrate_is_idempotent_and_looks_before_it_locks(tmp_path: Path) -> None:
    driver = Recorder(connect(str(tmp_path / "a.db")))
    names = [name for name, _ in BACKEND.migrations()]
    assert run(BACKEND.migrate(), driver, True) == names
    driver.texts.clear()
    assert run(BACKEND.migrate(), driver, True) == []
    assert "BEGIN IMMEDIATE" not in driver.texts
    driver.close()


def test_migrations_at_once_apply_everything_once(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    applied: list[list[str]] = []
    barrier = threading.Barrier(4)

    def migrate() -> None:
        driver = SqliteDriver(connect(path))
        barrier.wait()
        applied.append(run(BACKEND.migrate(), driver, True))
        driver.close()

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, applied)) == [0, 0, 0, len(BACKEND.migrations())]


def test_a_schema_for_newer_clients_is_refused(db: Db) -> None:
    db.driver.execute("UPDATE fairlead_migration SET oldest_client = ?1", (CLIENT + 1,))
    with pytest.raises(SchemaOutdated, match="upgrade the fairlead package"):
        db.do(BACKEND.migrate())


def test_unknown_settings_and_queues(db: Db) -> None:
    with pytest.raises(InvalidArgument):
        db.do(BACKEND.queue_set("q", {"leese_us": 1}, NOW))
    with pytest.raises(QueueNotFound):
        db.do(BACKEND.queue_set("nobody", {}, NOW))


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message", "meaning"),
    [
        ("SQLITE_BUSY", "database is locked", "busy"),
        ("SQLITE_BUSY_RECOVERY", "database is locked", "busy"),
        ("SQLITE_LOCKED_SHAREDCACHE", "database table is locked", "busy"),
        ("gone", "Cannot operate on a closed database.", "gone"),
        ("SQLITE_CONSTRAINT_UNIQUE", "UNIQUE constraint failed", None),
        ("SQLITE_ERROR", "no such table: users", None),
        ("SQLITE_BUSY_SNAPSHOT", "database is locked", UnsafeTransaction),
        ("SQLITE_ERROR", "no such table: fairlead_queue", SchemaOutdated),
        ("SQLITE_ERROR", "table fairlead_queue has no column named x", SchemaOutdated),
        ("SQLITE_FULL", "database or disk is full", DatabaseUnavailable),
        ("SQLITE_IOERR_WRITE", "disk I/O error", DatabaseUnavailable),
        ("SQLITE_READONLY_DBMOVED", "attempt to write a readonly database", DatabaseUnavailable),
        ("SQLITE_CANTOPEN", "unable to open database file", DatabaseUnavailable),
        ("SQLITE_NOTADB", "file is not a database", DatabaseUnavailable),
    ],
)
def test_what_errors_mean(code: str, message: str, meaning: Any) -> None:
    found = BACKEND.translate(code, message)
    assert isinstance(found, meaning) if isinstance(meaning, type) else found == meaning


def test_real_errors_have_these_codes(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    one, two = SqliteDriver(connect(path)), SqliteDriver(connect(path, timeout=0))
    assert code_of(one, lambda: run(BACKEND.queues(None), one, True)) == "SQLITE_ERROR"
    one.begin(True)
    assert code_of(two, lambda: two.begin(True)) == "SQLITE_BUSY"
    one.rollback()
    one.rollback()  # nothing left to roll back is no error
    one.close()
    assert code_of(one, lambda: one.execute("SELECT 1", ())) == "gone"
    assert two.code(ValueError()) is None
    two.close()


def code_of(driver: SqliteDriver, action: Any) -> str | None:
    with pytest.raises(sqlite3.Error) as raised:
        action()
    return driver.code(raised.value)


# --- connections --------------------------------------------------------------------------------


def test_our_connection_is_durable_by_default(tmp_path: Path) -> None:
    for synchronous, code in (("FULL", 2), ("NORMAL", 1)):
        connection = connect(str(tmp_path / "a.db"), synchronous=synchronous)
        pragmas = ("journal_mode", "synchronous", "busy_timeout")
        values = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas]
        assert values == ["wal", code, 5000]
        connection.close()
    with pytest.raises(ValueError):
        connect(str(tmp_path / "a.db"), synchronous="OFF")  # pyright: ignore[reportArgumentType]


def test_many_open_a_new_file_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    barrier, failed = threading.Barrier(8), list[BaseException]()

    def open_it() -> None:
        barrier.wait()
        try:
            connect(path).close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_your_connection_may_have_any_factory() -> None:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = lambda cursor, row: {"row": row}
    connection.text_factory = bytes
    driver = SqliteDriver(connection)
    run(BACKEND.migrate(), driver, False)
    run(BACKEND.queue_create("q", {}, None), driver, False)
    run(BACKEND.send("q", [item("é", b"\xff", key="k")], None), driver, False)
    [row] = run(BACKEND.receive("q", Receive(1), Memory(), None), driver, False).rows
    assert (row[1], row[2], row[4]) == ("é", b"\xff", "k")
    assert connection.text_factory is bytes
    assert connection.execute("SELECT 'x'").fetchone() == {"row": (b"x",)}
    connection.close()


def test_your_transaction_decides_whether_a_message_exists() -> None:
    connection = sqlite3.connect(":memory:")  # Python's own, implicit transactions
    driver = SqliteDriver(connection)
    run(BACKEND.migrate(), driver, False)
    run(BACKEND.queue_create("q", {}, None), driver, False)
    connection.commit()
    run(BACKEND.send("q", [item()], None), driver, False)
    assert connection.in_transaction
    connection.rollback()
    assert run(BACKEND.peek("q", 10, None, None, 0, None), driver, False) == []
    connection.close()


def test_the_clock_is_given_once_and_while_you_read() -> None:
    connection = sqlite3.connect(":memory:")
    reading = connection.execute("SELECT 1 UNION SELECT 2")
    reading.fetchone()
    register(connection)
    register(connection)  # to define it again would fail now
    assert reading.fetchone() == (2,)
    driver = SqliteDriver(connection)
    first, second = (run(BACKEND.clock(), driver, False) for _ in range(2))
    assert NOW < first <= second < first + 10 * SECOND
    connection.close()


def test_an_operation_of_several_statements_asks_for_a_transaction(db: Db) -> None:
    leases = [(1, 1)]
    operations = [
        BACKEND.send("q", [], NOW),
        BACKEND.receive("q", Receive(1), Memory(), NOW),
        BACKEND.ack("q", leases, True, NOW),
        BACKEND.release("q", leases, True, NOW),
        BACKEND.queue_purge("q", False, NOW),
        BACKEND.maintain(1, NOW),
    ]
    for operation in operations:
        assert next(operation) is BEGIN
        operation.close()
