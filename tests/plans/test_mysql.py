"""At 50,000 rows of every kind MariaDB reads what it gives and a fixed number of rows more: counted
by the session's Handler_read counters around real calls."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from fairturn.backends.base import ConsumerState, Opening, Receive, Reschedule
from fairturn.backends.mysql import MysqlBackend
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
from fairturn.drivers.mysql.pymysql import PyMysqlDriver, connect
from fairturn.drivers.run import run
from tests import servers
from tests.plans.conftest import Benches

pytestmark = pytest.mark.server

NOW = 1_800_000_000_000_000
DAY = 86_400_000_000
ROWS = 50_000
N = 100
PER_MESSAGE = (
    30  # the rows of the message, of its index and of the lists of ids, several times over
)
FIXED = 400
KINDS = ("one", "many", "scheduled", "leased", "dead")
ITEM = SendRow("c", b"x", 0)
FILL = """
INSERT INTO fairturn_message (lane, state, version, channel, `rank`, due_at, wake_at, json,
    created_at, attempts, deliveries, body)
SELECT q.lane, IF(q.name = 'scheduled', 's', IF(q.name = 'leased', 'l', IF(q.name = 'dead', 'x',
    'r'))), 0, IF(q.name = 'many', CONCAT('c', LPAD(n.seq MOD 1000, 4, '0')), 'c'), 0,
    {now} - 1000, CASE q.name WHEN 'scheduled' THEN {now} + 365 * 86400000000 + n.seq
    WHEN 'leased' THEN {now} + 86400000000 + n.seq WHEN 'dead' THEN {now} - n.seq ELSE 0 END, 0,
    {now}, q.name = 'leased', q.name = 'leased', 'x'
FROM fairturn_queue q JOIN seq_1_to_{rows} n WHERE q.name = '{kind}'
"""


GROUP = "big"  # of all messages of the queue `grouped`
EVENTS = """
INSERT INTO fairturn_event (id, at, written, kind, queue, message_id, channel)
SELECT n.seq, {now}, NOW(6) - INTERVAL 1 HOUR, 'created', 'many', n.seq, 'c' FROM seq_1_to_{rows} n
"""


class Bench:
    def __init__(self, database: str) -> None:
        parts = urlsplit(servers.mysql_url(database))
        self.backend = MysqlBackend()
        where: dict[str, Any] = {"host": parts.hostname, "port": parts.port, "user": parts.username}
        self.driver = PyMysqlDriver(connect(**where, database=parts.path[1:]))
        self.run(self.backend.migrate())
        for kind in KINDS:
            self.run(self.backend.queue_create(kind, {}, NOW))
            self.driver.execute(FILL.format(now=NOW, rows=ROWS, kind=kind), ())
        self.group()
        self.driver.execute(EVENTS.format(now=NOW, rows=ROWS), ())
        self.driver.execute("ANALYZE TABLE fairturn_message, fairturn_member, fairturn_event", ())

    def group(self) -> None:
        self.run(self.backend.queue_create("grouped", {}, NOW))
        self.run(self.backend.group_open(Opening(GROUP, "grouped", "i", ITEM), NOW))
        self.driver.execute(FILL.format(now=NOW, rows=ROWS, kind="grouped"), ())
        self.driver.execute(
            "UPDATE fairturn_message m JOIN fairturn_queue q ON q.lane = m.lane "
            "JOIN fairturn_group g SET m.group_id = g.id "
            "WHERE q.name = 'grouped' AND m.state = 'r'",
            (),
        )
        self.driver.execute(
            "INSERT INTO fairturn_member SELECT group_id, id FROM fairturn_message "
            "WHERE group_id IS NOT NULL",
            (),
        )
        self.driver.execute("UPDATE fairturn_group SET state = 'r', started_at = 1", ())

    def run(self, op: Any) -> Any:
        return run(op, self.driver, own=True)

    def checked(self, op: Any, messages: int) -> Any:
        """Run it; it reads no more rows than so many messages cost."""
        [(tallies,)] = self.driver.execute("SELECT COUNT(*) FROM fairturn_tally", ())
        self.driver.execute("FLUSH STATUS", ())
        value = self.run(op)
        rows = self.driver.execute("SHOW SESSION STATUS LIKE 'Handler_read%'", ())
        read = {name: int(count) for name, count in rows}
        # Every 512th call also adds up the counters; how many of them, the table tells.
        [(left,)] = self.driver.execute("SELECT COUNT(*) FROM fairturn_tally", ())
        folded = max(0, tallies - left)
        # The counters of temporary tables (lists of ids) are among these.
        assert sum(read.values()) <= PER_MESSAGE * (messages + folded) + FIXED, read
        return value

    def receive(self, queue: str, n: int, *, now: int = NOW, **args: Any) -> list[Lease]:
        op = self.backend.receive(queue, Receive(n, **args), ConsumerState(), now)
        return [Lease(row.id, row.token) for row in self.checked(op, n).rows]


@pytest.fixture
def bench(request: pytest.FixtureRequest, benches: Benches) -> Bench:
    return benches.bench(request, Bench)


@pytest.fixture
def session_things(bench: Bench) -> None:
    """The module's connection is there before the leaks of a test are counted."""


@pytest.fixture(autouse=True)
def early(session_things: None) -> None:
    pass


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
    backend = bench.backend
    bench.run(backend.queue_create("named", {}, NOW))
    for keep in (1, 60_000_000):
        names = [ITEM._replace(once=f"n{keep}-{i}", once_us=keep) for i in range(3000)]
        bench.run(backend.send("named", names, NOW))
    named = ITEM._replace(once="x", once_us=60_000_000)
    for items in (
        [named],
        [named],
        [named._replace(once="n1-7", once_us=1), named._replace(once="z", once_us=1)],
    ):
        bench.checked(backend.send("named", items, NOW + 1), len(items))
    bench.checked(backend.remember("named", "x", b"1", 60_000_000, NOW + 1), 1)
    assert bench.checked(backend.recall("named", "x", NOW + 1), 1) == b"1"


POLICIES: dict[str, dict[str, Any]] = {
    "concurrency": {"max_concurrency": 2},
    "rate": {"rate_count": 5, "rate_period_us": 1_000_000, "burst": 5},
    "ordered": {"ordered": 1},
    "queue": {"limit_concurrency": 20},
    "weight": {"weight": 3},
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["one", "many"])
def test_policies(bench: Bench, kind: str, policy: str) -> None:
    before = bench.run(bench.backend.queues(kind))[0]
    bench.run(bench.backend.queue_set(kind, POLICIES[policy], NOW))
    try:
        leases = bench.receive(kind, 10)
        assert leases
        bench.checked(bench.backend.apply_verb(kind, ACK, leases, True, NOW), 10)
    finally:
        columns = {name: before[name] for name in POLICIES[policy]}
        bench.run(bench.backend.queue_set(kind, columns, NOW))


def test_sweep(bench: Bench) -> None:
    assert len(bench.receive("leased", 40, now=NOW + DAY + 40)) == 40
    assert len(bench.receive("scheduled", 25, now=NOW + 365 * DAY + 25)) == 25


VERBS = [Complete(), Defer(None, DAY, 1), Fail("no", DAY), Kill("no"), Extend(None, 0)]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_the_other_verbs(bench: Bench, verb: Verb) -> None:
    leases = bench.receive("one", 10)
    bench.checked(bench.backend.apply_verb("one", verb, leases, False, NOW), 10)


def test_move(bench: Bench) -> None:
    bench.run(bench.backend.queue_create("elsewhere", {}, NOW))
    for kind in ("scheduled", "leased", "dead"):
        bench.run(bench.backend.move(kind, "elsewhere", 1000, NOW))  # what others have left
        assert bench.checked(bench.backend.move(kind, "elsewhere", 10, NOW), 0) == 0
    assert bench.checked(bench.backend.move("many", "elsewhere", N, NOW), N) == N


def test_promote(bench: Bench) -> None:
    """A year ahead of them all, and then of the first few."""
    bench.run(bench.backend.promote("scheduled", 0, ROWS, NOW))  # what others have left
    for within in (0, 364 * DAY):
        assert bench.checked(bench.backend.promote("scheduled", within, ROWS, NOW), 0) == 0
    assert bench.checked(bench.backend.promote("scheduled", 366 * DAY, N, NOW), N) == N
    number = bench.checked(bench.backend.promote("scheduled", 366 * DAY, 3000, NOW), 3000)
    assert number == 3000


@pytest.mark.parametrize("verb", [ACK, Complete(), Kill("no")], ids=lambda verb: verb.name)
def test_members_end_and_are_settled(bench: Bench, verb: Verb) -> None:
    """What is looked at does not grow with the group."""
    bench.checked(bench.backend.send("grouped", [ITEM._replace(group=GROUP)], NOW), 1)
    bench.checked(bench.backend.send("grouped", [ITEM._replace(group=GROUP)] * 20, NOW), 20)
    leases = bench.receive("grouped", 10)
    bench.checked(bench.backend.apply_verb("grouped", verb, leases, True, NOW), 10)
    bench.checked(bench.backend.settle(100, NOW), 10)
    assert bench.run(bench.backend.group_status(GROUP, NOW))[2] == "r"


def test_reading_events(bench: Bench) -> None:
    rows, cursor = bench.checked(bench.backend.events("100", None, None, N), N)
    assert (len(rows), cursor) == (N, rows[-1].cursor)
    assert cursor.startswith("200-")
    [last], cursor = bench.run(bench.backend.events(str(ROWS - 1), None, None, N))
    rows, cursor = bench.checked(bench.backend.events(last.cursor, None, None, N), 1)
    assert (rows, cursor) == ([], last.cursor)


def test_one_by_id_or_key(bench: Bench) -> None:
    [(id, _)] = bench.run(
        bench.backend.send("one", [ITEM._replace(key="find", on_conflict="e")], NOW)
    )
    bench.checked(bench.backend.get("one", id, None, NOW), 1)
    bench.checked(bench.backend.get("one", None, "find", NOW), 1)
    assert len(bench.checked(bench.backend.outcomes("one", [id], ["find"], NOW), 1)) == 1
    bench.checked(bench.backend.reschedule("one", None, "find", Reschedule(delay_us=0), NOW), 1)
    bench.checked(bench.backend.cancel("one", None, "find", False, NOW), 1)


def test_the_counters_find_a_scan(bench: Bench) -> None:
    def scan() -> Any:
        return (yield "SELECT COUNT(*) FROM fairturn_message WHERE body = %s", (b"y",))

    with pytest.raises(AssertionError):
        bench.checked(scan(), N)
