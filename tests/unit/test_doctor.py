"""The doctor finds what is wrong, names it, and says how to mend it."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn import doctor
from fairturn.cli.app import run
from fairturn.doctor import mysql, postgres, queues, sqlite
from fairturn.doctor.examination import Examination, command_text, size
from tests import servers


def examined(db: fairturn.Database, **options: Any) -> dict[str, list[doctor.Finding]]:
    """The findings by check."""
    found: dict[str, list[doctor.Finding]] = {}
    for finding in doctor.examine(db, **options):
        found.setdefault(finding.check, []).append(finding)
    return found


def levels(db: fairturn.Database, **options: Any) -> dict[str, str]:
    """The worst level of each check."""
    order = doctor.LEVELS.index
    return {
        check: max((finding.level for finding in findings), key=order)
        for check, findings in examined(db, **options).items()
    }


def unhealthy(db: fairturn.Database, **options: Any) -> dict[str, str]:
    return {check: level for check, level in levels(db, **options).items() if level != "ok"}


# --- SQLite -------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "doctor.db"


@pytest.fixture
def file_db(path: Path) -> Iterator[fairturn.Database]:
    with fairturn.connect(f"sqlite:///{path}") as db:
        yield db


def test_a_new_file_is_healthy(file_db: fairturn.Database) -> None:
    file_db.queue("emails").create()
    found = levels(file_db, deep=True)
    assert set(found.values()) == {"ok"}
    assert {"version", "journal", "synchronous", "permissions", "wal", "disk", "integrity"} <= set(
        found
    )
    assert {"clock", "schema", "queues", "leases", "maintenance"} <= set(found)


def test_every_finding_that_is_not_ok_has_a_reason_and_a_fix(file_db: fairturn.Database) -> None:
    queue = file_db.queue("emails")
    queue.create()
    queue.pause()
    for finding in doctor.examine(file_db):
        assert finding.what
        if finding.level != "ok":
            assert finding.why
            assert finding.fix


def test_permissions(file_db: fairturn.Database, path: Path) -> None:
    file_db.queues()
    os.chmod(path, 0o666)
    assert unhealthy(file_db) == {"permissions": "bad"}


def test_journal_mode(path: Path) -> None:
    with fairturn.connect(f"sqlite:///{path}") as db:
        db.queues()
    patient_db = fairturn.connect(f"sqlite:///{path}")
    examination = Examination(patient_db, command_text, "fairturn", False)
    examination.ask("version")  # opens it, as WAL
    answers = {"journal_mode": [["delete"]], "synchronous": [[1]]}
    ask = examination.ask
    examination.ask = lambda name, *params: answers.get(name) or ask(name, *params)  # type: ignore
    found = {finding.check: finding.level for finding in sqlite.examine(examination)}
    patient_db.close()
    assert found["journal"] == "bad"
    assert found["synchronous"] == "warn"


def test_a_long_reader_is_named(
    file_db: fairturn.Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "WAL", 100_000)
    queue = file_db.queue("emails")
    queue.create()
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM fairturn_queue").fetchall()
    queue.send_many(b"x" * 1000 for _ in range(500))
    [finding] = examined(file_db)["wal"]
    assert finding.level == "warn"
    assert "long reader" in finding.what
    reader.execute("COMMIT")
    reader.close()
    [finding] = examined(file_db)["wal"]
    assert "earlier long reader" in finding.what


def test_disk(file_db: fairturn.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "DISK_WARN", 1 << 62)
    assert unhealthy(file_db) == {"disk": "warn"}
    monkeypatch.setattr(sqlite, "DISK_BAD", 1 << 62)
    assert unhealthy(file_db) == {"disk": "bad"}


def test_damage_is_found_only_by_looking_deep(path: Path) -> None:
    with fairturn.connect(f"sqlite:///{path}") as db:
        queue = db.queue("emails")
        queue.create()
        queue.send_many([b"x" * 3000] * 200)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * 4096)
    with fairturn.connect(f"sqlite:///{path}") as db:
        [finding] = examined(db, deep=True)["integrity"]
        assert finding.level == "bad"
        assert ".recover" in finding.fix
        assert "integrity" not in levels(db)


def test_a_newer_and_an_older_schema(file_db: fairturn.Database, path: Path) -> None:
    file_db.queues()
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("UPDATE fairturn_installed SET generation = 99")
    assert levels(file_db)["schema"] == "warn"
    raw.execute("UPDATE fairturn_installed SET oldest_client = 99")
    [finding] = examined(file_db)["schema"]
    assert (finding.level, "migrate" in finding.fix) == ("bad", False)
    raw.execute("UPDATE fairturn_installed SET generation = 1, oldest_client = 1")
    raw.execute("DELETE FROM fairturn_migration")
    [finding] = examined(file_db)["schema"]
    assert (finding.level, "migrate" in finding.fix) == ("bad", True)
    raw.close()


# --- the queues ---------------------------------------------------------------------------------


def test_queues(file_db: fairturn.Database) -> None:
    long_ago = time.time() - 2 * queues.STALLED
    paused, stalled, behind, dying = (
        file_db.queue(n) for n in ("paused", "still", "slow", "dying")
    )
    for queue in (paused, stalled, behind, dying):
        queue.create()
        queue.send(1, at=long_ago)
        queue.send(2, at=long_ago)
    paused.pause()
    behind.receive()
    for message in dying.receive(2):
        message.kill("broken")
    found = examined(file_db)
    assert [f.what.split("'")[1] for f in found["paused"]] == ["paused"]
    assert found["paused"][0].fix == "fairturn queue resume paused"
    assert [f.what.split("'")[1] for f in found["consumers"]] == ["still"]
    assert [f.what.split("'")[1] for f in found["behind"]] == ["slow"]
    assert [f.what.split("'")[1] for f in found["dead"]] == ["dying"]
    assert "queues" not in found


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mysql"])
def test_a_dead_letter_queue_that_does_not_exist(kind: str, path: Path) -> None:
    made = {"postgresql": servers.postgres_url, "mysql": servers.mysql_url}
    url = made[kind]("doctor_letters") if kind in made else f"sqlite:///{path}"
    with fairturn.connect(url) as db:
        db.migrate()
        db.queue("emails").create(max_body=1024, dead_letter="graves")
        [finding] = examined(db)["dead_letter"]
        assert finding.level == "warn"
        assert "'emails' has the dead-letter queue 'graves', which does not exist" in finding.what
        assert finding.fix == "fairturn queue create graves"
        assert run([*finding.fix.split()[1:], "--db", url]) == 0
        assert "dead_letter" not in examined(db)


def test_expired_leases(file_db: fairturn.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "EXPIRED_GRACE", 0)
    queue = file_db.queue("emails")
    queue.create()
    queue.send(1)
    queue.receive(lease=0)
    [finding] = examined(file_db)["leases"]
    assert finding.level == "warn"
    assert finding.fix == "fairturn maintain"
    file_db.maintain()
    assert levels(file_db)["leases"] == "ok"


def test_rows_that_wait_for_maintenance(
    file_db: fairturn.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "TALLY", 2)
    queue = file_db.queue("emails")
    queue.create()
    queue.send_many(range(5))
    queue.purge()
    assert unhealthy(file_db) == {"maintenance": "warn"}
    file_db.maintain()
    assert unhealthy(file_db) == {}


def test_clock_skew(file_db: fairturn.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    real = file_db.clock
    monkeypatch.setattr(file_db, "clock", lambda: real() - 90_000_000)
    [finding] = examined(file_db)["clock"]
    assert finding.level == "warn"
    assert "90 s behind" in finding.what


# --- as a command -------------------------------------------------------------------------------


def test_exit_codes_and_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{path}"
    assert run(["queue", "create", "emails", "--db", url]) == 0
    assert run(["queue", "pause", "emails", "--db", url]) == 0
    capsys.readouterr()
    assert run(["doctor", "--db", url, "--json"]) == 0  # a warning is no failure
    found = json.loads(capsys.readouterr().out)
    assert found["dialect"] == "sqlite"
    assert found["warn"] == 1
    assert found["bad"] == 0
    assert {"level", "check", "what", "why", "fix"} == set(found["findings"][0])
    os.chmod(path, 0o666)
    assert run(["doctor", "--db", url]) == 1
    out = capsys.readouterr().out
    assert f"chmod o-rwx {path}" in out
    assert f"fairturn queue resume emails --db {url}" in out


def test_an_unreachable_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--db", "postgresql://me:hush@127.0.0.1:1/x"]) == 1
    out = capsys.readouterr().out
    assert "cannot connect" in out
    assert "hush" not in out


def test_sizes() -> None:
    assert size(512) == "512 bytes"
    assert size(3 << 29) == "1.5 GiB"


# --- PostgreSQL ---------------------------------------------------------------------------------


@pytest.fixture
def postgres_db() -> Iterator[fairturn.Database]:
    with fairturn.connect(servers.postgres_url("doctor")) as db:
        db.migrate()
        yield db


@pytest.fixture
def session() -> Iterator[Any]:
    """Somebody else's session on the same database."""
    import psycopg

    with psycopg.connect(servers.postgres_url("doctor"), application_name="report") as connection:
        yield connection
        connection.rollback()


@pytest.mark.server
def test_postgres_is_healthy(postgres_db: fairturn.Database) -> None:
    postgres_db.queue("emails").create()
    assert unhealthy(postgres_db) == {}
    assert {"version", "durability", "isolation", "pooler", "horizon", "bloat", "locks"} <= set(
        levels(postgres_db)
    )


@pytest.mark.server
def test_postgres_without_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    url = servers.postgres_url("bare")
    assert run(["doctor", "--db", url]) == 1
    assert f"fairturn migrate --db {url}" in capsys.readouterr().out
    assert run(["stats", "--db", url]) == 1
    assert f"run: fairturn migrate --db {url}" in capsys.readouterr().err
    with fairturn.connect(url) as db:
        assert unhealthy(db) == {"schema": "bad"}


@pytest.mark.server
def test_the_holder_of_the_horizon_of_postgres_is_named(
    postgres_db: fairturn.Database, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LONG", 0)
    session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    [pid] = session.execute("SELECT pg_backend_pid()").fetchone()
    [finding] = examined(postgres_db)["horizon"]
    assert finding.level == "warn"
    assert f"session {pid} (postgres@127.0.0.1, report; idle in transaction" in finding.what
    assert f"pg_terminate_backend({pid})" in finding.fix
    monkeypatch.setattr(postgres, "VERY_LONG", 0)
    assert levels(postgres_db)["horizon"] == "bad"


@pytest.mark.server
def test_who_waits_for_whom_in_postgres(
    postgres_db: fairturn.Database, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    monkeypatch.setattr(postgres, "WAIT", 0)
    postgres_db.queue("waiting").create()
    session.execute("UPDATE fairturn.queue SET paused = 0 WHERE name = 'waiting'")
    [pid] = session.execute("SELECT pg_backend_pid()").fetchone()
    other = threading.Thread(target=postgres_db.queue("waiting").pause)
    other.start()
    try:
        end = time.monotonic() + 60
        found = examined(postgres_db)["locks"]
        while found[0].level == "ok" and time.monotonic() < end:
            found = examined(postgres_db)["locks"]
    finally:
        session.rollback()
        other.join()
        postgres_db.queue("waiting").resume()
    assert f"session {pid} holds" in found[0].what


@pytest.mark.server
def test_postgres_settings(
    postgres_db: fairturn.Database, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.autocommit = True
    name = session.info.dbname
    session.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    session.execute("ALTER TABLE fairturn.message SET (autovacuum_enabled = false)")
    try:
        assert unhealthy(postgres_db) == {"isolation": "warn", "autovacuum": "bad"}
    finally:
        session.execute(f"ALTER DATABASE {name} RESET default_transaction_isolation")
        session.execute("ALTER TABLE fairturn.message RESET (autovacuum_enabled)")
    monkeypatch.setattr(postgres, "MINIMUM", 999_999)
    assert unhealthy(postgres_db) == {"version": "bad"}


def test_dangerous_servers() -> None:
    found = {f.check: f.level for f in postgres._durability("off", "off")}
    assert found == {"fsync": "bad", "synchronous_commit": "warn"}


@pytest.mark.server
def test_postgres_behind_a_pooler_is_recognised() -> None:
    servers.postgres_url("doctor")
    with fairturn.connect(servers.pgbouncer_url("doctor"), prepare=False) as db:
        db.migrate()
        assert unhealthy(db) == {"pooler": "warn"}


@pytest.mark.server
def test_postgres_behind_a_pooler_and_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    servers.postgres_url("doctor")
    url = servers.pgbouncer_url("doctor")
    assert run(["stats", "--db", url]) == 1
    assert "--pooler" in capsys.readouterr().err
    assert run(["migrate", "--db", url, "--pooler"]) == 0
    assert run(["stats", "--db", url, "--pooler"]) == 0


# --- MySQL and MariaDB ----------------------------------------------------------------------------


@pytest.fixture
def mysql_db() -> Iterator[fairturn.Database]:
    with fairturn.connect(servers.mysql_url("doctor")) as db:
        db.migrate()
        yield db


@pytest.mark.server
def test_mysql_is_healthy(mysql_db: fairturn.Database) -> None:
    mysql_db.queue("emails").create(max_body=1024)
    assert unhealthy(mysql_db) == {}
    assert {
        "version",
        "durability",
        "isolation",
        "packets",
        "transactions",
        "history",
        "locks",
    } <= (set(levels(mysql_db)))


@pytest.mark.server
def test_mysql_packets(mysql_db: fairturn.Database) -> None:
    queue = mysql_db.queue("large")
    queue.create(max_body=64 << 20)
    try:
        [finding] = examined(mysql_db)["packets"]
        assert finding.level == "warn"
        assert "large" in finding.what
    finally:
        queue.drop()


@pytest.mark.server
def test_long_transactions_of_mysql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql, "LONG", 0)
    # A server of its own: doctor names the oldest few, and on the shared one those are others'.
    with servers.Mysql(durable=False) as server:
        db = fairturn.connect(server.create_database("doctor"))
        db.migrate()
        other = server.connect("doctor")
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT * FROM fairturn_queue FOR UPDATE")
            cursor.execute("SELECT CONNECTION_ID()")
            [thread] = cursor.fetchone()
        found = [f.what for f in examined(db)["transactions"]]
        other.close()
        db.close()
    assert any(f"session {thread} (root@" in what for what in found)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("10.11.6-MariaDB-0+deb12u1", "ok"),
        ("10.5.8-MariaDB", "bad"),
        ("8.0.36", "ok"),
        ("5.7.44-log", "bad"),
    ],
)
def test_versions_of_mysql(text: str, level: str) -> None:
    assert mysql._version(text).level == level


def test_durability_of_mysql() -> None:
    settings = {"innodb_flush_log_at_trx_commit": "2", "log_bin": "ON", "sync_binlog": "0"}
    assert [f.level for f in mysql._durability(settings)] == ["warn", "warn"]
