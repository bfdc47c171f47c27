"""Rules of DESIGN §10 that need real servers, several sessions or the real clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import fairturn
from fairturn import BodyTooLarge, SchemaOutdated, Send
from fairturn.core.values import moment
from fairturn.operations.call import Call
from tests import servers
from tests.conformance.connections import mysql_arguments
from tests.conformance.door import unique
from tests.conformance.locks import PATIENCE, until_waiting
from tests.conformance.work import counted
from tests.conformance.yours import plain

BACKENDS = ("sqlite", "postgresql", "mysql")
SERVERS = ("postgresql", "mysql")


@pytest.fixture(params=BACKENDS)
def backend(request: Any, session_things: None) -> str:
    return request.param


@pytest.fixture
def queue(backend: str, databases: Any) -> Iterator[fairturn.Queue]:
    queue = databases[backend].queue(unique())
    queue.create()
    yield queue
    queue.drop()


only_servers = pytest.mark.parametrize("backend", SERVERS, indirect=True)
only_mysql = pytest.mark.parametrize("backend", ["mysql"], indirect=True)


class Waiting:
    """A call in a thread, to see whether it waits for somebody."""

    def __init__(self, call: Any) -> None:
        self.result: list[Any] = []
        self.thread = threading.Thread(target=lambda: self.result.append(call()))
        self.thread.start()

    def ends(self) -> bool:
        """By itself, whoever holds a lock."""
        self.thread.join(PATIENCE)
        return not self.thread.is_alive()

    def end(self) -> Any:
        self.thread.join()
        return self.result[0]


# --- 2: MySQL procedures from a bare client and in a transaction ----------------------------------


def bare(url: str, **options: Any) -> Any:
    import pymysql

    return pymysql.connect(**mysql_arguments(url), **options)


def call(connection: Any, text: str, *params: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(text, params)
        rows = list(cursor.fetchall())
        while cursor.nextset():
            pass
        return rows


@only_mysql
def test_10_02_a_bare_client_with_autocommit_gets_each_message_once(queue, doors, backend):
    total = 120
    queue.send_many(range(total))
    guard = threading.Lock()
    got: list[int] = []

    def consume() -> None:
        connection = bare(doors.url(backend), autocommit=True)
        while rows := call(connection, "CALL fairturn_receive(%s, 3, '{}')", queue.name):
            with guard:
                got.extend(row[0] for row in rows)
        connection.close()

    threads = [threading.Thread(target=consume) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got += [m.id for m in queue.receive(total)]
    assert len(got) == len(set(got)) == total
    assert queue.stats().delivered == total


@only_mysql
def test_10_02_a_bare_send_is_committed_by_itself_and_a_failed_one_leaves_nothing(
    queue, doors, backend
):
    import pymysql

    connection = bare(doors.url(backend), autocommit=True)
    call(connection, "CALL fairturn_send(%s, %s, %s)", queue.name, '{"a": 1}', '{"key": "k"}')
    with pytest.raises(pymysql.MySQLError):
        call(connection, "CALL fairturn_send(%s, %s, %s)", queue.name, "2", '{"key": "k"}')
    connection.close()
    [message] = queue.peek()
    assert (message.body, message.key) == ({"a": 1}, "k")
    assert queue.stats().sent == 1


@only_mysql
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_10_02_in_your_transaction_a_procedure_commits_nothing(queue, doors, backend, end):
    connection = bare(doors.url(backend), autocommit=True)
    call(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    connection.begin()
    call(connection, "INSERT INTO person VALUES (%s)", queue.name)
    call(connection, "CALL fairturn_send(%s, '1', '{}')", queue.name)
    call(connection, "CALL fairturn_receive(%s, 1, '{}')", queue.name)
    assert queue.stats().total == 0
    getattr(connection, end)()
    people = call(connection, "SELECT count(*) FROM person WHERE name = %s", queue.name)
    connection.close()
    kept = int(end == "commit")
    assert people == [(kept,)]
    assert queue.stats().leased == kept


# --- 5: the schema names the oldest client it serves ----------------------------------------------


def _new_database(backend: str, tmp_path: Any, name: str) -> str:
    if backend == "sqlite":
        return f"sqlite:///{tmp_path / 'rules.db'}"
    return (servers.postgres_url if backend == "postgresql" else servers.mysql_url)(name)


MIGRATIONS = {
    "sqlite": "fairturn_migration",
    "postgresql": "fairturn.migration",
    "mysql": "fairturn_migration",
}
INSTALLED = {
    backend: name.replace("migration", "installed") for backend, name in MIGRATIONS.items()
}


def _check(url: str) -> None:
    """What a client asks of a schema it meets."""
    with fairturn.connect(url) as database:
        database._runner.run(Call("check", database._core.backend.check))
        database.queues()


def test_10_05_a_newer_schema_that_still_serves_us_is_served(backend, tmp_path):
    url = _new_database(backend, tmp_path, "newer")
    with fairturn.connect(url) as database:
        database.migrate()
    with plain(backend, url) as mine:
        mine.begin()
        # As a later release would leave it: one more migration, which old clients can live with.
        table = MIGRATIONS[backend]
        source = f"SELECT 999, 'later', applied_at FROM {table} WHERE version = 1"
        mine.execute(f"INSERT INTO {table} (version, name, applied_at) {source}")
        mine.execute(f"UPDATE {INSTALLED[backend]} SET generation = 999")
        mine.commit()
    _check(url)


def test_10_05_a_schema_that_no_longer_serves_us_is_refused(backend, tmp_path):
    url = _new_database(backend, tmp_path, "too_new")
    with fairturn.connect(url) as database:
        database.migrate()
    with plain(backend, url) as mine:
        mine.begin()
        mine.execute(f"UPDATE {INSTALLED[backend]} SET generation = 1000, oldest_client = 1000")
        mine.commit()
    with pytest.raises(SchemaOutdated, match="Upgrade the Python package fairturn") as caught:
        _check(url)
    assert "migrate" not in str(caught.value)


# --- 7 and 11: gates ------------------------------------------------------------------------------


@only_servers
def test_10_07_a_receive_passes_by_a_gate_that_is_taken(queue, doors, backend):
    queue.channel("a").set_policy(max_concurrency=5)
    queue.send_many([Send(n, channel=c) for c in "ab" for n in range(3)])
    with plain(backend, doors.url(backend)) as mine:
        mine.begin()
        [held] = queue.using(mine.connection).receive()  # holds the gate of a until it ends
        assert held.channel == "a"
        other = Waiting(lambda: queue.receive(10))
        ended = other.ends()
        mine.rollback()
        got = other.end()
    assert ended
    assert {m.channel for m in got} == {"b"}


@only_servers
def test_10_07_a_receive_that_carries_acks_waits_for_the_gate(queue, doors, backend):
    queue.channel("a").set_policy(max_concurrency=2)
    queue.send_many([Send(n, channel="a") for n in range(4)])
    mine_before = queue.receive(1)
    with plain(backend, doors.url(backend)) as mine:
        mine.begin()
        [held] = queue.using(mine.connection).receive()
        # It waits for its gate; it does not come back empty.
        other = Waiting(lambda: queue.receive(1, ack=mine_before))
        until_waiting(backend, doors.url(backend), 1, lambda: other.result)
        mine.commit()
        got = other.end()
    assert [m.body for m in got] == [2]
    assert held.body == 1


@only_servers
def test_10_11_the_gate_of_the_queue_is_waited_for(queue, doors, backend):
    queue.set_limit(max_concurrency=2)
    queue.send_many([Send(n, channel=c) for n, c in enumerate("abc")])
    with plain(backend, doors.url(backend)) as mine:
        mine.begin()
        [held] = queue.using(mine.connection).receive()
        other = Waiting(lambda: queue.receive(5))
        until_waiting(backend, doors.url(backend), 1, lambda: other.result)
        mine.commit()
        got = other.end()
    assert held.channel == "a"
    assert len(got) == 1


@only_servers
def test_10_10_a_locked_head_closes_an_ordered_channel(queue, doors, backend):
    queue.channel("").set_policy(ordered=True)
    queue.send_many([1, 2])
    with plain(backend, doors.url(backend)) as mine:
        mine.begin()
        assert [m.body for m in queue.using(mine.connection).receive()] == [1]
        other = Waiting(lambda: queue.receive(5))
        ended = other.ends()
        mine.rollback()
        got = other.end()
    assert ended
    assert got == []
    assert [m.body for m in queue.receive(5)] == [1, 2]


# --- 14: what a consumer remembers is never for long ----------------------------------------------


@pytest.mark.parametrize(
    "how", ["release", "recover", "redrive", "priority", "past", "late commit"]
)
def test_10_14_rows_behind_the_hint_are_found_soon(queue, doors, backend, how):
    """A consumer that remembers how far it has come still finds what appears behind it."""
    if how == "late commit" and backend == "sqlite":
        return  # one writer: ids commit in order
    with plain(backend, doors.url(backend)) as mine:
        if how == "late commit":
            mine.begin()
            queue.using(mine.connection).send("behind")
        queue.send_many(["behind" if how != "late commit" else "x", *range(3000)])
        [first] = queue.receive(1, lease=0.3 if how == "recover" else 60)
        seen: list[Any] = []
        for _ in range(10):
            messages = queue.receive(10)
            seen += [m.body for m in messages]
            queue.ack(messages)
        if how == "release":
            first.release()
        elif how == "redrive":
            first.kill("boom")
            queue.redrive()
        elif how == "priority":
            queue.send("behind", priority=5)
        elif how == "past":
            queue.send("behind", at=time.time() - 3600)
        elif how == "late commit":
            mine.commit()
        if how == "redrive":  # most of those before it, at once: how fast that is is no matter here
            seen += [m.body for _ in range(28) for m in queue.receive(100)]
        deadline = time.monotonic() + PATIENCE
        while "behind" not in seen and time.monotonic() < deadline:
            seen += [m.body for m in queue.receive(1)]
    assert seen.count("behind") == 1
    # Redriven: due now, behind all others. Recovered: when its lease ends. The rest: before what
    # is left.
    left = queue.stats().ready
    if how == "redrive":
        assert left == 0
    elif how != "recover":
        assert left > 0


# --- 21: clocks and zones -------------------------------------------------------------------------


@only_servers
def test_10_21_the_zone_of_a_session_does_not_matter(queue, doors, databases, backend):
    """LonnyMQ's first edition gave a message that was locked for an hour to a session in Tokyo."""
    queue.send(1)
    queue.receive(lease=3600)
    before = databases[backend].clock()
    zone = "SET TIME ZONE 'Asia/Tokyo'" if backend == "postgresql" else "SET time_zone = '+09:00'"
    with plain(backend, doors.url(backend)) as mine:
        mine.execute(zone)
        mine.commit()
        mine.begin()
        bound = queue.using(mine.connection)
        assert bound.receive() == []
        sent = bound.send(2, delay=60)
        mine.commit()
    due = queue.get(id=sent).due_at
    assert moment(before) <= due - timedelta(seconds=60) <= moment(databases[backend].clock())


def test_10_21_the_clock_is_in_microseconds_utc_and_goes_forward(backend, databases):
    before = time.time_ns() // 1000
    readings = [databases[backend].clock() for _ in range(20)]
    assert readings == sorted(readings)
    assert before <= readings[0]
    assert readings[-1] <= time.time_ns() // 1000
    assert any(reading % 1000 for reading in readings)


# --- the packet of MySQL --------------------------------------------------------------------------


@only_mysql
def test_a_body_beyond_the_servers_packet_is_a_typed_error(queue, backend):
    """MariaDB's default packet is 16 MiB and a body takes twice its size in a statement."""
    with pytest.raises(BodyTooLarge, match="max_allowed_packet"):
        queue.send(b"\0" * (15 * 2**20))
    assert queue.stats().total == 0
    queue.send(b"\0" * (7 * 2**20))
    assert len(queue.receive()[0].raw) == 7 * 2**20


# --- defects of REFERENCE §9 that only the work of the database can show --------------------------


def test_defect_5_bulk_sends_are_linear(queue, doors, backend):
    """Theirs were quadratic in one channel: a batch of 8 times the size read 64 times as many rows.
    Here it is as much work as 8 batches."""
    with plain(backend, doors.url(backend)) as mine:

        def work(batches: int, count: int) -> int:
            sends = [Send(n, channel="one") for n in range(count)]
            with counted(backend, mine) as done:
                for _ in range(batches):
                    queue.using(mine.connection).send_many(sends)
            return done.work

        mine.begin()
        small = work(8, 500)
        large = work(1, 4000)
        mine.rollback()
    assert small >= 4000
    assert large < 1.5 * small


def test_defect_7_no_wake_up_is_lost(queue, databases, backend, monkeypatch):
    """A consumer that waits looks again after a send, whenever the send happens, and finds it."""
    inner = databases[backend]._core.backend
    receive = inner.receive
    sent = threading.Event()
    in_vain: list[bool] = []  # looks that found nothing: had the message been sent before?

    def watched(*args: Any) -> Any:
        there = sent.is_set()
        received = yield from receive(*args)
        if not received.rows:
            in_vain.append(there)
        return received

    monkeypatch.setattr(inner, "receive", watched)
    for _ in range(3):
        consumer = Waiting(lambda: queue.receive(wait=3600))
        queue.send("work")
        sent.set()
        [message] = consumer.end()
        message.ack()
        sent.clear()
    assert not any(in_vain)


def test_defect_8_the_move_to_another_queue_is_atomic(queue, databases, doors, backend):
    grave = databases[backend].queue(unique())
    grave.create()
    queue.set(dead_letter=grave.name)
    queue.send_many([1, 2])
    one, two = queue.receive(2)
    two.kill("boom")
    with plain(backend, doors.url(backend)) as mine:
        mine.begin()
        one.using(mine.connection).kill("boom")
        mine.rollback()
        mine.begin()
        assert grave.using(mine.connection).receive(5)[0].body == 2
        mine.rollback()
    assert (queue.stats().leased, grave.stats().ready) == (1, 1)
    one.kill("boom")
    assert (queue.stats().total, grave.stats().ready) == (0, 2)
    grave.drop()


TALLIES = {
    "sqlite": "fairturn_history",  # one row per queue and minute: there is one writer
    "postgresql": "fairturn.tally",
    "mysql": "fairturn_tally",
}


def test_defect_12_counters_cost_at_most_one_row_per_call(queue, doors, backend):
    """Fetchq wrote ten rows for a push, a pick and a complete."""

    def rows() -> int:
        with plain(backend, doors.url(backend)) as mine:
            mine.begin()
            [(count,)] = mine.execute(f"SELECT count(*) FROM {TALLIES[backend]}")
            mine.rollback()
            return count

    before = rows()
    for n in range(10):
        queue.send(n)
        [message] = queue.receive()
        message.ack()
    assert rows() - before <= 30
    stats = queue.stats()
    assert (stats.sent, stats.delivered, stats.acked) == (10, 10, 10)
