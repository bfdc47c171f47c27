"""Your transaction, on every kind of connection (semantics §12, promises 2-4, DESIGN §10.1-3)."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead import DuplicateKey, InvalidArgument, LeaseLost, Send, UnsafeTransaction
from tests import servers
from tests.conformance.connections import sqlite_path
from tests.conformance.door import unique
from tests.conformance.yours import KINDS, Kind, Mine

BACKENDS = ("sqlite", "postgresql", "mysql")
SERVERS = ("postgresql", "mysql")


@pytest.fixture(scope="session")
def databases(doors: Any) -> Iterator[dict[str, fairlead.Database]]:
    """A Database of our own per backend, without a test clock: as users have it."""
    opened: dict[str, fairlead.Database] = {}

    class Lazy(dict):  # type: ignore[type-arg]
        def __missing__(self, backend: str) -> fairlead.Database:
            database = fairlead.connect(doors.url(backend))
            database.migrate()
            with Mine_of(backend)(doors.url(backend)) as mine:
                mine.begin()
                mine.execute("CREATE TABLE IF NOT EXISTS person (name VARCHAR(50))")
                mine.commit()
            opened[backend] = self[backend] = database
            return database

    yield Lazy()
    for database in opened.values():
        database.close()


def Mine_of(backend: str) -> Any:
    """The plain sync connection of a backend, as a context manager."""
    kind = next(k for k in KINDS if k.backend == backend and not k.is_async)

    @contextlib.contextmanager
    def opened(url: str) -> Iterator[Mine]:
        mine = kind.cls(url)
        try:
            yield mine
        finally:
            mine.close()

    return opened


class Setup:
    """A kind of connection, a queue seen from outside, and the same queue for using()."""

    def __init__(self, kind: Kind, database: fairlead.Database, url: str) -> None:
        self.kind = kind
        self.outside = database.queue(unique())
        self.outside.create()
        self.mine = kind.cls(url)
        self.url = url
        self._async: Any = None
        if kind.is_async:
            self._async = fairlead.connect_async(url)
            self.queue: Any = self._async.queue(self.outside.name)
        else:
            self.queue = self.outside

    def do(self, target: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        """target.using(mine).name(…), where target is a queue or a message."""
        bound = target.using(self.mine.connection)
        return self.mine.wait(getattr(bound, name)(*args, **kwargs))

    def send(self, body: Any, **options: Any) -> Any:
        return self.do(self.queue, "send", body, **options)

    def people(self) -> int:
        with Mine_of(self.kind.backend)(self.url) as mine:
            mine.begin()
            [(count,)] = mine.execute(
                f"SELECT count(*) FROM person WHERE name = '{self.outside.name}'"
            )
            mine.rollback()
            return count

    def insert(self) -> None:
        self.mine.execute(f"INSERT INTO person VALUES ('{self.outside.name}')")

    def close(self) -> None:
        if self._async is not None:
            self.mine.wait(self._async.close())
        self.mine.close()
        self.outside.drop()


def _setups(request: Any, databases: Any, doors: Any) -> Iterator[Setup]:
    kind = request.param
    setup = Setup(kind, databases[kind.backend], doors.url(kind.backend))
    yield setup
    setup.close()


_IDS = [f"{kind.backend}-{kind.name}" for kind in KINDS]


@pytest.fixture
def session_things(request: pytest.FixtureRequest, databases: Any) -> None:
    """tests/conftest.py asks for this before it counts what there is."""
    params = getattr(request.node, "callspec", None)
    for value in params.params.values() if params else ():
        backend = value.backend if isinstance(value, Kind) else value
        if backend in BACKENDS:
            databases[backend].queues()


@pytest.fixture(params=KINDS, ids=_IDS)
def setup(request: Any, session_things: None, databases: Any, doors: Any) -> Iterator[Setup]:
    yield from _setups(request, databases, doors)


POSTGRES = [kind for kind in KINDS if kind.backend == "postgresql"]


# --- on every kind ------------------------------------------------------------------------------


def test_promise_02_it_exists_when_you_commit(setup):
    setup.mine.begin()
    setup.insert()
    sent = setup.send({"user": 7}, key="k", channel="c")
    assert setup.outside.get(id=sent) is None
    if setup.kind.backend != "sqlite":  # which has one writer: you
        assert setup.outside.receive() == []
    setup.mine.commit()
    [message] = setup.outside.receive()
    assert (message.id, message.body) == (sent, {"user": 7})
    assert setup.people() == 1


def test_promise_02_rollback_leaves_nothing(setup):
    setup.mine.begin()
    setup.insert()
    setup.send(1)
    setup.do(setup.queue, "send_many", [Send(n, key=f"k{n}") for n in range(100)])
    setup.mine.rollback()
    assert setup.outside.stats().total == 0
    assert setup.outside.stats().sent == 0
    assert setup.people() == 0
    assert setup.outside.send(1, key="k1").created


def test_promise_03_ack_with_your_own_writes(setup):
    setup.outside.send(1)
    setup.mine.begin()
    [message] = setup.do(setup.queue, "receive")
    setup.mine.commit()
    setup.mine.begin()
    setup.insert()
    setup.do(message, "ack")
    setup.mine.rollback()
    assert setup.outside.stats().leased == 1
    assert setup.people() == 0
    setup.mine.begin()
    setup.insert()
    setup.do(message, "ack")
    setup.mine.commit()
    assert setup.outside.stats().total == 0
    assert setup.people() == 1


def test_a_receive_that_is_rolled_back_never_happened(setup):
    setup.outside.send_many([1, 2])
    setup.mine.begin()
    assert len(setup.do(setup.queue, "receive", 2)) == 2
    setup.mine.rollback()
    [one, two] = setup.outside.receive(2)
    assert (one.deliveries, two.deliveries) == (1, 1)
    assert setup.outside.stats().delivered == 2


def test_your_transaction_sees_its_own_sends(setup):
    setup.mine.begin()
    sent = setup.send(1)
    assert setup.do(setup.queue, "get", id=sent).body == 1
    [message] = setup.do(setup.queue, "receive")
    assert message.id == sent
    setup.do(message, "ack")
    setup.mine.commit()
    assert setup.outside.stats().total == 0
    assert setup.outside.stats().acked == 1


def test_a_duplicate_key_leaves_your_transaction_usable(setup):
    setup.outside.send(0, key="taken")
    setup.mine.begin()
    setup.insert()
    with pytest.raises(DuplicateKey):
        setup.send(1, key="taken")
    setup.send(2)
    setup.mine.commit()
    assert setup.people() == 1
    assert [m.body for m in setup.outside.peek()] == [0, 2]


def test_lost_leases_of_a_batch_leave_your_transaction_usable(setup):
    setup.outside.send_many([1, 2])
    messages = setup.outside.receive(2)
    messages[0].ack()
    setup.mine.begin()
    setup.insert()
    done = setup.do(setup.queue, "ack", messages)
    assert (done.acked, [m.id for m in done.lost]) == (1, [messages[0].id])
    setup.mine.commit()
    assert setup.people() == 1
    assert setup.outside.stats().total == 0


def test_promise_04_a_stale_lease_raises_in_your_transaction(setup):
    setup.outside.send(1)
    [stale] = setup.outside.receive(lease=0)
    [live] = setup.outside.receive()
    setup.mine.begin()
    setup.insert()
    message: Any = stale
    if setup.kind.is_async:
        message = fairlead.AsyncLeasedMessage(setup.queue, stale._row)
    with pytest.raises(LeaseLost):
        setup.do(message, "ack")
    setup.mine.rollback()
    assert setup.people() == 0
    live.ack()


TOUR = [
    ("create", (), {}),
    ("set", (), {"max_attempts": 2}),
    ("settings", (), {}),
    ("set_limit", (), {"max_concurrency": 50, "rate": "1000/s", "burst": 100}),
    ("send", ("a%s$1?:x",), {"key": "k%s$1?:x", "channel": "c%s$1?:x", "headers": {"%s": "?"}}),
    ("send", (b"\0%s?$1",), {"key": "k%s$1?:x", "on_conflict": "replace", "type": "t"}),
    ("send_many", ([Send(n, channel=f"c{n % 3}", key=f"key{n}") for n in range(10)],), {}),
    ("send_many", ([Send(n, delay=60, expires=90) for n in range(3)],), {}),
    ("channels", (), {}),
    ("peek", (), {}),
    ("stats", (), {}),
    ("get", (), {"key": "key1"}),
    ("explain", (), {"key": "key1"}),
    ("reschedule", (), {"key": "key1", "delay": 5, "priority": 3}),
    ("cancel", (), {"key": "key2"}),
    ("failures", (), {}),
    ("pause", (), {}),
    ("resume", (), {}),
]
VERBS = {
    "ack": ((), {}),
    "complete": (({"r": "%s"},), {}),
    "defer": ((5,), {"memo": b"\0%s"}),
    "fail": (("boom %s $1 ?",), {"details": {"a": 1}, "reference": "r"}),
    "kill": (("boom",), {}),
    "extend": ((60,), {}),
    "release": ((), {}),
}


def test_every_operation_runs_in_your_transaction(setup):
    """Also with %, ?, $1 and :x in values, since drivers differ in their placeholders."""
    setup.mine.begin()
    for name, args, kwargs in TOUR:
        setup.do(setup.queue, name, *args, **kwargs)
    channel = setup.queue.using(setup.mine.connection).channel("c0")
    setup.mine.wait(channel.set_policy(max_concurrency=5, rate="100/s", burst=10, weight=2))
    messages = setup.do(setup.queue, "receive", 8, lease=30, types=None, max_bytes=10_000)
    assert len(messages) == 8
    for message, (verb, (args, kwargs)) in zip(messages, VERBS.items(), strict=False):
        setup.do(message, verb, *args, **kwargs)
    more = setup.do(setup.queue, "receive", 2, ack=[messages[7]])
    setup.do(setup.queue, "release", list(more))
    assert setup.do(setup.queue, "redrive") == 1
    assert setup.do(setup.queue, "discard", state="done") == 1
    assert setup.mine.wait(channel.clear_policy()) is True
    before = setup.do(setup.queue, "stats")
    setup.mine.commit()
    after = setup.outside.stats()
    assert (after.sent, after.delivered, after.acked) == (before.sent, before.delivered, 2)
    assert after.sent == 14
    assert after.total == before.total
    setup.mine.begin()
    setup.do(setup.queue, "purge")
    setup.mine.commit()
    assert setup.outside.stats().total == 0


FORBIDDEN = re.compile(r"^\s*(BEGIN|START|COMMIT|ROLLBACK|END|ABORT|SAVEPOINT|RELEASE|SET)\b", re.I)


@contextlib.contextmanager
def recorded(setup: Setup) -> Iterator[list[str]]:
    """Every statement the database was sent on the user's connection, told by the database."""
    statements: list[str] = []
    mine = setup.mine
    if setup.kind.backend == "sqlite":
        raw = mine.connection
        if hasattr(raw, "get_bind"):
            raw = raw.connection()
        if hasattr(raw, "exec_driver_sql"):
            raw = raw.connection.driver_connection
        raw = getattr(raw, "connection", raw)
        raw.set_trace_callback(statements.append)
        yield statements
        raw.set_trace_callback(None)
    elif setup.kind.backend == "postgresql":
        [(pid,)] = mine.execute("SELECT pg_backend_pid()")
        mine.execute("SET LOCAL log_statement = 'all'")
        log = Path(servers.shared("postgresql")["directory"]) / "server.log"
        start = log.stat().st_size
        yield statements
        text = log.read_bytes()[start:].decode()
        statements += re.findall(rf"\[{pid}\] LOG:  (?:statement|execute [^:]*): (.*)", text)
    else:
        [(pid,)] = mine.execute("SELECT connection_id()")
        with Mine_of("mysql")(setup.url) as admin:
            admin.execute("SET GLOBAL log_output = 'TABLE'")
            admin.execute("SET GLOBAL general_log = 1")
            try:
                yield statements
                rows = admin.execute(
                    "SELECT argument FROM mysql.general_log WHERE command_type <> 'Close stmt' "
                    f"AND thread_id = {pid} ORDER BY event_time"
                )
                statements += [row[0].decode() if type(row[0]) is bytes else row[0] for row in rows]
            finally:
                admin.execute("SET GLOBAL general_log = 0")
                admin.execute("TRUNCATE mysql.general_log")


def test_promise_02_no_begin_commit_or_rollback_is_ever_sent(setup):
    setup.outside.send_many([Send(n, key=f"key{n}") for n in range(5)])
    setup.mine.begin()
    setup.insert()
    with recorded(setup) as statements:
        sent = setup.send(1, key="new")
        with pytest.raises(DuplicateKey):
            setup.send(2, key="key1")
        setup.do(setup.queue, "send_many", [Send(n, key=f"many{n}") for n in range(300)])
        messages = setup.do(setup.queue, "receive", 5)
        setup.do(messages[0], "ack")
        setup.do(messages[1], "fail", "boom")
        setup.do(setup.queue, "ack", [messages[2], messages[0]])
        setup.do(setup.queue, "cancel", id=sent)
        setup.do(setup.queue, "stats")
    assert len(statements) >= 8
    assert [text for text in statements if FORBIDDEN.match(text)] == []
    setup.mine.rollback()
    assert setup.outside.stats().total == 5


def test_the_connection_is_left_as_it_was(setup):
    """Row factories, text factories and the like are the user's."""
    setup.mine.begin()
    before = setup.mine.execute("SELECT 1, 'x'")
    setup.send("é")
    setup.do(setup.queue, "receive")
    assert setup.mine.execute("SELECT 1, 'x'") == before
    setup.mine.commit()


# --- kinds that are wrong -----------------------------------------------------------------------


@pytest.fixture(params=BACKENDS)
def backend(request: Any) -> str:
    return request.param


@pytest.fixture
def queue(backend: str, session_things: None, databases: Any) -> Iterator[fairlead.Queue]:
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
    assert "fairlead_driver = True" in text
    assert "def execute(self, text, params)" in text
    assert "psycopg" in text


def test_the_other_door_is_pointed_out(queue, doors, backend):
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
    database = fairlead.connect_async(doors.url(backend))
    with Mine_of(backend)(doors.url(backend)) as mine, pytest.raises(TypeError, match="connect"):
        database.queue("q").using(mine.connection)


def test_another_database_is_refused(queue, doors, backend):
    other = "postgresql" if backend != "postgresql" else "sqlite"
    with Mine_of(other)(doors.url(other)) as mine, pytest.raises(InvalidArgument, match=other):
        queue.using(mine.connection)


class TenLines:
    """The recipe of the error message, for any DB-API connection."""

    fairlead_driver = True
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
        # What fairlead.drivers.sqlite does for a connection it knows.
        from fairlead.drivers.sqlite import register
    with Mine_of(backend)(doors.url(backend)) as mine:
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
    with Mine_of(backend)(doors.url(backend)) as mine:
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


def test_10_01_our_own_sessions_are_read_committed_whatever_the_default(doors):
    """A server whose default is stricter must not matter."""
    url = servers.postgres_url("strict")
    with Mine_of("postgresql")(url) as mine:
        mine.execute(
            "ALTER DATABASE " + url.rsplit("/", 1)[1] + " SET default_transaction_isolation = "
            "'repeatable read'"
        )
        mine.commit()
    with fairlead.connect(url) as database:
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
    connection = sqlite3.connect(sqlite_path(doors.url("sqlite")), isolation_level=None, timeout=5)
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
    with Mine_of("postgresql")(doors.url("postgresql")) as mine:
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
    with Mine_of(backend)(doors.url(backend)) as mine:
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
    with Mine_of(backend)(doors.url(backend)) as mine:
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
    with Mine_of(backend)(doors.url(backend)) as mine:
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


def test_pgbouncer_in_transaction_mode():
    servers.postgres_url("bounced")
    url = servers.pgbouncer_url("bounced")
    with fairlead.connect(url, prepare=False) as database:
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


def test_pgbouncer_with_your_connection():
    import psycopg

    servers.postgres_url("bounced2")
    url = servers.pgbouncer_url("bounced2")
    with fairlead.connect(url, prepare=False) as database:
        database.migrate()
        queue = database.queue("q")
        queue.create()
        for n in range(10):
            with psycopg.connect(url, prepare_threshold=None) as connection:
                queue.using(connection).send(n)
                [message] = queue.using(connection).receive()
                message.using(connection).ack()
        assert queue.stats().acked == 10
