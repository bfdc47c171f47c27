"""Around your transaction: wrong connections, isolation, who waits for whom, poolers."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import fairturn
from fairturn import DuplicateKey, InvalidArgument, LeaseLost, Send, UnsafeTransaction
from tests import servers
from tests.conformance.connections import sqlite_path
from tests.conformance.door import unique
from tests.conformance.test_transactions import VERBS
from tests.conformance.yours import KINDS, plain

BACKENDS = ("sqlite", "postgresql", "mysql")
SERVERS = ("postgresql", "mysql")


@pytest.fixture(params=BACKENDS)
def backend(request: Any) -> str:
    return request.param


@pytest.fixture
def queue(backend: str, session_things: None, databases: Any) -> Iterator[fairturn.Queue]:
    queue = databases[backend].queue(unique())
    queue.create()
    yield queue
    queue.drop()


class Stranger:
    pass


def test_an_unknown_class_is_told_how_to_write_a_driver(queue):
    with pytest.raises(TypeError) as caught:
        queue.using(Stranger())
    text = str(caught.value)
    assert "Stranger" in text
    assert "fairturn_driver = True" in text
    assert "def execute(self, text, params)" in text
    assert "psycopg" in text


@pytest.mark.server
def test_an_async_connection_of_postgres_or_our_own_at_the_sync_door(queue, doors, backend):
    other = next((k for k in KINDS if k.backend == backend and k.is_async), None)
    if other is None:
        other = next(k for k in KINDS if k.is_async)
    mine = other.cls(doors.url(other.backend))
    try:
        with pytest.raises(TypeError, match="connect_async"):
            queue.using(mine.connection)
    finally:
        mine.close()


def test_the_sync_connection_at_the_async_door(doors, backend, queue):
    database = fairturn.connect_async(doors.url(backend))
    with plain(backend, doors.url(backend)) as mine, pytest.raises(TypeError, match="connect"):
        database.queue("q").using(mine.connection)


@pytest.mark.server
def test_postgres_and_the_others_refuse_each_other(queue, doors, backend):
    other = "postgresql" if backend != "postgresql" else "sqlite"
    with plain(other, doors.url(other)) as mine, pytest.raises(InvalidArgument, match=other):
        queue.using(mine.connection)


class TenLines:
    """The recipe of the error message, for any DB-API connection."""

    fairturn_driver = True
    can_copy = False

    def __init__(self, connection: Any, dialect: str) -> None:
        self.connection, self.dialect = connection, dialect

    def execute(self, text: str, params: Any) -> Any:
        if self.dialect == "postgresql":
            text = re.sub(r"\$\d+", "%s", text.replace("%", "%%"))
        cursor = self.connection.cursor()
        cursor.execute(text, tuple(params))
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def code(self, error: BaseException) -> str | None:
        if self.dialect == "mysql":
            return str(error.args[0]) if type(error).__module__.startswith("pymysql") else None
        return getattr(error, "sqlstate", None) or getattr(error, "sqlite_errorname", None)


def test_a_hand_written_driver_of_ten_lines_works(queue, doors, backend):
    if backend == "sqlite":
        # What fairturn.drivers.sqlite does for a connection it knows.
        from fairturn.drivers.sqlite import register
    with plain(backend, doors.url(backend)) as mine:
        if backend == "sqlite":
            register(mine.connection)
        driver = TenLines(mine.connection, backend)
        bound = queue.using(driver)
        mine.begin()
        bound.send({"a": 1}, key="k", channel="c")
        with pytest.raises(DuplicateKey):
            bound.send(2, key="k")
        [message] = bound.receive()
        assert message.body == {"a": 1}
        message.ack()
        bound.send(3)
        mine.commit()
    assert [m.body for m in queue.peek()] == [3]


# --- isolation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("backend", SERVERS, indirect=True)
def test_10_01_receive_refuses_other_isolation_levels(queue, doors, backend, level):
    queue.send(1)
    with plain(backend, doors.url(backend)) as mine:
        if backend == "mysql":
            mine.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            mine.commit()
        mine.begin()
        if backend == "postgresql":
            mine.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        with pytest.raises(UnsafeTransaction, match=r"(?i)read committed"):
            queue.using(mine.connection).receive()
        mine.rollback()
        mine.begin()
        if backend == "postgresql":
            mine.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        queue.using(mine.connection).send(2)
        mine.commit()
    assert len(queue.receive(5)) == 2


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("backend", SERVERS, indirect=True)
def test_10_01_promote_at_other_isolation_levels(queue, doors, backend, level):
    """On MySQL it would lock out whoever schedules there; on PostgreSQL it locks only its rows."""
    queue.send(1, delay=600)
    with plain(backend, doors.url(backend)) as mine:
        if backend == "mysql":
            mine.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            mine.commit()
        mine.begin()
        if backend == "mysql":
            with pytest.raises(UnsafeTransaction, match=r"(?i)read committed"):
                queue.using(mine.connection).promote(900)
        else:
            mine.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            assert queue.using(mine.connection).promote(900) == 1
        mine.rollback()
    assert queue.promote(900) == 1


@pytest.mark.server
def test_10_01_our_own_sessions_on_postgres_are_read_committed_whatever_the_default(doors):
    """A server whose default is stricter must not matter."""
    url = servers.postgres_url("strict")
    with plain("postgresql", url) as mine:
        mine.execute(
            "ALTER DATABASE " + url.rsplit("/", 1)[1] + " SET default_transaction_isolation = "
            "'repeatable read'"
        )
        mine.commit()
    with fairturn.connect(url) as database:
        database.migrate()
        queue = database.queue("q")
        queue.create()
        queue.send(1)
        queue.receive()[0].ack()


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize("operation", ["send", "receive", "ack"])
def test_10_03_sqlite_a_transaction_that_read_first_is_refused(queue, doors, operation):
    queue.send_many([0, 1])
    [message] = queue.receive()
    connection = sqlite3.connect(sqlite_path(doors.url("sqlite")), isolation_level=None, timeout=30)
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM person").fetchall()
        queue.send(2)  # another writer commits: our snapshot is old
        bound = queue.using(connection)
        calls = {
            "send": lambda: bound.send(3),
            "receive": bound.receive,
            "ack": lambda: message.using(connection).ack(),
        }
        with pytest.raises(UnsafeTransaction, match="BEGIN IMMEDIATE"):
            calls[operation]()
        connection.rollback()
    finally:
        connection.close()
    assert queue.stats().total == 3


# --- only PostgreSQL can make a lost lease fatal ------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_promise_04_after_a_lost_lease_postgresql_cannot_commit(queue, doors, verb):
    queue.send(1)
    [stale] = queue.receive(lease=0)
    queue.receive()
    name = queue.name
    with plain("postgresql", doors.url("postgresql")) as mine:
        mine.execute(f"INSERT INTO person VALUES ('{name}')")
        args, kwargs = VERBS[verb]
        with pytest.raises(LeaseLost):
            getattr(stale.using(mine.connection), verb)(*args, **kwargs)
        mine.commit()  # swallowed the exception: PostgreSQL rolls back all the same
        assert mine.execute(f"SELECT count(*) FROM person WHERE name = '{name}'") == [(0,)]
        mine.rollback()


# --- nobody waits for a sender ------------------------------------------------------------------


def within(seconds: float, call: Any) -> Any:
    """Run a call in a thread; fail if it does not come back in time."""
    out: list[Any] = []
    thread = threading.Thread(target=lambda: out.append(call()), daemon=True)
    thread.start()
    thread.join(seconds)
    return thread, out


POLICIES: dict[str, dict[str, Any]] = {
    "no policy": {},
    "concurrency": {"max_concurrency": 5},
    "rate": {"rate": "1000/s", "burst": 100},
    "ordered": {"ordered": True},
    "size": {"max_size": 100},
    "weight": {"weight": 3},
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("backend", SERVERS, indirect=True)
def test_promise_06_an_open_send_delays_nobody(queue, doors, backend, policy):
    """A transaction that has sent to a channel, and stays open, holds up no sender and no
    receiver of that channel, limits or not."""
    if POLICIES[policy]:
        queue.channel("c").set_policy(**POLICIES[policy])
    queue.send("before", channel="c")
    with plain(backend, doors.url(backend)) as mine:
        mine.begin()
        bound = queue.using(mine.connection)
        bound.send("open", channel="c", key="mine")
        bound.send_many([Send("open", channel="c"), Send("open", channel="c", delay=60)])

        def work() -> list[Any]:
            queue.send("other", channel="c")
            queue.send_many([Send("other", channel="c", key=f"k{n}") for n in range(3)])
            got = []
            while messages := queue.receive(10):
                got += [m.body for m in messages]
                assert queue.ack(messages).lost == []
            return got

        thread, out = within(20, work)
        blocked = thread.is_alive()
        mine.rollback()
        thread.join()
    assert not blocked, "an open transaction that only sent held up other clients"
    assert out == [["before"] + ["other"] * 4]


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
def test_10_15_only_senders_of_the_same_key_wait_for_each_other(queue, doors, backend):
    with plain(backend, doors.url(backend)) as mine:
        mine.begin()
        queue.using(mine.connection).send(1, key="same")
        other, _ = within(20, lambda: queue.send(2, key="other"))
        blocked = other.is_alive()
        same, out = within(0.3, lambda: queue.send(3, key="same", on_conflict="ignore"))
        waited = same.is_alive()
        mine.commit()
        same.join()
        other.join()
    assert not blocked
    assert waited, "the second sender of a key must wait for the first to decide"
    assert out[0].outcome == "duplicate"
    assert sorted(m.body for m in queue.peek()) == [1, 2]


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
def test_an_open_receive_blocks_no_other_receive(queue, doors, backend):
    queue.send_many([Send(n, channel=c) for c in "ab" for n in range(3)])
    with plain(backend, doors.url(backend)) as mine:
        mine.begin()
        [held] = queue.using(mine.connection).receive()
        thread, out = within(20, lambda: queue.receive(10))
        blocked = thread.is_alive()
        mine.rollback()
        thread.join()
    assert not blocked
    assert held.id not in [m.id for m in out[0]]
    assert len(out[0]) == 5


# --- through a pooler ---------------------------------------------------------------------------


@pytest.mark.server
def test_postgres_behind_pgbouncer_in_transaction_mode():
    servers.postgres_url("bounced")
    url = servers.pgbouncer_url("bounced")
    with fairturn.connect(url, prepare=False) as database:
        assert database.migrate()
        queue = database.queue("q")
        queue.create()
        queue.channel("c1").set_policy(max_concurrency=5, rate="1000/s", burst=100)
        queue.send_many([Send(n, channel=f"c{n % 3}", key=f"k{n}") for n in range(60)])
        got: list[int] = []
        guard = threading.Lock()

        def work() -> None:
            while messages := queue.receive(5):
                assert queue.ack(messages).lost == []
                with guard:
                    got.extend(m.body for m in messages)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        work()  # what a closed channel left behind
        assert sorted(got) == list(range(60))
        assert queue.stats().acked == 60


@pytest.mark.server
def test_postgres_behind_pgbouncer_with_your_connection():
    import psycopg

    servers.postgres_url("bounced2")
    url = servers.pgbouncer_url("bounced2")
    with fairturn.connect(url, prepare=False) as database:
        database.migrate()
        queue = database.queue("q")
        queue.create()
        for n in range(10):
            with psycopg.connect(url, prepare_threshold=None) as connection:
                queue.using(connection).send(n)
                [message] = queue.using(connection).receive()
                message.using(connection).ack()
        assert queue.stats().acked == 10
