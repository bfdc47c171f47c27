"""MySQL's own about transactions and locks: whose a call is, and who waits for whom."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pymysql
import pytest

from fairturn.backends.base import Peek
from fairturn.backends.verbs import ACK, Lease
from fairturn.core import errors
from tests import servers
from tests.conformance.locks import until_waiting
from tests.unit.test_mysql_backend import (
    DATABASE,
    Client,
    a,
    b,
    backend,
    item,
    leases,
    migrated,
    opened,
    policy,
    queue,
)

pytestmark = pytest.mark.server

__all__ = ["a", "b", "migrated", "opened", "queue"]  # fixtures


# --- transactions -----------------------------------------------------------------------------


def test_a_call_belongs_to_the_callers_transaction(a: Client, b: Client, queue: str) -> None:
    a.own = False
    a.driver.begin(True)
    a.put(queue)
    a.put(queue, item(), item(key="k"))
    assert b.take(queue, 10) == []
    a.driver.rollback()
    assert b.take(queue, 10) == []
    assert b.stats(queue, None)[0].sent == 0  # nothing was counted either


def test_a_call_without_a_transaction_is_one(a: Client, b: Client, queue: str) -> None:
    a.sql("CALL fairturn_send('q', '1', '{}')")
    assert len(b.take(queue, 10)) == 1


def test_an_error_takes_back_its_own_call_and_nothing_else(a: Client, queue: str) -> None:
    a.put(queue, item(), item())
    first, second = a.take(queue, 2)
    a.own = False
    a.driver.begin(True)
    a.put(queue, item(b"mine"))
    a.apply_verb(queue, ACK, leases([first]), True, None)
    with pytest.raises(errors.LeaseLost) as lost:
        a.apply_verb(queue, ACK, [*leases([second]), Lease(10**9, 1)], True, None)
    assert lost.value.ids == [10**9]
    assert lost.value.queue == "q"
    a.driver.commit()
    states = [row.state for row in a.peek(queue, Peek(10), None)]
    assert states == ["l", "r"]  # the second lease still holds, and my own message was sent


def test_receive_needs_read_committed(a: Client, queue: str) -> None:
    a.put(queue)
    a.sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    assert len(a.take(queue)) == 1  # without your transaction it makes one that fits
    a.own = False
    a.driver.begin(True)
    with pytest.raises(errors.UnsafeTransaction, match="READ COMMITTED"):
        a.take(queue)


def test_a_trigger_can_send(a: Client, queue: str) -> None:
    a.sql("CREATE TABLE orders (id INT PRIMARY KEY)")
    a.sql(
        "CREATE TRIGGER orders_send AFTER INSERT ON orders FOR EACH ROW "
        "CALL fairturn_put('q', JSON_OBJECT('order', NEW.id), '{}', @sent)"
    )
    try:
        a.sql("INSERT INTO orders VALUES (7)")
    finally:
        a.sql("DROP TABLE orders")
    [row] = a.take(queue)
    assert (row.body, row.json) == (b'{"order": 7}', 1)


# --- locks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 5])
def test_a_senders_open_transaction_delays_nobody(
    a: Client, b: Client, queue: str, limit: int | None
) -> None:
    if limit:
        a.policy_set(queue, "c", policy(max_concurrency=limit), None)
    b.sql("SET SESSION innodb_lock_wait_timeout = 1")
    b.put(queue, item(b"0", "c"))
    a.own = False
    a.driver.begin(True)
    a.put(queue, item(b"1", "c"))
    a.put(queue, item(b"2", "c"), item(b"3", "c", key="k"))
    b.put(queue, item(b"4", "c"), item(b"5", "c"))
    rows = b.take(queue, 10)
    assert [row.body for row in rows] == ([b"0", b"4", b"5"])
    b.apply_verb(queue, ACK, leases(rows), True, None)
    a.driver.commit()
    assert [row.body for row in b.take(queue, 10)] == [b"1", b"2", b"3"]


def test_a_locked_gate_is_passed_by_and_the_limit_holds(a: Client, b: Client, queue: str) -> None:
    a.queue_set(queue, {"max_concurrency": 1}, None)
    a.put(queue, *(item(b"%d" % i, channel) for i in range(3) for channel in ("x", "y")))
    a.own = False
    a.driver.begin(True)
    assert len(a.take(queue, 1)) == 1  # x: its gate is ours now
    b.sql("SET SESSION innodb_lock_wait_timeout = 1")
    assert [row.channel for row in b.take(queue, 10)] == ["y"]
    assert b.take(queue, 10) == []
    a.driver.commit()
    assert b.take(queue, 10) == []


def test_limits_are_exact_under_eight_consumers(
    opened: Callable[..., Client], a: Client, queue: str
) -> None:
    a.queue_set(queue, {"max_concurrency": 2, "limit_concurrency": 5}, None)
    a.put(queue, *(item(b"", f"c{i % 4}") for i in range(400)))
    clients = [opened() for _ in range(8)]
    worst: list[int] = []
    all_of_them: list[int] = []
    taken: list[int] = []

    def consume(client: Client) -> None:
        held: list[tuple[int, int]] = []
        for _ in range(200):
            try:
                rows = client.take(queue, 3, acks=held)
            except pymysql.MySQLError as error:
                if backend.translate(client.driver.code(error) or "", str(error)) != "busy":
                    raise
                continue
            held = leases(rows)
            taken.extend(row.id for row in rows)
            counts = client.sql(
                "SELECT COUNT(*) FROM fairturn_message m JOIN fairturn_queue q ON q.lane = m.lane "
                "WHERE m.state = 'l' GROUP BY m.channel"
            )
            worst.extend(count for (count,) in counts)
            all_of_them.append(sum(count for (count,) in counts))
            if len(taken) >= 400:
                break
        client.apply_verb(queue, ACK, held, False, None)

    threads = [threading.Thread(target=consume, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == 400
    assert max(worst) <= 2
    assert max(all_of_them) <= 5


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_senders_of_one_key_wait_for_each_other(
    a: Client, b: Client, queue: str, many: bool, commit: bool
) -> None:
    a.own = False
    a.driver.begin(True)
    [(first, _)] = a.put(queue, item(b"a", key="k"))
    items = (
        [item(b"0"), item(b"b", key="k", on_conflict="i"), item(b"2")]
        if many
        else [item(b"b", key="k", on_conflict="i")]
    )
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(b.put(queue, *items)))
    thread.start()
    until_waiting("mysql", servers.mysql_url(DATABASE), 1, lambda: found)
    if commit:
        a.driver.commit()
    else:
        a.driver.rollback()
    thread.join()
    outcomes = [outcome for _, outcome in found[0]]
    ids = [id for id, _ in found[0]]
    if commit:
        assert outcomes == (["s", "d", "s"] if many else ["d"])
        assert ids[1 if many else 0] == first
    else:
        assert set(outcomes) == {"s"}
    rows = b.peek(queue, Peek(10), None)
    assert sorted({*ids, *([first] if commit else [])}) == [row.id for row in rows]
    assert b.stats(queue, None)[0].sent == len(rows)


def test_an_ordered_head_that_is_locked_closes_the_channel(
    a: Client, b: Client, queue: str
) -> None:
    a.queue_set(queue, {"ordered": 1}, None)
    [(head, _), _] = a.put(queue, item(b"1"), item(b"2"))
    a.driver.begin(True)
    a.sql(f"SELECT id FROM fairturn_message WHERE id = {head} FOR UPDATE")
    assert b.take(queue, 10) == []
    a.driver.rollback()
    assert [row.body for row in b.take(queue, 10)] == [b"1", b"2"]
