"""Groups under many clients at once: exactly one end work, never too early (semantics §12.10)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fairturn
from fairturn import LeaseLost, Send
from tests.conformance.connections import SYNC
from tests.conformance.door import ONE_WRITER, unique

CLIENTS = 6
BACKENDS = ("sqlite", "postgresql", "mysql")


@pytest.fixture(params=BACKENDS)
def backend(request: Any, session_things: None) -> str:
    return request.param


@pytest.fixture
def db(backend: str, doors: Any) -> Iterator[fairturn.Database]:
    with fairturn.connect(doors.url(backend), pool_size=CLIENTS + 2) as database:
        yield database


@pytest.fixture
def clients(doors: Any, backend: str) -> Iterator[list[fairturn.Database]]:
    opened = [fairturn.connect(doors.url(backend), pool_size=2) for _ in range(CLIENTS)]
    yield opened
    for database in opened:
        database.close()


@pytest.fixture
def queue(db: fairturn.Database) -> Iterator[fairturn.Queue]:
    queue = db.queue(unique())
    queue.create(lease=60)
    yield queue
    queue.drop()


def together(*works: Callable[[], Any]) -> list[Any]:
    """Run all at the same time; their results, or the first error."""
    barrier = threading.Barrier(len(works))
    results: list[Any] = [None] * len(works)
    errors: list[BaseException] = []

    def run(n: int, work: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            results[n] = work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n, work)) for n, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def test_concurrent_last_acks_send_one_end_work(db, queue, clients):
    for _ in range(10):
        name = unique("g")
        group = db.group(name, queue.name, end="end", abort="abort")
        group.send_many(list(range(CLIENTS)))
        group.start()
        mine = [client.queue(queue.name).receive()[0] for client in clients]
        together(*(message.ack for message in mine))
        assert group.wait(30).state == "ended"
        status = group.status()
        assert (status.sent, status.done) == (CLIENTS, CLIENTS)
        [work] = queue.receive(5)
        assert (work.body, work.headers["fairturn.group"]["done"]) == ("end", CLIENTS)
        work.ack()
        assert queue.stats().total == 0


def test_last_acks_in_open_transactions(db, queue, doors, backend):
    """Two of them, neither of which sees the other: whoever comes later closes it."""
    writers = 1 if backend in ONE_WRITER else 2
    group = db.group(unique("g"), queue.name, end="end")
    group.send_many(list(range(writers)))
    group.start()
    messages = queue.receive(writers)
    connections = [SYNC[backend](doors.url(backend)) for _ in messages]
    try:
        for message, connection in zip(messages, connections, strict=True):
            connection.begin()
            message.using(connection.connection).ack()
        for connection in connections:
            connection.commit()
    finally:
        for connection in connections:
            connection.close()
    db.maintain()
    assert group.status().state == "ended"
    assert [message.body for message in queue.receive(5)] == ["end"]


def test_members_that_add_members_are_never_overtaken(db, queue, clients):
    """Each member sends others before its own ack: the end work is the last of all."""
    group = db.group(unique("g"), queue.name, end="end")
    group.send_many([3] * 6)
    group.start()
    total = 6 * (1 + 2 + 4 + 8)

    def work(client: fairturn.Database) -> list[Any]:
        mine = client.queue(queue.name)
        done: list[Any] = []
        while group.status().state == "running":
            for message in mine.receive(2):
                if message.body == "end":
                    message.release()
                    continue
                if message.body > 0:
                    again = Send(message.body - 1, group=message.group)
                    mine.send_many([again, again])
                message.ack()
                done.append(message.body)
        return done

    results = together(*(lambda c=client: work(c) for client in clients))
    done = Counter(body for result in results for body in result)
    assert done == {3: 6, 2: 12, 1: 24, 0: 48}
    status = group.status()
    assert (status.state, status.sent, status.done) == ("ended", total, total)
    [end] = queue.receive(5)
    assert (end.body, end.headers["fairturn.group"]["sent"]) == ("end", total)
    assert queue.stats().total == 1


def test_cancel_against_acks(db, queue, clients):
    """Either all acks counted and it ended, or it was cancelled and the rest were lost."""
    for _ in range(10):
        group = db.group(unique("g"), queue.name, end="end", abort="abort")
        group.send_many(list(range(CLIENTS)))
        group.start()
        mine = [client.queue(queue.name).receive()[0] for client in clients]

        def ack(message: Any) -> bool:
            try:
                message.ack()
            except LeaseLost:
                return False
            return True

        acks = [lambda m=message: ack(m) for message in mine]
        *acked, cancelled = together(*acks, group.cancel)
        status = group.wait(30)
        assert status.state == ("cancelled" if cancelled else "ended")
        assert status.done == sum(acked)
        [work] = queue.receive(5)
        assert work.body == ("abort" if cancelled else "end")
        work.ack()
        assert queue.stats().total == 0


def test_deaths_at_once_abort_once(db, queue, clients):
    for _ in range(5):
        group = db.group(unique("g"), queue.name, abort="abort", on_dead="abort")
        group.send_many(list(range(CLIENTS + 2)))
        group.start()
        mine = [client.queue(queue.name).receive()[0] for client in clients]

        def kill(message: Any) -> bool:
            try:
                message.kill("boom")
            except LeaseLost:  # another death was first
                return False
            return True

        killed = together(*(lambda m=message: kill(m) for message in mine))
        status = group.wait(30)
        assert status.state == "aborted"
        assert 1 <= sum(killed) == status.dead
        assert [message.body for message in queue.receive(9)] == ["abort"]
        queue.purge()


def test_one_of_many_starts_wins(db, queue, clients):
    for _ in range(5):
        name = unique("g")
        groups = [client.group(name, queue.name, end="end") for client in clients]
        started = together(*(group.start for group in groups))
        db.group(name).wait(30)
        # A group that is started empty closes at once, so a late start may open another.
        assert sum(started) == len(queue.receive(CLIENTS))
        queue.purge()


def test_sends_and_starts_at_once_lose_no_member(db, queue, clients):
    for _ in range(5):
        name = unique("g")
        queue.send("first", group=name)
        sends = [
            lambda c=client, n=name: c.queue(queue.name).send("m", group=n) for client in clients
        ]
        together(*sends, db.group(name).start)
        bodies: Counter[str] = Counter()
        while messages := queue.receive(5):
            bodies.update(message.body for message in messages)
            queue.ack(messages)
        assert bodies == {"first": 1, "m": CLIENTS}
        status = db.group(name).wait(30)
        assert (status.state, status.sent, status.done) == ("ended", CLIENTS + 1, CLIENTS + 1)
