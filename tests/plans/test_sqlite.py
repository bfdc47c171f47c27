"""At 50,000 rows of every kind SQLite searches its indexes: what send, receive and ack execute is
explained statement by statement, and the work they do is counted."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from fairturn.backends.base import ConsumerState, Opening, Receive
from fairturn.backends.sqlite import SqliteBackend
from fairturn.backends.sqlite.common import SQL
from fairturn.backends.verbs import (
    ACK,
    RELEASE,
    Complete,
    Defer,
    Extend,
    Fail,
    Kill,
    Lease,
    Progress,
    Verb,
)
from fairturn.core.kinds import Value
from fairturn.core.rows import SendRow
from fairturn.drivers.run import run
from fairturn.drivers.sqlite import SqliteDriver, connect
from tests.plans.conftest import Benches

NOW = 1_800_000_000_000_000
DAY = 86_400_000_000
ROWS = 50_000
N = 100
STEPS = 1000  # of SQLite's machine: more than this per message is a walk through a crowd
KINDS = ("one", "many", "scheduled", "leased", "dead")
ITEM = SendRow("c", b"x", 0)
FILL = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
INSERT INTO fairturn_message (lane, state, version, channel, rank, due_at, created_at, body,
    lease_until, attempts, deliveries, finished_at, error)
SELECT q.lane, CASE :kind WHEN 'scheduled' THEN 's' WHEN 'leased' THEN 'l' WHEN 'dead' THEN 'x'
    ELSE 'r' END, 0, CASE :kind WHEN 'many' THEN printf('c%04d', i % 1000) ELSE 'c' END, 0,
    CASE :kind WHEN 'scheduled' THEN :now + 365 * 86400000000 + i ELSE :now - 1000 END, :now, x'78',
    CASE :kind WHEN 'leased' THEN :now + 86400000000 + i END, :kind = 'leased', :kind = 'leased',
    CASE :kind WHEN 'dead' THEN :now - i END, CASE :kind WHEN 'dead' THEN 'no' END
FROM n CROSS JOIN fairturn_queue q WHERE q.name = :kind
"""


class Watched(SqliteDriver):
    """Remembers every statement with its parameters."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.sent: list[tuple[str, Sequence[Value]]] = []

    def execute(self, text: str, params: Sequence[Value]) -> Any:
        self.sent.append((text, params))
        return super().execute(text, params)


class Bench:
    def __init__(self) -> None:
        self.backend = SqliteBackend()
        self.driver = Watched(connect(":memory:"))
        self.run(self.backend.migrate())
        for kind in KINDS:
            self.run(self.backend.queue_create(kind, {}, NOW))
            self.driver.connection.execute(FILL, {"kind": kind, "now": NOW, "rows": ROWS})
        self.steps = 0

    def run(self, op: Any) -> Any:
        return run(op, self.driver, own=True)

    def checked(self, op: Any, messages: int) -> Any:
        """Run it, count its work, and look at the plan of every statement it sent."""
        self.driver.sent.clear()
        self.steps = 0
        connection = self.driver.connection

        def count() -> int:
            self.steps += 1
            return 0

        connection.set_progress_handler(count, 100)
        try:
            value = self.run(op)
        finally:
            connection.set_progress_handler(None, 0)
        assert self.steps * 100 <= STEPS * (messages + 20), f"{self.steps * 100} steps"
        for text, params in self.driver.sent:
            if not text.startswith(("BEGIN", "COMMIT")):
                check_plan(connection, text, params)
        return value

    def receive(self, queue: str, n: int, *, now: int = NOW, **args: Any) -> list[Lease]:
        op = self.backend.receive(queue, Receive(n, **args), ConsumerState(), now)
        return [Lease(row.id, row.token) for row in self.checked(op, n).rows]


def check_plan(connection: sqlite3.Connection, text: str, params: Sequence[Value]) -> None:
    rows = connection.execute(f"EXPLAIN QUERY PLAN {text}", params).fetchall()
    plan = [detail for _, _, _, detail in rows]
    names = {"fairturn_message", *re.findall(r"fairturn_message (?:AS )?([a-z])\b", text)}
    for detail in plan:
        scanned = re.match(r"SCAN (?:TABLE )?(\w+)", detail)
        assert not (scanned and scanned[1] in names), f"{detail}\n{text}"
        if "TEMP B-TREE" in detail and "ORDER BY" in detail:
            # Only over a bounded list: ids or names that were passed in, or the begun messages
            # of an ordered channel.
            few = "json_each" in text or "USING INDEX fairturn_begun" in plan[0]
            # And a move: what is ready, by age.
            moves = text in (SQL.movable, SQL.movable_home)
            by_age = moves and any("COVERING INDEX fairturn_ready" in step for step in plan)
            assert few or by_age, f"{detail}\n{text}\n{plan}"


@pytest.fixture
def bench(request: pytest.FixtureRequest, benches: Benches) -> Bench:
    return benches.bench(request, lambda _: Bench())


@pytest.mark.parametrize("n", [1, 10, N])
@pytest.mark.parametrize("kind", ["one", "many"])
def test_receive_and_ack(bench: Bench, kind: str, n: int) -> None:
    leases = bench.receive(kind, n)
    assert len(leases) == n
    assert bench.checked(bench.backend.apply_verb(kind, ACK, leases, True, NOW), n).lost == []
    leases = bench.receive(kind, n)
    again = bench.receive(kind, n, acks=leases)
    assert len(again) == n
    bench.checked(bench.backend.apply_verb(kind, RELEASE, again, True, NOW), n)


@pytest.mark.parametrize("kind", ["scheduled", "leased", "dead"])
def test_beside_a_crowd(bench: Bench, kind: str) -> None:
    assert bench.receive(kind, N) == []
    assert bench.steps * 100 < 5000
    bench.checked(bench.backend.send(kind, [ITEM], NOW), 1)
    leases = bench.receive(kind, N)
    assert len(leases) == 1
    bench.checked(bench.backend.apply_verb(kind, ACK, leases, True, NOW), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_send(bench: Bench, kind: str) -> None:
    keyed = ITEM._replace(key="k", on_conflict="r")
    for items in ([ITEM], [ITEM] * 80, [keyed], [keyed, ITEM], [keyed, keyed]):
        sent = bench.checked(bench.backend.send(kind, items, NOW), len(items))
        for id in {id for id, _ in sent}:
            bench.checked(bench.backend.cancel(kind, id, None, False, NOW), 1)


def test_names(bench: Bench) -> None:
    """Beside many others, most of them forgotten: whoever adds one takes two away."""
    backend = bench.backend
    bench.run(backend.queue_create("named", {}, NOW))
    for size in (5000, 5000):
        names = [ITEM._replace(once=f"n{size}-{i}-{NOW}", once_us=1) for i in range(size)]
        bench.run(backend.send("named", names, NOW))
    named = ITEM._replace(once="x", once_us=60_000_000)
    for items in (
        [named],
        [named],
        [named._replace(once="y", once_us=1), named._replace(once="z", once_us=1)],
    ):
        bench.checked(backend.send("named", items, NOW + 1), len(items))
    bench.checked(backend.remember("named", "x", b"1", 60_000_000, NOW + 1), 1)
    assert bench.checked(backend.recall("named", "x", NOW + 1), 1) == b"1"


POLICIES: dict[str, dict[str, Any]] = {
    "concurrency": {"max_concurrency": 2},
    "rate": {"rate_count": 5, "rate_period_us": 1_000_000, "burst": 5},
    "ordered": {"ordered": 1},
    "size": {"max_size": 100_000},
    "queue": {"limit_concurrency": 20},
    "weight": {"weight": 3},
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["one", "many"])
def test_policies(bench: Bench, kind: str, policy: str) -> None:
    before = bench.run(bench.backend.queues(kind))[0]
    bench.run(bench.backend.queue_set(kind, POLICIES[policy], NOW))
    try:
        if policy == "size":
            # Counting up to the size is what was asked for; the plan must still be a search.
            bench.driver.sent.clear()
            bench.run(bench.backend.send(kind, [ITEM], NOW))
            for text, params in bench.driver.sent[1:-1]:
                check_plan(bench.driver.connection, text, params)
            return
        leases = bench.receive(kind, 10)
        assert leases
        bench.checked(bench.backend.apply_verb(kind, ACK, leases, True, NOW), 10)
    finally:
        columns = {name: before[name] for name in POLICIES[policy]}
        bench.run(bench.backend.queue_set(kind, columns, NOW))


def test_filters(bench: Bench) -> None:
    typed = ITEM._replace(version=3, type="t")
    bench.run(bench.backend.send("many", [typed] * 5, NOW))
    for args in ({"version": 3}, {"version": 3, "types": ["t"]}, {"min_priority": 0}):
        leases = bench.receive("many", 5, **args)
        assert len(leases) == 5
        bench.checked(bench.backend.apply_verb("many", RELEASE, leases, True, NOW), 5)


def test_sweep(bench: Bench) -> None:
    assert len(bench.receive("leased", 10, now=NOW + DAY + 40)) == 10
    assert len(bench.receive("scheduled", 10, now=NOW + 365 * DAY + 25)) == 10


VERBS = [Complete(), Defer(None, DAY, 1), Fail("no", DAY), Kill("no"), Extend(None, 0)]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_the_other_verbs(bench: Bench, verb: Verb) -> None:
    leases = bench.receive("one", 10)
    operation = bench.backend.apply_verb("one", verb, leases, False, NOW)
    bench.checked(operation, 10)


def test_move(bench: Bench) -> None:
    bench.run(bench.backend.queue_create("elsewhere", {}, NOW))
    for kind in ("scheduled", "leased", "dead"):
        bench.run(bench.backend.move(kind, "elsewhere", 1000, NOW))  # what others have left
        assert bench.checked(bench.backend.move(kind, "elsewhere", 10, NOW), 0) == 0
        bench.run(bench.backend.send(kind, [ITEM], NOW))
        assert bench.checked(bench.backend.move(kind, "elsewhere", 10, NOW), 1) == 1
        assert bench.checked(bench.backend.move(kind, None, 10, NOW), 0) == 0
    # It sorts all that is ready, but reads only the messages that it moves.
    bench.driver.sent.clear()
    assert bench.run(bench.backend.move("many", "elsewhere", 10, NOW)) == 10
    for text, params in bench.driver.sent:
        if not text.startswith(("BEGIN", "COMMIT")):
            check_plan(bench.driver.connection, text, params)


def test_promote(bench: Bench) -> None:
    """A year ahead of them all, and then of the first few."""
    bench.run(bench.backend.promote("scheduled", 0, ROWS, NOW))  # what others have left
    for within in (0, 364 * DAY):
        assert bench.checked(bench.backend.promote("scheduled", within, ROWS, NOW), 0) == 0
    assert bench.checked(bench.backend.promote("scheduled", 366 * DAY, N, NOW), N) == N
    assert bench.checked(bench.backend.promote("one", 366 * DAY, N, NOW), N) <= N


def test_members_of_a_crowded_group(bench: Bench) -> None:
    backend, connection = bench.backend, bench.driver.connection
    bench.run(backend.queue_create("members", {}, NOW))
    bench.run(backend.group_open(Opening("g", "members", "i", ITEM), NOW))
    connection.execute(FILL, {"kind": "members", "now": NOW, "rows": ROWS})
    connection.execute(
        "UPDATE fairturn_message SET group_id = (SELECT id FROM fairturn_group) WHERE state = 'r' "
        "AND lane = (SELECT lane FROM fairturn_queue WHERE name = 'members')"
    )
    bench.run(backend.group_start("g", NOW))
    member = ITEM._replace(group="g")
    for events in (0, 1):
        bench.run(backend.queue_set("members", {"events": events}, NOW))
        [(id, _)] = bench.checked(backend.send("members", [member], NOW), 1)
        bench.checked(backend.cancel("members", id, None, False, NOW), 1)
        leases = bench.receive("members", 40)
        bench.checked(backend.apply_verb("members", Progress(1, "half"), leases, True, NOW), 40)
        bench.checked(backend.apply_verb("members", ACK, leases[:10], True, NOW), 10)
        bench.receive("members", 1, acks=leases[10:20])
        bench.checked(backend.apply_verb("members", Complete(), leases[20:30], True, NOW), 10)
        bench.checked(backend.apply_verb("members", Kill("no"), leases[30:], True, NOW), 10)
        bench.checked(backend.outcomes("members", [id, *(i for i, _ in leases)], ["k"], NOW), 40)
        bench.checked(backend.events("", "members", ["done"], 10), 40)
    bench.driver.sent.clear()
    bench.run(backend.group_status("g", NOW))
    bench.run(backend.group_cancel("g", NOW))
    for text, params in bench.driver.sent:
        if not text.startswith(("BEGIN", "COMMIT")):
            check_plan(connection, text, params)


def test_the_check_finds_a_scan(bench: Bench) -> None:
    with pytest.raises(AssertionError):
        check_plan(bench.driver.connection, "SELECT id FROM fairturn_message WHERE body = ?", (1,))
    sorting = "SELECT id FROM fairturn_message WHERE lane = ?1 AND state = 'r' ORDER BY body"
    with pytest.raises(AssertionError):
        check_plan(bench.driver.connection, sorting, (1,))
