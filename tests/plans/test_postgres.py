"""At 50,000 rows of every kind the hot statements of PostgreSQL read what they give, and no more.

The plans are those inside the functions, of real calls, taken by auto_explain.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairturn.backends.base import ConsumerState, Receive, Reschedule
from fairturn.backends.postgres import PostgresBackend
from fairturn.backends.verbs import (
    ACK,
    RELEASE,
    Complete,
    Defer,
    Extend,
    Fail,
    Kill,
    Lease,
    Verb,
)
from fairturn.core.rows import SendRow
from fairturn.drivers.psycopg import PsycopgDriver, connect
from fairturn.drivers.run import run
from tests import servers
from tests.plans.conftest import Benches
from tests.plans.postgres import Plans, prepare, recorded

pytestmark = pytest.mark.server

NOW = 1_800_000_000_000_000
SECOND = 1_000_000
DAY = 86_400 * SECOND
ROWS = 50_000
N = 100
SLACK = 60

# A queue per kind of backlog; all in one table, so that each is a crowd to the others.
BACKLOGS = {
    "one": "state 'r', one channel",
    "many": "state 'r', 1,000 channels",
    "scheduled": "state 's', due next year",
    "leased": "state 'l', for another day",
    "dead": "state 'x'",
}
FILL = """
INSERT INTO fairturn.message (due_at, created_at, lane, rank, version, json, state, channel, body,
    lease_until, lease_no, attempts, deliveries, finished_at, error)
SELECT CASE WHEN k.scheduled THEN k.now + 365 * 86400000000 + i ELSE k.now - 1000 END, k.now,
    q.lane, 0, 0, 0, k.state,
    CASE WHEN k.many THEN 'c' || lpad((i %% 1000)::text, 4, '0') ELSE 'c' END, 'x',
    CASE WHEN k.leased THEN k.now + 86400000000 + i END,
    CASE WHEN k.leased THEN nextval('fairturn.lease_no') END, k.leased::int, k.leased::int,
    CASE WHEN k.dead THEN k.now - i END, CASE WHEN k.dead THEN 'no' END
FROM (SELECT kind, now, kind = 'scheduled' AS scheduled, kind = 'leased' AS leased,
        kind = 'dead' AS dead, kind = 'many' AS many,
        (CASE kind WHEN 'scheduled' THEN 's' WHEN 'leased' THEN 'l' WHEN 'dead' THEN 'x'
           ELSE 'r' END)::"char" AS state
      FROM (SELECT %(kind)s::text AS kind, %(now)s::bigint AS now) given) k
JOIN fairturn.queue q ON q.name = k.kind CROSS JOIN generate_series(1, %(rows)s) i
"""


class Bench:
    """A connection of ours and what it can do, with the plans of what it did."""

    def __init__(self, url: str) -> None:
        self.backend = PostgresBackend()
        self.driver: PsycopgDriver = connect(url, timeout=10, prepare=True)
        prepare(self.driver.connection)
        self.consumers: dict[str, ConsumerState] = {}

    def run(self, op: Any) -> Any:
        return run(op, self.driver, own=True)

    def receive(self, queue: str, n: int = N, **args: Any) -> tuple[list[Lease], Plans]:
        now = args.pop("now", NOW)
        consumer = self.consumers.setdefault(queue, ConsumerState())
        with recorded(self.driver.connection) as plans:
            got = self.run(self.backend.receive(queue, Receive(n, **args), consumer, now))
        return [Lease(row.id, row.token) for row in got.rows], plans

    def plans_of(self, op: Any) -> tuple[Any, Plans]:
        with recorded(self.driver.connection) as plans:
            value = self.run(op)
        return value, plans


@pytest.fixture
def bench(request: pytest.FixtureRequest, benches: Benches) -> Bench:
    return benches.bench(request, _crowded)


def _crowded(database: str) -> Bench:
    bench = Bench(servers.postgres_url(database))
    bench.run(bench.backend.migrate())
    connection = bench.driver.connection
    for kind in BACKLOGS:
        bench.run(bench.backend.queue_create(kind, {}, NOW))
        connection.execute(FILL, {"kind": kind, "now": NOW, "rows": ROWS})
    connection.execute("ANALYZE fairturn.message")
    return bench


@pytest.fixture
def session_things(bench: Bench) -> None:
    """The module's connection is there before the leaks of a test are counted."""


@pytest.fixture(autouse=True)
def early(session_things: None) -> None:
    pass


ITEM = SendRow("c", b"x", 0)


@pytest.mark.parametrize("kind", ["one", "many"])
def test_receive_and_ack(bench: Bench, kind: str) -> None:
    leases, plans = bench.receive(kind)
    assert len(leases) == N
    plans.check(N + SLACK)
    assert "message_ready" in plans.indexes()
    assert plans.read <= 5 * (N + SLACK)
    applied, plans = bench.plans_of(bench.backend.apply_verb(kind, ACK, leases, False, NOW))
    assert applied.lost == []
    plans.check(N + SLACK)
    assert plans.indexes() == {"message_pkey"}


@pytest.mark.parametrize("n", [1, 10])
@pytest.mark.parametrize("kind", ["one", "many"])
def test_small_receive(bench: Bench, kind: str, n: int) -> None:
    leases, plans = bench.receive(kind, n)
    assert len(leases) == n
    plans.check(n + SLACK)
    assert plans.read <= 5 * (n + SLACK)


@pytest.mark.parametrize("kind", ["one", "many"])
def test_receive_that_carries_acks(bench: Bench, kind: str) -> None:
    before, _ = bench.receive(kind)
    leases, plans = bench.receive(kind, acks=before)
    assert len(leases) == N
    plans.check(N + SLACK)


@pytest.mark.parametrize("kind", ["one", "many"])
def test_receive_with_the_memory_of_before(bench: Bench, kind: str) -> None:
    """With the database's clock, so that the hints are used from the second receive on."""
    bench.consumers[kind] = ConsumerState()
    for _ in range(3):
        leases, plans = bench.receive(kind, now=None)
        assert len(leases) == N
        plans.check(N + SLACK)
        bench.run(bench.backend.apply_verb(kind, ACK, leases, True, None))
    bench.consumers[kind] = ConsumerState()


@pytest.mark.parametrize("kind", ["scheduled", "leased", "dead"])
def test_empty_receive_beside_a_crowd(bench: Bench, kind: str) -> None:
    leases, plans = bench.receive(kind)
    assert leases == []
    plans.check(SLACK)
    assert plans.read <= SLACK


@pytest.mark.parametrize("kind", ["scheduled", "leased", "dead"])
def test_send_and_receive_beside_a_crowd(bench: Bench, kind: str) -> None:
    _, plans = bench.plans_of(bench.backend.send(kind, [ITEM], NOW))
    assert plans.read <= SLACK
    leases, plans = bench.receive(kind)
    assert len(leases) == 1
    plans.check(SLACK)
    applied, plans = bench.plans_of(bench.backend.apply_verb(kind, ACK, leases, True, NOW))
    assert applied.lost == []
    plans.check(SLACK)


@pytest.mark.parametrize("kind", ["one", "many"])
@pytest.mark.parametrize("what", ["one", "batch", "key"])
def test_send(bench: Bench, kind: str, what: str) -> None:
    keyed = ITEM._replace(key="k", on_conflict="r")
    items = {"one": [ITEM], "batch": [ITEM] * 50, "key": [keyed, ITEM]}[what]
    for _ in range(2):
        _, plans = bench.plans_of(bench.backend.send(kind, items, NOW))
        for node in plans.nodes:
            assert node.table != "message" or node.kind != "Seq Scan", node
        assert plans.read <= SLACK, plans.scans


@pytest.mark.parametrize("keep", [1, 60_000_000], ids=["forgotten", "known"])
def test_names(bench: Bench, keep: int) -> None:
    """Beside many others a name is one probe, in a table that was empty when it was planned."""
    backend, queue = bench.backend, f"named{keep}"
    bench.run(backend.queue_create(queue, {}, NOW))
    named = ITEM._replace(once="x", once_us=60_000_000)
    bench.run(backend.send(queue, [named], NOW))
    bench.run(backend.send(queue, [named, ITEM], NOW))
    bench.run(backend.remember(queue, "x", b"1", 60_000_000, NOW))
    names = [ITEM._replace(once=f"n{i}", once_us=keep) for i in range(5000)]
    bench.run(backend.send(queue, names, NOW))
    again = [ITEM._replace(once="n7", once_us=1), ITEM._replace(once="z", once_us=1), ITEM]
    for items in (
        [named],
        [ITEM._replace(once="y", once_us=1)],
        [ITEM._replace(once="n8", once_us=1)],
        again,
    ):
        _, plans = bench.plans_of(backend.send(queue, items, NOW + 1))
        assert plans.read <= SLACK, plans.scans
        read = sum(node.read for node in plans.nodes if node.table == "remembered")
        assert read <= 2 * len(items), plans.nodes
    value, plans = bench.plans_of(backend.recall(queue, "x", NOW + 1))
    assert value == b"1"
    assert sum(node.read for node in plans.nodes if node.table == "remembered") <= 1
    _, plans = bench.plans_of(backend.maintain(10, NOW + 1))
    assert sum(node.read for node in plans.nodes if node.table == "remembered") <= 30


def test_limited_channels(bench: Bench) -> None:
    """Counting leases under a gate goes through their own index, and no further than the limit."""
    for kind, columns in (("many", {"max_concurrency": 2}), ("leased", {"max_concurrency": 3})):
        bench.run(bench.backend.queue_set(kind, columns, NOW))
        leases, plans = bench.receive(kind)
        plans.check(N * 3 + SLACK)
        bench.run(bench.backend.queue_set(kind, {"max_concurrency": None}, NOW))
        if kind == "many":
            assert len(leases) == N
            assert "message_busy" in plans.indexes()
        bench.run(bench.backend.apply_verb(kind, ACK, leases, True, NOW))


def test_ordered_channel(bench: Bench) -> None:
    bench.run(bench.backend.queue_set("one", {"ordered": 1}, NOW))
    try:
        leases, plans = bench.receive("one", 10)
        plans.check(10 + SLACK)
        bench.run(bench.backend.apply_verb("one", ACK, leases, True, NOW))
    finally:
        bench.run(bench.backend.queue_set("one", {"ordered": 0}, NOW))


VERBS = [Complete(), Defer(None, DAY, 1), Fail("no", DAY), Kill("no"), Extend(None, 0), RELEASE]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_the_other_verbs(bench: Bench, verb: Verb) -> None:
    leases, _ = bench.receive("one", 10)
    operation = bench.backend.apply_verb("one", verb, leases, False, NOW)
    _, plans = bench.plans_of(operation)
    plans.check(10 + SLACK)
    assert plans.indexes() == {"message_pkey"}


def test_sweep_takes_what_is_due_and_no_more(bench: Bench) -> None:
    """50,000 leases that end one after the other: 40 have ended. 25 of the scheduled are due."""
    leases, plans = bench.receive("leased", 10, now=NOW + DAY + 40)
    assert len(leases) == 10
    plans.check(40 + SLACK)
    assert {"message_leased", "message_ready"} <= plans.indexes()
    leases, plans = bench.receive("scheduled", 10, now=NOW + 365 * DAY + 25)
    assert len(leases) == 10
    plans.check(25 + SLACK)
    assert "message_scheduled" in plans.indexes()


def test_dead_ones(bench: Bench) -> None:
    number, plans = bench.plans_of(bench.backend.redrive("dead", None, 20, 0, NOW))
    assert number == 20
    plans.check(20 + SLACK)
    assert "message_dead" in plans.indexes()
    number, plans = bench.plans_of(bench.backend.discard("dead", "x", 20, NOW))
    assert number == 20
    plans.check(20 + SLACK)


def test_move(bench: Bench) -> None:
    bench.run(bench.backend.queue_create("elsewhere", {}, NOW))
    for kind in ("scheduled", "leased", "dead"):
        bench.run(bench.backend.move(kind, "elsewhere", 1000, NOW))  # what others have left
        number, plans = bench.plans_of(bench.backend.move(kind, "elsewhere", 20, NOW))
        assert number == 0
        plans.check(SLACK)
    # It sorts all that is ready, but reads only the messages that it moves; to find those that have
    # a home it may have to read them all.
    for to, moved, through in (
        ("elsewhere", 20, {"message_ready"}),
        (None, 0, {"message_ready", "message_pkey"}),
    ):
        number, plans = bench.plans_of(bench.backend.move("many", to, 20, NOW))
        assert number == moved
        assert {node.index for node in plans.scans if node.read > 20 + SLACK} <= through
        assert all(node.kind != "Seq Scan" for node in plans.nodes if node.table == "message")


def test_promote(bench: Bench) -> None:
    """A year ahead of them all, and then of the first few."""
    bench.run(bench.backend.promote("scheduled", 0, ROWS, NOW))  # what others have left
    for within, limit, promoted in ((0, ROWS, 0), (364 * DAY, ROWS, 0), (366 * DAY, 20, 20)):
        number, plans = bench.plans_of(bench.backend.promote("scheduled", within, limit, NOW))
        assert number == promoted
        plans.check(promoted + SLACK)
        assert plans.indexes() <= {"message_scheduled", "message_pkey"}
    leases, plans = bench.receive("scheduled", 20)
    assert len(leases) == 20
    plans.check(20 + SLACK)


def test_one_by_id_or_key(bench: Bench) -> None:
    [(id, _)] = bench.run(
        bench.backend.send("one", [ITEM._replace(key="find", on_conflict="e")], NOW)
    )
    for operation in (
        bench.backend.get("one", id, None, NOW),
        bench.backend.get("one", None, "find", NOW),
        bench.backend.reschedule("one", None, "find", Reschedule(delay_us=0), NOW),
        bench.backend.cancel("one", None, "find", False, NOW),
    ):
        _, plans = bench.plans_of(operation)
        plans.check(2)


def test_a_fresh_database_that_fills_up() -> None:
    """Consumers that polled an empty database keep their prepared plans when 200,000 messages come
    and nobody has analysed the table."""
    url = servers.postgres_url("plans_fresh")
    consumer, producer = Bench(url), Bench(url)
    try:
        producer.run(producer.backend.migrate())
        producer.driver.connection.execute(
            "ALTER TABLE fairturn.message SET (autovacuum_enabled = off)"
        )
        producer.run(producer.backend.queue_create("one", {}, NOW))
        for _ in range(12):  # past the sixth, where PostgreSQL may settle for a generic plan
            assert consumer.receive("one")[0] == []
            assert consumer.receive("one", now=None)[0] == []
            consumer.run(consumer.backend.apply_verb("one", ACK, [Lease(1, 1)], False, NOW))
        producer.driver.connection.execute(FILL, {"kind": "one", "now": NOW, "rows": 200_000})
        [(analysed,)] = producer.driver.connection.execute(
            "SELECT reltuples FROM pg_class WHERE oid = 'fairturn.message'::regclass"
        ).fetchall()
        assert analysed <= 0, "somebody analysed the table"
        for _ in range(3):
            leases, plans = consumer.receive("one")
            assert len(leases) == N
            plans.check(N + SLACK)
            assert "message_ready" in plans.indexes()
            applied, plans = consumer.plans_of(
                consumer.backend.apply_verb("one", ACK, leases, False, NOW)
            )
            assert applied.lost == []
            plans.check(N + SLACK)
        _, plans = consumer.plans_of(consumer.backend.send("one", [ITEM], NOW))
        assert plans.read <= SLACK
    finally:
        consumer.driver.close()
        producer.driver.close()


def test_every_statement_can_be_prepared(bench: Bench) -> None:
    connection = bench.driver.connection
    for name, text in bench.backend.statements.items():
        connection.execute(f"PREPARE plan_{name} AS {text}")  # type: ignore[arg-type]
    connection.execute("DEALLOCATE ALL")
