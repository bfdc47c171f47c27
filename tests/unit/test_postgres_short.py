"""PostgreSQL's short ways to receive: they give exactly what the long way would have given."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import fairturn
from fairturn.backends.base import ConsumerState, Receive, Received
from fairturn.backends.postgres import PostgresBackend
from fairturn.backends.verbs import Kill, Lease
from fairturn.core.rows import SendRow
from fairturn.core.settings import PolicyRow
from fairturn.drivers.psycopg import connect
from fairturn.drivers.run import run
from tests import servers

pytestmark = pytest.mark.server

HOUR = 3_600_000_000


class Spy:
    """A driver that counts the short ways taken, and how often they gave something."""

    def __init__(self, driver: Any, backend: PostgresBackend) -> None:
        self._driver = driver
        self._short = {backend.statements[name]: name for name in ("receive_next", "receive_lone")}
        self.gave = {"receive_next": 0, "receive_lone": 0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def execute(self, text: str, params: Any) -> Any:
        rows = self._driver.execute(text, params)
        if text in self._short and rows and rows[0][0] is not None:
            self.gave[self._short[text]] += 1
        return rows


class Consumer:
    """One consumer of one queue. ``short=False``: it always takes the long way."""

    def __init__(self, bench: Bench, queue: str, short: bool) -> None:
        self.bench, self.queue = bench, queue
        self.consumer = ConsumerState(yours=not short)
        self.held: list[Lease] = []

    def receive(self, n: int, ack: int, permit: int | None = None) -> Received:
        acks, self.held = self.held[:ack], self.held[ack:]
        received: Received = self.bench.run(
            self.bench.backend.receive(
                self.queue,
                Receive(n, HOUR, None, None, None, None, permit, acks),
                self.consumer,
                None,
            )
        )
        self.held += [Lease(row.id, row.token) for row in received.rows]
        return received


class Bench:
    def __init__(self) -> None:
        self.backend = PostgresBackend()
        url = servers.postgres_url("short_ways")
        self.driver = Spy(connect(url, timeout=5, prepare=True), self.backend)
        self.run(self.backend.migrate())

    def run(self, op: Any) -> Any:
        return run(op, self.driver, own=True)

    def send(
        self, queue: str, channel: str, body: bytes, priority: int = 0, version: int = 0
    ) -> int:
        item = SendRow(channel, body, 0, rank=-priority, version=version)
        [(id, _)] = self.run(self.backend.send(queue, [item], None))
        return id

    def create(self, name: str, **columns: Any) -> None:
        self.run(self.backend.queue_drop(name, None))
        self.run(self.backend.queue_create(name, columns, None))


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.driver.close()


@pytest.fixture(autouse=True)
def never_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks and sweeps by the clock would hide the short ways from a slow machine."""
    monkeypatch.setattr("fairturn.backends.postgres.scan_hints.FRESH", 3600.0)


@pytest.mark.parametrize("limit", [None, 1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_they_agree_with_the_long_way(bench: Bench, seed: int, limit: int | None) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    names = ("short", "long")
    consumers = [Consumer(bench, name, name == "short") for name in names]
    for name in names:
        bench.create(name, max_concurrency=limit)
    gave, bodies = sum(bench.driver.gave.values()), 0
    channels = ["c"] if chance.random() < 0.5 else ["", "a", "b\\", 'q"']
    for _ in range(250):
        what = chance.random()
        if what < 0.45:
            arguments = (
                chance.choice(channels),
                str(bodies := bodies + 1).encode(),
                chance.choice([0, 0, 0, 0, 2]),
            )
            for name in names:
                bench.send(name, *arguments)
        elif what < 0.97:
            n = chance.choice([1, 1, 1, 2, 5])
            ack = chance.choice([0, 1, 5])
            answers = [consumer.receive(n, ack) for consumer in consumers]
            assert [row.body for row in answers[0].rows] == [row.body for row in answers[1].rows]
            assert answers[0].lost == answers[1].lost == []
        else:
            policy = chance.choice([(None, 1, 0), (2, 1, 0), (None, 2, 0), (None, 1, 1)])
            most, weight, paused = policy
            channel = chance.choice(channels)
            for name in names:
                row = PolicyRow(most, None, None, 1, weight, paused, 0, None)
                bench.run(bench.backend.policy_set(name, channel, row, None))
    [(one,), (other,)] = (bench.run(bench.backend.stats(name, None)) for name in names)
    for counter in ("sent", "delivered", "acked", "completed"):
        assert getattr(one, counter) == getattr(other, counter)
    if limit is None or len(channels) == 1:
        assert sum(bench.driver.gave.values()) > gave, "no short way was ever taken"


def test_one_after_the_other_over_many_channels(bench: Bench) -> None:
    bench.create("q")
    for channel in "abc":
        for i in range(4):
            bench.send("q", channel, f"{channel}{i}".encode())
    consumer = Consumer(bench, "q", True)
    before = bench.driver.gave["receive_next"]
    given = [consumer.receive(1, 1).rows[0].body for _ in range(12)]
    assert given == [f"{channel}{i}".encode() for i in range(4) for channel in "abc"]
    assert bench.driver.gave["receive_next"] == before + 11
    assert consumer.receive(1, 1).rows == []


def test_a_full_limited_channel_is_closed_and_opens_with_the_ack(bench: Bench) -> None:
    bench.create("q", max_concurrency=1)
    for i in range(5):
        bench.send("q", "c", str(i).encode())
    mine, other = Consumer(bench, "q", True), Consumer(bench, "q", True)
    before = bench.driver.gave["receive_lone"]
    for i in range(4):
        assert [row.body for row in mine.receive(1, 1).rows] == [str(i).encode()]
        assert other.receive(1, 0).rows == []
    assert bench.driver.gave["receive_lone"] > before
    # A limit lowered to nothing binds the very next lease, also on the short way.
    bench.run(bench.backend.queue_set("q", {"max_concurrency": 0}, None))
    assert mine.receive(1, 1).rows == []
    assert mine.held == []
    bench.run(bench.backend.queue_set("q", {"max_concurrency": 1}, None))
    assert [row.body for row in mine.receive(1, 0).rows] == [b"4"]


@pytest.mark.parametrize("limit", [None, 5])
def test_another_version_is_not_passed_over(bench: Bench, limit: int | None) -> None:
    bench.create("q", max_concurrency=limit)
    for i in range(4):
        bench.send("q", "c", str(i).encode())
    consumer = Consumer(bench, "q", True)
    consumer.receive(1, 0)
    bench.send("q", "c", b"urgent", 5, 7)
    assert [row.body for row in consumer.receive(1, 1).rows] == [b"urgent"]


@pytest.mark.parametrize("limit", [None, 5])
def test_a_lost_ack_is_reported(bench: Bench, limit: int | None) -> None:
    bench.create("q", max_concurrency=limit)
    for i in range(6):
        bench.send("q", "c", str(i).encode())
    consumer = Consumer(bench, "q", True)
    consumer.receive(1, 0)
    consumer.receive(1, 1)
    [(id, _)] = consumer.held
    assert bench.run(bench.backend.cancel("q", id, None, True, None))
    received = consumer.receive(1, 1)
    assert received.lost == [id]
    assert len(received.rows) == 1


@pytest.mark.parametrize("channels", [["c"], ["c", "d"]])
def test_an_expired_permit_is_refused(bench: Bench, channels: list[str]) -> None:
    bench.create("q")
    for i in range(8):
        bench.send("q", channels[i % len(channels)], b"x")
    permit = 7
    bench.run(bench.backend.permit_create(permit, "w", HOUR, None))
    consumer = Consumer(bench, "q", True)
    consumer.receive(1, 0, permit)
    assert len(consumer.receive(1, 1, permit).rows) == 1
    bench.run(bench.backend.permit_close(permit, None))
    with pytest.raises(Exception, match=r"permit \d+ has expired") as caught:
        consumer.receive(1, 1, permit)
    code = bench.driver.code(caught.value)
    assert code is not None
    assert isinstance(bench.backend.translate(code, str(caught.value)), fairturn.FairturnError)


@pytest.mark.parametrize("channels", [["c"], ["c", "d"]], ids=["receive_lone", "receive_next"])
def test_they_tell_the_origin_and_the_first_delivery(bench: Bench, channels: list[str]) -> None:
    bench.create("grave")
    bench.create("q", dead_letter="grave")
    for i in range(6):
        bench.send("q", channels[i % len(channels)], b"x")
    dying, consumer = Consumer(bench, "q", True), Consumer(bench, "grave", True)
    first = {row.id: row.first_at for row in dying.receive(6, 0).rows}
    assert all(at is not None for at in first.values())
    bench.run(bench.backend.apply_verb("q", Kill("boom"), dying.held, True, None))
    for i in range(2):
        bench.send("grave", channels[i % len(channels)], b"y")
    before = sum(bench.driver.gave.values())
    rows = [consumer.receive(1, 1).rows[0] for _ in range(8)]
    assert sum(bench.driver.gave.values()) == before + 7
    dead = [row for row in rows if row.body == b"x"]
    assert {row.id: row.first_at for row in dead} == first
    assert [row.origin for row in dead] == ["q"] * 6
    new = [row for row in rows if row.body == b"y"]
    assert [row.origin for row in new] == [None] * 2
    assert all(row.first_at == row.lease_until - HOUR for row in new)  # the lease began then
