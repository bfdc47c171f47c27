"""Schedules under many clients at once: each tick exactly once (semantics §18.4)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import fairturn
from tests.conformance.door import Clock, unique
from tests.conformance.test_group_races import together

CLIENTS = 8
BACKENDS = ("sqlite", "postgresql", "mysql")


@pytest.fixture(params=BACKENDS)
def backend(request: Any, session_things: None) -> str:
    return request.param


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def clients(doors: Any, backend: str, clock: Clock) -> Iterator[list[fairturn.Database]]:
    url = doors.url(backend)
    opened = [fairturn.connect(url, pool_size=2, clock=clock) for _ in range(CLIENTS)]
    yield opened
    for left in opened[0].schedules():
        opened[0].schedule(left.name).remove()
    for database in opened:
        database.close()


@pytest.fixture
def queue(clients: list[fairturn.Database]) -> Iterator[fairturn.Queue]:
    queue = clients[0].queue(unique())
    queue.create(lease=60)
    yield queue
    queue.drop()


def ticks_of(messages: Any) -> Counter[tuple[str, str]]:
    headers = [message.headers["fairturn.schedule"] for message in messages]
    return Counter((told["name"], told["tick"]) for told in headers)


def take(queue: fairturn.Queue) -> list[Any]:
    """Everything, acked: no key is left to keep a second message of a tick out."""
    taken = queue.receive(1000)
    queue.ack(taken)
    return list(taken)


def test_each_tick_is_sent_once(clients, queue, clock):
    """With one key for all its ticks a second send would replace the first, and be counted."""
    for n in range(5):
        clients[0].schedule(f"skip-{n}").set(queue.name, n, every=10)
    for _ in range(8):
        clock.tick(10)
        ran = together(*(client.run_schedules for client in clients))
        assert sum(one.sent for one in ran) == 5
        assert [one.errors for one in ran] == [[]] * CLIENTS
    assert queue.stats().sent == 5  # the others were replaced


def test_each_tick_is_sent_once_while_others_are_acked(clients, queue, clock):
    """With a key for each tick, which is free again as soon as its message is acked."""
    for n in range(3):
        clients[0].schedule(f"allow-{n}").set(queue.name, n, every=10, overlap="allow")
    found: Counter[tuple[str, str]] = Counter()
    sent = 0
    for _ in range(8):
        clock.tick(10)
        *ran, taken = together(*(c.run_schedules for c in clients), lambda: take(queue))
        sent += sum(one.sent for one in ran)
        found += ticks_of(taken)
    while taken := take(queue):
        found += ticks_of(taken)
    assert sent == 3 * 8
    assert len(found) == 3 * 8
    assert set(found.values()) == {1}


def test_a_backfill_by_many_is_in_order_and_complete(clients, queue, clock):
    clients[0].schedule("fill").set(queue.name, every=1, missed="backfill", overlap="allow")
    clock.tick(3000)

    def run(client: fairturn.Database) -> int:
        sent = 0
        while (ran := client.run_schedules(limit=1)).sent or ran.next_in == 0:
            sent += ran.sent
        return sent

    assert sum(together(*(lambda c=c: run(c) for c in clients))) == 3000
    messages = []
    while taken := queue.receive(1000):
        messages += taken
        queue.ack(taken)
    found = [message.headers["fairturn.schedule"]["tick"] for message in messages]
    assert found == sorted(found)
    assert len(set(found)) == len(found) == 3000


def test_of_many_who_set_it_one_creates_it(clients, queue):
    for _ in range(5):
        name = unique("s")
        handles = [client.schedule(name) for client in clients]
        works = [lambda h=h, n=n: h.set(queue.name, n, every=60) for n, h in enumerate(handles)]
        assert sorted(together(*works)) == [False] * (CLIENTS - 1) + [True]
        assert clients[0].schedule(name).get().body in range(CLIENTS)


def test_changes_and_ticks_at_the_same_time(clients, queue, clock, rng: random.Random):
    """Whatever the order, nothing is sent by a schedule that is paused or gone, and no tick of an
    unchanged interval is sent twice or left out for good."""
    name = unique("s")
    handle = clients[0].schedule(name)
    other = clients[1].schedule(name)
    handle.set(queue.name, "a", every=10)

    def change() -> None:
        for step in rng.choices((other.pause, other.resume, other.get), k=6):
            step()
        other.set(queue.name, rng.choice("ab"), every=10)
        other.resume()

    for _ in range(6):
        clock.tick(10)
        _, *ran = together(change, *(client.run_schedules for client in clients[2:]))
        assert sum(one.sent for one in ran) <= 1
        assert [error for one in ran for error in one.errors] == []
        status = handle.get()
        assert status.paused is False
        assert status.next_at is not None
    handle.pause()
    clock.tick(100)
    assert clients[3].run_schedules().sent == 0
    handle.resume()
    clock.tick(10)
    assert clients[3].run_schedules().sent == 1
    handle.remove()
    clock.tick(100)
    assert clients[3].run_schedules().sent == 0


def test_a_tick_that_was_rolled_back_is_still_due(clients, queue, clock, backend, monkeypatch):
    """A worker that dies before its commit has sent nothing and moved nothing."""
    clients[0].schedule("crash").set(queue.name, every=10)
    clock.tick(10)
    runner: Any = clients[1]._runner
    driver = runner._pool.acquire()
    runner._pool.release(driver)
    kind, execute, commit = type(driver), type(driver).execute, type(driver).commit
    fired: list[str] = []

    def watch(self: Any, text: str, params: Any) -> Any:
        if "schedule_fire(" in text:
            # PostgreSQL: one statement, which would commit itself.
            self.begin(True)
            execute(self, text, params)
            self.rollback()
            raise fairturn.DatabaseUnavailable("the worker dies here")
        if text.startswith("UPDATE fairturn_schedule SET revision"):
            fired.append(text)
        return execute(self, text, params)

    def die(self: Any) -> None:
        if fired:
            raise fairturn.DatabaseUnavailable("the worker dies here")
        commit(self)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "execute", watch)
        patch.setattr(kind, "commit", die)
        with pytest.raises(fairturn.DatabaseUnavailable, match="dies here"):
            clients[1].run_schedules()
    assert bool(fired) is (backend != "postgresql")
    assert queue.stats().total == 0
    assert clients[2].schedule("crash").get().last_at is None
    assert clients[2].run_schedules().sent == 1
    assert queue.stats().total == 1
