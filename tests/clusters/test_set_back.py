"""A database that is set back under live clients: an asynchronous failover, a restored backup.

What was committed after a certain moment is gone, and its numbers come again: ids of messages,
delivery numbers, numbers of leases, transactions and events. No old lease may touch a new message,
no limit may be exceeded, and no reader of events may skip one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fairturn
from tests import servers
from tests.clusters.standby import Replicated
from tests.server_process import wait_until

pytestmark = pytest.mark.server
N = 50
PACKAGES = {
    "psql": "postgresql-client",
    "pg_dump": "postgresql-client",
    "mariadb": "mariadb-client",
    "mariadb-dump": "mariadb-client",
}
VERBS = ("ack", "complete", "defer", "fail", "kill", "extend", "release", "progress")

# Opens a database; the function that is yielded with its URL sets it back to this moment, and
# returns the URL under which it is found then.
SetBack = Callable[[], str]


@contextmanager
def failover(tmp_path: Path) -> Iterator[tuple[str, Callable[[], SetBack]]]:
    """PostgreSQL: what the standby has not got is lost."""
    with Replicated() as pair:
        url = pair.create_database("jobs")

        def moment() -> SetBack:
            pair.catch_up()
            pair.cut()

            def set_back() -> str:
                pair.fail_over()
                return url

            return set_back

        yield url, moment


@contextmanager
def dump_postgres(tmp_path: Path) -> Iterator[tuple[str, Callable[[], SetBack]]]:
    """PostgreSQL: pg_dump, restored on another server, whose transaction numbers are lower."""
    with servers.Postgres(durable=False) as old, servers.Postgres(durable=False) as new:
        url = old.create_database("jobs")
        for _ in range(300):  # transactions
            run("psql", "-qc", "SELECT pg_current_xact_id()", url)
        file = tmp_path / "dump.sql"

        def moment() -> SetBack:
            run("pg_dump", "-f", str(file), url)

            def set_back() -> str:
                restored = new.create_database("jobs")
                run("psql", "-qv", "ON_ERROR_STOP=1", "-f", str(file), restored)
                return restored

            return set_back

        yield url, moment


@contextmanager
def dump_mysql(tmp_path: Path) -> Iterator[tuple[str, Callable[[], SetBack]]]:
    with servers.Mysql(durable=False) as server:
        url = server.create_database("jobs")
        login = ("-uroot", "-h127.0.0.1", f"-P{server.port}")
        file = tmp_path / "dump.sql"

        def moment() -> SetBack:
            text = run("mariadb-dump", *login, "--routines", "--single-transaction", "jobs")
            file.write_bytes(text)

            def set_back() -> str:
                restored = server.create_database("restored")
                run("mariadb", *login, "restored", stdin=file.read_bytes())
                return restored

            return set_back

        yield url, moment


@contextmanager
def copied_file(tmp_path: Path) -> Iterator[tuple[str, Callable[[], SetBack]]]:
    file, copy = tmp_path / "jobs.db", tmp_path / "backup.db"

    def moment() -> SetBack:
        import sqlite3

        with sqlite3.connect(file) as source, sqlite3.connect(copy) as target:
            source.backup(target)
        return lambda: f"sqlite:///{copy}"

    yield f"sqlite:///{file}", moment


def run(program: str, *arguments: str, stdin: bytes | None = None) -> bytes:
    found = servers.find_binary(program, PACKAGES[program])
    return subprocess.run([found, *arguments], input=stdin, capture_output=True, check=True).stdout


WAYS = {
    "failover": failover,
    "pg_dump": dump_postgres,
    "mariadb-dump": dump_mysql,
    "copied file": copied_file,
}


@pytest.fixture(params=WAYS)
def database(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, Callable[[], SetBack]]]:
    with WAYS[request.param](tmp_path) as opened:
        yield opened


def test_no_old_lease_touches_a_new_message(database: tuple[str, Callable[[], SetBack]]) -> None:
    url, moment = database
    with fairturn.connect(url) as db:
        db.migrate()
        queue = db.queue("jobs")
        queue.create(max_attempts=0, lease=600)
        older = queue.send("older")
        set_back = moment()
        [held] = queue.receive()  # its lease is forgotten by the database
        queue.send_many([f"lost {n}" for n in range(N)])
        old = queue.receive(N)
        permit = db.permit("a worker", ttl=600)
        restored = set_back()
        with fairturn.connect(restored) as now:
            queue = now.queue("jobs")
            sent = queue.send_many([f"new {n}" for n in range(N)])
            mine = queue.receive(N + 1)
            again = {m.id: m for m in mine}
            same = [m for m in old if m.id in again and again[m.id].deliveries == m.deliveries]
            assert older in again
            assert same, "no number came again: this shows nothing"

            stale = [queue.lease(m.id, m.token) for m in [held, *old]]
            for verb in VERBS:
                arguments = (0.5,) if verb == "progress" else ()
                for lease in stale[:3]:
                    with pytest.raises(fairturn.LeaseLost):
                        getattr(lease, verb)(*arguments)
            assert len(queue.ack(stale).lost) == len(stale)
            assert len(queue.receive(ack=stale).lost) == len(stale)
            others = [now.permit(f"other {n}", ttl=600) for n in range(N)]
            assert permit.id not in {other.id for other in others}

            assert queue.stats().leased == N + 1
            assert {m.id for m in mine} == {older, *sent}
            assert queue.ack(mine).acked == N + 1


def test_a_limit_counts_the_leases_of_the_new_server() -> None:
    """Floors: a consumer remembers where the live leases of a channel begin."""
    with Replicated() as pair:
        url = pair.create_database("jobs")
        with fairturn.connect(url) as db, fairturn.connect(url) as other:
            db.migrate()
            queue = db.queue("jobs")
            queue.create(max_attempts=0, lease=600)
            queue.channel("c").set_policy(max_concurrency=3)
            pair.catch_up()
            pair.cut()
            for _ in range(3 * 32):  # a sequence writes 32 numbers ahead
                queue.send("lost", channel="c")
                queue.ack(queue.receive())
            pair.fail_over()
            second = other.queue("jobs")
            second.send_many([fairturn.Send(n, channel="c") for n in range(20)])
            assert len(second.receive(2)) == 2
            got = [len(queue.receive(1)), len(queue.receive(1)), len(queue.receive(1))]
            assert got == [1, 0, 0]
            assert queue.stats().leased == 3


def test_what_is_ready_again_is_found_by_a_look() -> None:
    """Scan hints: a consumer reads a channel from where it stood. What was acked before the
    failover is ready again, and lies before that place."""
    with Replicated() as pair:
        url = pair.create_database("jobs")
        with fairturn.connect(url) as db:
            db.migrate()
            for name in ("idle", "busy"):
                db.queue(name).create(max_attempts=0, lease=600)
                db.queue(name).send_many([f"again {n}" for n in range(3)])
            pair.catch_up()
            pair.cut()
            for name in ("idle", "busy"):
                for _ in range(10):
                    db.queue(name).send_many(["lost"] * 10)
                    db.queue(name).ack(db.queue(name).receive(10))
            pair.fail_over()
            # Nothing else is ready: the receive looks before it returns nothing.
            wait_until(lambda: alive(db), "the new primary serves")
            assert [m.body for m in db.queue("idle").receive(3)] == [f"again {n}" for n in range(3)]
            # A stream that never ends: found by a look, while others come.
            busy, found = db.queue("busy"), set[str]()

            def look() -> bool:
                busy.send_many(["new"] * 10)
                messages = busy.receive(10)
                assert len(messages) == 10
                found.update(m.body for m in messages if m.body != "new")
                busy.ack(messages)
                return len(found) == 3

            wait_until(look, "all are found")


def alive(db: fairturn.Database) -> bool:
    try:
        return bool(db.queues())
    except fairturn.DatabaseUnavailable:
        return False


def test_events_are_read_on_or_the_loss_is_told(
    database: tuple[str, Callable[[], SetBack]],
) -> None:
    url, moment = database
    with fairturn.connect(url) as db:
        db.migrate()
        queue = db.queue("jobs")
        queue.create(events=True)
        queue.send_many(["a", "b"])
        read = list(db.events(after="", timeout=0))
        kept, start = read[-1].cursor, read[0].cursor
        now = db.events(timeout=0)
        assert list(now) == []
        assert now.cursor is not None
        set_back = moment()
        queue.send_many(["lost"] * N)
        lost = [event.cursor for event in db.events(after=kept, timeout=0)]
        assert len(lost) == N
        restored = set_back()
        with fairturn.connect(restored) as again:
            sent = {again.queue("jobs").send(n) for n in range(2 * N)}
            # What was read before the moment: it goes on behind it, or says that it cannot.
            for cursor in (start, kept, now.cursor):
                try:
                    found = {event.id for event in again.events(after=cursor, timeout=0)}
                except fairturn.CursorLost:
                    continue
                assert sent <= found
            # What was read after it is gone.
            for cursor in lost:
                with pytest.raises(fairturn.CursorLost):
                    list(again.events(after=cursor, timeout=0))
            everything = {event.id for event in again.events(after="", timeout=0)}
            assert sent <= everything
            assert list(again.events(timeout=0)) == []
