"""MySQL's own about groups and batches: marks, locks, and the SQL door."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest

from fairturn.backends.base import Batch, Opening, Peek, Receive
from fairturn.backends.verbs import ACK, Kill
from fairturn.core import errors
from fairturn.core.rows import SendRow
from fairturn.drivers.mysql.pymysql import connect
from fairturn.drivers.run import run
from tests import servers
from tests.conformance.locks import until_waiting
from tests.unit.test_mysql_backend import (
    Client,
    arguments,
    backend,
    item,
    leases,
    policy,
    shell,
)

pytestmark = pytest.mark.server

DATABASE = "mysql_groups"


@pytest.fixture(scope="module")
def migrated() -> None:
    client = Client(connect(**arguments(DATABASE)))
    client.migrate()
    client.driver.close()


@pytest.fixture
def opened(migrated: None) -> Iterator[Callable[[], Client]]:
    made: list[Client] = []

    def open() -> Client:
        client = Client(connect(**arguments(DATABASE), timeout=60))
        made.append(client)
        return client

    yield open
    for client in made:
        client.driver.rollback()
        client.driver.close()


@pytest.fixture
def a(opened: Callable[[], Client]) -> Client:
    return opened()


@pytest.fixture
def b(opened: Callable[[], Client]) -> Client:
    return opened()


def old(client: Client) -> None:
    """As if a second had passed."""
    client.sql("UPDATE fairturn_event SET written = written - INTERVAL 2 SECOND")


@pytest.fixture
def queue(a: Client) -> Iterator[str]:
    assert a.queue_create("q", {}, None)
    yield "q"
    a.driver.rollback()
    a.own = True
    a.queue_drop("q", None)
    for table in ("group", "group_mark", "member", "message"):
        a.sql(f"DELETE FROM fairturn_{table}")
    old(a)


@pytest.fixture
def start(a: Client, queue: str) -> str:
    """The cursor before the events of this test, which its queue has."""
    a.queue_set(queue, {"events": 1}, None)
    return a.events(None, None, None, 1)[1]


def member(group: str, body: bytes = b"m", **given: Any) -> SendRow:
    return item(body, group=group, **given)


def open_group(client: Client, name: str, **given: Any) -> bool:
    works = {"end": item(b"end"), "abort": item(b"abort"), **given}
    on_dead = given.get("on_dead", "i")
    return client.group_open(Opening(name, "q", on_dead, works["end"], works["abort"]), None)


def state(client: Client, name: str) -> tuple[Any, ...]:
    """State, sent, done, dead, held, waiting, leased."""
    row = client.group_status(name, None)
    return (row.state, row.sent, row.done, row.dead, row.held, row.waiting, row.leased)


def begin(client: Client) -> None:
    client.own = False
    client.driver.begin(True)


def commit(client: Client) -> None:
    client.driver.commit()
    client.own = True


# --- marks ------------------------------------------------------------------------------------


def test_a_mark_of_an_open_transaction_is_not_taken(a: Client, b: Client, queue: str) -> None:
    """Two open transactions ack the last two members, each settles; then only others can close."""
    open_group(a, "g")
    a.put(queue, member("g"), member("g"))
    a.group_start("g", None)
    first, second = a.take(queue, 2)
    begin(a)
    begin(b)
    a.apply_verb(queue, ACK, leases([first]), True, None)
    b.apply_verb(queue, ACK, leases([second]), True, None)
    assert (a.settle(100, None), b.settle(100, None)) == (0, 0)
    commit(a)
    assert a.settle(100, None) == 0
    commit(b)
    assert state(a, "g")[0] == "r"
    assert a.settle(100, None) == 1
    assert state(a, "g") == ("e", 2, 2, 0, 0, 0, 0)
    assert [row.body for row in a.take(queue, 10)] == [b"end"]


def test_a_receive_closes_before_it_acks_what_it_carries(a: Client, b: Client, queue: str) -> None:
    open_group(a, "g")
    a.put(queue, member("g"))
    a.put(queue, item(b"other"))
    a.group_start("g", None)
    one, other = a.take(queue, 2)
    begin(b)
    b.apply_verb(queue, ACK, leases([one]), True, None)
    commit(b)
    assert [row.body for row in a.take(queue, 10, acks=leases([other]))] == [b"end"]
    assert a.sql("SELECT COUNT(*) FROM fairturn_group_mark") == [(0,)]


def test_a_receive_in_your_transaction_settles_nothing(a: Client, queue: str) -> None:
    open_group(a, "g")
    a.put(queue, member("g"))
    a.group_start("g", None)
    a.apply_verb(queue, ACK, leases(a.take(queue, 1)), True, None)
    begin(a)
    assert a.take(queue, 10) == []
    commit(a)
    assert [row.body for row in a.take(queue, 10)] == [b"end"]


@pytest.mark.parametrize("many", [False, True])
def test_a_group_with_an_open_send_does_not_close(
    a: Client, b: Client, queue: str, many: bool
) -> None:
    open_group(a, "g")
    a.put(queue, member("g"))
    a.group_start("g", None)
    begin(b)
    b.put(queue, *[member("g", b"late")] * (2 if many else 1))
    a.apply_verb(queue, ACK, leases(a.take(queue, 1)), True, None)
    assert a.settle(100, None) == 0
    assert a.sql("SELECT COUNT(*) FROM fairturn_group_mark") != [(0,)]
    commit(b)
    assert a.settle(100, None) == 0
    rows = a.take(queue, 10)
    assert {row.body for row in rows} == {b"late"}
    a.apply_verb(queue, ACK, leases(rows), True, None)
    assert a.settle(100, None) == 1


def test_a_locked_group_does_not_hold_up_the_others(a: Client, b: Client, queue: str) -> None:
    for name in ("g", "h"):
        open_group(a, name)
        a.put(queue, member(name))
        a.group_start(name, None)
    begin(b)
    b.put(queue, member("g", b"late"))
    a.apply_verb(queue, ACK, leases(a.take(queue, 2)), True, None)
    assert a.settle(1, None) == 1
    assert (state(a, "g")[0], state(a, "h")[0]) == ("r", "e")
    b.driver.rollback()
    assert a.settle(100, None) == 1


def test_settle_has_a_limit(a: Client, queue: str) -> None:
    for n in range(5):
        open_group(a, f"g{n}")
        a.group_start(f"g{n}", None)  # empty: closes at once
        assert state(a, f"g{n}")[0] == "e"
        open_group(a, f"g{n}")
        a.put(queue, member(f"g{n}"))
        a.group_start(f"g{n}", None)
    while a.settle(100, None):
        pass
    rows = [row for row in a.take(queue, 100) if row.body == b"m"]
    for row in rows:
        a.apply_verb(queue, ACK, leases([row]), True, None)
    assert [a.settle(2, None) for _ in range(4)] == [2, 2, 1, 0]


def test_eight_threads_ack_the_last_members_and_each_group_ends_once(
    opened: Callable[[], Client], a: Client, queue: str
) -> None:
    groups, threads = 200, 8
    a.queue_create("ends", {}, None)
    for n in range(groups):
        a.group_open(Opening(f"g{n}", "ends", "i", item(b"%d" % n)), None)
    a.put(queue, *(member(f"g{n}", b"%d" % n) for n in range(groups) for _ in range(threads)))
    for n in range(groups):
        a.group_start(f"g{n}", None)
    a.settle(10_000, None)
    rows = a.take(queue, groups * threads)
    assert len(rows) == groups * threads
    by_group: dict[bytes, list[Any]] = {}
    for row in rows:
        by_group.setdefault(row.body, []).append(row)
    clients = [opened() for _ in range(threads)]
    barrier = threading.Barrier(threads)
    failed: list[BaseException] = []

    def finish(me: int) -> None:
        client = clients[me]
        try:
            for n in range(groups):
                barrier.wait(60)
                lease = leases([by_group[b"%d" % n][me]])
                for call in (
                    lambda lease=lease: client.apply_verb(queue, ACK, lease, True, None),
                    lambda: client.settle(100, None),
                ):
                    again(client, call)
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    workers = [threading.Thread(target=finish, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed
    # Nobody else settles: whoever came last to a group's lock, or holds it, has closed it.
    assert a.sql("SELECT COUNT(*) FROM fairturn_group WHERE state <> 'e'") == [(0,)]
    assert a.sql("SELECT COUNT(*) FROM fairturn_group_mark") == [(0,)]
    ends = a.run(backend.receive("ends", Receive(1000), a.consumer, None)).rows
    assert sorted(int(row.body) for row in ends) == list(range(groups))
    told = [json.loads(row.headers)["fairturn.group"] for row in ends]
    assert {(t["outcome"], t["sent"], t["done"], t["dead"]) for t in told} == {("ended", 8, 8, 0)}
    a.queue_drop("ends", None)


def again(client: Client, call: Callable[[], Any]) -> Any:
    """As the library does on connections of its own."""
    for _ in range(50):
        try:
            return call()
        except pymysql.MySQLError as error:
            if backend.translate(client.driver.code(error) or "", str(error)) != "busy":
                raise
    raise AssertionError("busy again and again")


# --- cancel and abort -------------------------------------------------------------------------


def test_an_abort_does_not_wait_for_a_locked_member(a: Client, b: Client, queue: str) -> None:
    open_group(a, "g", on_dead="a")
    a.put(queue, *(member("g", b"%d" % n) for n in range(3)))
    a.group_start("g", None)
    dead, busy = a.take(queue, 2)
    begin(b)
    b.apply_verb(queue, ACK, leases([busy]), True, None)
    a.apply_verb(queue, Kill("no"), leases([dead]), True, None)
    assert a.settle(100, None) == 0
    assert a.take(queue, 10) == []  # what could be deleted is gone
    commit(b)
    assert a.settle(100, None) == 1
    assert state(a, "g") == ("a", 3, 1, 1, 0, 0, 0)
    assert [row.body for row in a.take(queue, 10)] == [b"abort"]


def test_cancel_waits_for_locked_members_and_counts_its_own_marks(
    a: Client, b: Client, queue: str
) -> None:
    open_group(a, "g")
    a.put(queue, member("g"), member("g"))
    a.group_start("g", None)
    first, second = a.take(queue, 2)
    begin(b)
    b.apply_verb(queue, ACK, leases([first]), True, None)
    begin(a)
    done: list[bool] = []
    a.apply_verb(queue, ACK, leases([second]), True, None)
    thread = threading.Thread(target=lambda: done.append(a.group_cancel("g", None)))
    thread.start()
    until_waiting("mysql", servers.mysql_url(DATABASE), 1, lambda: done)
    commit(b)
    thread.join()
    commit(a)
    assert done == [True]
    assert state(a, "g") == ("c", 2, 2, 0, 0, 0, 0)
    [row] = a.take(queue, 10)
    told = {"name": "g", "outcome": "cancelled", "sent": 2, "done": 2, "dead": 0}
    assert json.loads(row.headers) == {"fairturn.group": told}


def test_a_work_that_somebody_cancels_holds_up_nobody(a: Client, b: Client, queue: str) -> None:
    open_group(a, "g")
    [(end,), _] = a.sql("SELECT id FROM fairturn_message ORDER BY id")
    a.put(queue, member("g"))
    a.group_start("g", None)
    begin(b)
    assert b.cancel(queue, end, None, False, None) == "c"
    a.apply_verb(queue, ACK, leases(a.take(queue, 1)), True, None)
    assert a.settle(100, None) == 0
    commit(b)
    assert a.settle(100, None) == 1
    assert a.peek(queue, Peek(10), None) == []


def test_two_make_the_same_group(a: Client, b: Client, queue: str) -> None:
    begin(a)
    a.put(queue, member("g"))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(b.put(queue, member("g"))))
    thread.start()
    until_waiting("mysql", servers.mysql_url(DATABASE), 1, lambda: found)
    commit(a)
    thread.join()
    assert len(found) == 1
    assert state(a, "g") == ("o", 2, 0, 0, 2, 0, 0)
    assert a.sql("SELECT COUNT(*) FROM fairturn_group") == [(1,)]


def test_start_and_cancel_need_read_committed(a: Client, queue: str) -> None:
    open_group(a, "g")
    a.sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    begin(a)
    a.put(queue, member("g"))
    with pytest.raises(errors.UnsafeTransaction, match=r"^starting a group needs READ COMMITTED"):
        a.group_start("g", None)
    with pytest.raises(errors.UnsafeTransaction, match=r"^cancelling a group needs READ COMMITTED"):
        a.group_cancel("g", None)
    with pytest.raises(errors.UnsafeTransaction, match=r"^reading events needs READ COMMITTED"):
        a.events("", None, None, 1)


def test_an_old_snapshot_does_not_hide_a_group(a: Client, b: Client, queue: str) -> None:
    """REPEATABLE READ: the group was made, or closed, after the snapshot."""
    a.sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    open_group(b, "old")
    begin(a)
    a.peek(queue, Peek(1), None)
    b.group_cancel("old", None)
    open_group(b, "new")
    b.group_start("new", None)
    b.put(queue, member("new"))
    b.group_start("new", None)
    a.put(queue, member("new"), member("old"))
    a.put(queue, member("new"))
    commit(a)
    assert state(b, "old") == ("o", 1, 0, 0, 1, 0, 0)
    assert state(b, "new")[1:] == (3, 0, 0, 0, 3, 0)


def test_a_trigger_can_send_to_a_group(a: Client, queue: str, start: str) -> None:
    a.sql("CREATE TABLE orders (id INT PRIMARY KEY)")
    a.sql(
        "CREATE TRIGGER orders_send AFTER INSERT ON orders FOR EACH ROW "
        "CALL fairturn_put('q', '1', '{\"group\": \"é\"}', @sent)"
    )
    try:
        a.sql("INSERT INTO orders VALUES (7), (8)")
    finally:
        a.sql("DROP TABLE orders")
    assert state(a, "é") == ("o", 2, 0, 0, 2, 0, 0)
    assert [row.kind for row in a.events(start, None, None, 10)[0]] == ["created"] * 2


# --- batches ----------------------------------------------------------------------------------


def test_a_batch_is_one_round_trip_per_kind(a: Client, queue: str) -> None:
    a.policy_set(queue, "old", policy(weight=2), None)
    a.queue_create("r", {}, None)
    sets = [("q", "x", policy(max_concurrency=1)), ("r", "y", policy(weight=3))]
    op = backend.batch(Batch(sets, [("q", "old")], [("q", [item()]), ("r", [item()])]), None)
    texts: list[str] = []

    class Listening:
        def __getattr__(self, name: str) -> Any:
            return getattr(a.driver, name)

        def execute(self, text: str, params: Any) -> Any:
            texts.append(text)
            return a.driver.execute(text, params)

    listening: Any = Listening()
    sent = run(op, listening, True)
    assert len(texts) == 4
    assert [[outcome for _, outcome in items] for items in sent] == [["s"], ["s"]]
    assert [row.channel for row in a.channels(queue, 10, None)] == ["", "x"]
    assert [(row.channel, row.policy) for row in a.channels("r", 10, None)] == [
        ("", None),
        ("y", policy(weight=3)),
    ]
    with pytest.raises(errors.QueueNotFound):
        a.batch(Batch([("q", "x", policy()), ("nobody", "x", policy())], [], []), None)
    a.queue_drop("r", None)


# --- the SQL door -----------------------------------------------------------------------------


def test_groups_from_a_bare_client(a: Client, queue: str, start: str) -> None:
    database = arguments(DATABASE)["database"]
    made = shell(
        database,
        """CALL fairturn_queue_set('q', '{"events": true}');
           CALL fairturn_group_open('é', 'q', '{"end": {"body": {"n": 7}, "priority": 2}}');
           CALL fairturn_group_open('é', 'q', NULL);
           CALL fairturn_send('q', '1', '{"group": "é"}');
           CALL fairturn_send_many('q', '[{"body": 2, "group": "é", "delay": 60}]');
           CALL fairturn_group_start('é', NULL);
           CALL fairturn_group_status('é', NULL);""",
    ).split("\n")
    assert made[0:2] == ["1", "0"]
    assert made[4] == "1"
    assert made[5].split("\t")[:3] == ["é", "q", "r"]
    assert made[5].split("\t")[6:] == ["2", "0", "0", "0", "2", "0"]
    [row] = a.take(queue, 5)
    shell(
        database,
        f"""CALL fairturn_progress('q', '[[{row.id}, {row.token}]]', 'half', '{{"progress": 0.5}}');
            CALL fairturn_ack('q', '[[{row.id}, {row.token}]]', NULL);""",
    )
    assert shell(database, "CALL fairturn_group_cancel('é', '{}');") == "1\n"
    assert shell(database, "CALL fairturn_settle(10, NULL);") == "0\n"
    read = shell(
        database,
        f"""CALL fairturn_events('{start}', 'q', '{{"kinds": ["progress", "closed"], "limit": 5}}');
            SELECT @fairturn_cursor;""",
    ).split("\n")
    assert [line.split("\t")[2] for line in read[:2]] == ["progress", "closed"]
    assert read[0].split("\t")[8] == '{"progress": 0.5, "note": "half"}'
    position, following = read[1].split("\t")[0], read[2]
    assert int(following.split("-")[0]) >= int(position.split("-")[0])
    for text in (
        "CALL fairturn_group_open('', 'q', '{}')",
        "CALL fairturn_group_open('x', 'q', '{\"on_dead\": \"what\"}')",
        "CALL fairturn_group_open('x', 'q', '{\"end\": {\"bdoy\": 1}}')",
        "CALL fairturn_group_open('x', 'nobody', '{}')",
        "CALL fairturn_progress('q', '[]', NULL, '{\"progress\": 2}')",
        "CALL fairturn_events('x', 'q', '{}')",
    ):
        with pytest.raises(pymysql.MySQLError) as raised:
            a.sql(text)
        meant = backend.translate(a.driver.code(raised.value) or "", str(raised.value))
        assert isinstance(meant, errors.UsageError), text
