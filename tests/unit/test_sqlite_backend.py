"""The SQLite backend itself: sending, receiving, its schema, its errors and its driver.

What the operations mean is tested through the public API (tests/conformance) and against the model
(tests/model); here is what only SQLite has.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from fairturn.backends.base import CONFLICT, FULL, ConsumerState, Peek, Receive
from fairturn.backends.schema import GENERATION
from fairturn.backends.sqlite.receive.gates import rate
from fairturn.backends.steps import BEGIN
from fairturn.backends.verbs import ACK, RELEASE, Lease
from fairturn.core import limits
from fairturn.core.errors import (
    DatabaseUnavailable,
    InvalidArgument,
    LeaseLost,
    QueueNotFound,
    SchemaOutdated,
    UnsafeTransaction,
)
from fairturn.drivers.run import run
from fairturn.drivers.sqlite import SqliteDriver, connect, register
from tests.unit.sqlite_desk import BACKEND, NOW, SECOND, Db, Recorder, db, item

__all__ = ["db"]  # fixture


# --- sending ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 7, 8, 9, 63, 64, 65, 200])
def test_ids_ascend_in_the_order_of_the_items(db: Db, number: int) -> None:
    sent = db.send(*(item(body=str(i).encode()) for i in range(number)))
    ids = [id for id, _ in sent]
    assert ids == sorted(set(ids))
    assert [row.body for row in db.receive(500).rows] == [str(i).encode() for i in range(number)]


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
    assert [row.channel for row in rows] == [name, name]
    assert (rows[0].body, rows[0].key, rows[0].type) == (body, name, name)
    assert db.receive(5, types=[name]).rows == []


def test_nothing_is_sent_when_one_channel_is_full(db: Db) -> None:
    db.policy("full", max_size=2)
    db.send(item("full"), item("full", delay_us=SECOND))
    outcomes = db.send(item("free"), item("full"))
    assert [outcome for _, outcome in outcomes] == ["s", FULL]
    assert len(db.do(BACKEND.peek("q", Peek(10), NOW))) == 2


# --- receiving ----------------------------------------------------------------------------------


def test_a_turn_is_not_cut_short_by_a_channel_that_had_less(db: Db) -> None:
    # Found by the model: `a` was looked up for what was left if the one before gave its all.
    db.do(BACKEND.queue_set("q", {"weight": 2}, NOW))
    db.send(item(""), item("a"), item("a"), item("a"), item("b"))
    assert db.channels_of(3) == ["", "a", "a"]
    assert (db.consumer.channel, db.consumer.credit) == ("a", 0)


def test_many_different_weights(db: Db) -> None:
    for i in range(1, 10):
        db.policy(f"c{i}", weight=i)
    db.send(*(item(f"c{i}") for i in range(1, 10) for _ in range(40)))
    once = [f"c{i}" for i in range(1, 10) for _ in range(i)]
    assert db.channels_of(100) == (once * 3)[:100]
    # Twice 45, then 1 + 2 + 3 + 4.
    assert (db.consumer.channel, db.consumer.credit) == ("c4", 0)


def test_versions_are_merged_and_ordered_within_a_channel(db: Db) -> None:
    db.send(*(item("a", bytes([i]), version=i % 3, rank=-(i % 2)) for i in range(12)))
    order = [bytes([i]) for i in (1, 3, 5, 7, 9, 11, 0, 2, 4, 6, 8, 10)]
    assert [row.body for row in db.receive(5).rows] == order[:5]
    assert [row.body for row in db.receive(12).rows] == order[5:]


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
    assert found.rows[0].channel == "open"
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
    db.do(BACKEND.apply_verb("q", ACK, [Lease(row.id, 1)], True, NOW))
    answers = [db.receive(1).retry_after_us]
    while answers[-1] == 0:
        answers.append(db.receive(1).retry_after_us)
    assert answers[-1] == 5 * SECOND
    assert len(answers) <= 4


def test_more_expired_messages_than_one_sweep_takes_are_never_given(db: Db) -> None:
    gone = limits.SWEEP + 50
    db.send(*(item("a", expires_us=SECOND) for _ in range(gone)), item("a", b"alive"))
    found = db.receive(10, now=NOW + 2 * SECOND)
    assert [row.body for row in found.rows] == [b"alive"]
    assert db.do(BACKEND.stats("q", NOW))[0].expired == limits.SWEEP


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
        db.do(BACKEND.apply_verb("q", ACK, [Lease(row.id, 1)], True, NOW))
    answers = [db.do(BACKEND.maintain(10, NOW))[3:] for _ in range(4)]
    assert answers == [(10, True), (10, True), (5, False), (0, False)]
    assert db.driver.execute("SELECT count(*) FROM fairturn_lane", ()) == [(1,)]


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
    db.driver.execute("UPDATE fairturn_installed SET oldest_client = ?1", (GENERATION + 1,))
    with pytest.raises(SchemaOutdated, match="Upgrade the Python package fairturn"):
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
        ("SQLITE_ERROR", "no such table: fairturn_queue", SchemaOutdated),
        ("SQLITE_ERROR", "table fairturn_queue has no column named x", SchemaOutdated),
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
    [row] = run(
        BACKEND.receive("q", Receive(1, token=1), ConsumerState(), None), driver, False
    ).rows
    assert (row.channel, row.body, row.key) == ("é", b"\xff", "k")
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
    assert run(BACKEND.peek("q", Peek(10), None), driver, False) == []
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
    leases = [Lease(1, 1)]
    operations = [
        BACKEND.send("q", [], NOW),
        BACKEND.receive("q", Receive(1, token=1), ConsumerState(), NOW),
        BACKEND.apply_verb("q", ACK, leases, True, NOW),
        BACKEND.apply_verb("q", RELEASE, leases, True, NOW),
        BACKEND.queue_purge("q", False, NOW),
        BACKEND.maintain(1, NOW),
    ]
    for operation in operations:
        assert next(operation) is BEGIN
        operation.close()
