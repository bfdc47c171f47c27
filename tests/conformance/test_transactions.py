"""Your transaction, on every kind of connection (semantics §17, promises 2-4, DESIGN §10.1-3)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn import DuplicateKey, LeaseLost, Send
from tests import servers, tiers
from tests.conformance.door import unique
from tests.conformance.yours import KINDS, Kind, plain


class Setup:
    """A kind of connection, a queue seen from outside, and the same queue for using()."""

    def __init__(self, kind: Kind, database: fairturn.Database, url: str) -> None:
        self.kind = kind
        self.outside = database.queue(unique())
        self.outside.create()
        self.mine = kind.cls(url)
        self.url = url
        self._async: Any = None
        if kind.is_async:
            self._async = fairturn.connect_async(url)
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
        with plain(self.kind.backend, self.url) as mine:
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "setup" in metafunc.fixturenames:
        chosen = tiers.one_of_each(
            metafunc, KINDS, lambda kind: kind.backend, lambda kind: f"{kind.backend}-{kind.name}"
        )
        metafunc.parametrize("setup", chosen, indirect=True)


@pytest.fixture
def setup(request: Any, session_things: None, databases: Any, doors: Any) -> Iterator[Setup]:
    yield from _setups(request, databases, doors)


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
        message = fairturn.AsyncLeasedMessage(setup.queue, stale._row)
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


# A savepoint is not a transaction: it cannot end yours.
FORBIDDEN = re.compile(r"^\s*(BEGIN|START|COMMIT|ROLLBACK(?!\s+TO\b)|END|ABORT|SET)\b", re.I)


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
        with plain("mysql", setup.url) as admin:
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
