"""PostgreSQL's NOTIFY: only while somebody sleeps, and then soon enough."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import fairlead
from fairlead.drivers.listening import PsycopgListening
from tests import servers


@pytest.fixture
def url() -> str:
    return servers.postgres_url("waking")


@pytest.fixture
def db(url: str) -> Iterator[fairlead.Database]:
    with fairlead.connect(url) as db:
        db.migrate()
        for name in ("busy", "other"):
            db.queue(name).drop()
            db.queue(name).create()
        yield db


@pytest.fixture
def told(url: str, db: fairlead.Database) -> Iterator[Any]:
    """told() -> the notifications since the last call."""
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN fairlead")

        def told() -> list[str]:
            listener.execute("NOTIFY fairlead, 'that was all'")
            names: list[str] = []
            for notify in listener.notifies():
                if notify.payload == "that was all":
                    return names
                names.append(notify.payload)
            raise AssertionError("the connection was closed")

        yield told


def test_a_busy_queue_notifies_nobody(db: fairlead.Database, told: Any) -> None:
    """But in a transaction that is older than 5 ms, as on a busy machine a call of ours may be."""
    queue = db.queue("busy")
    quick = 0

    def do(call: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        nonlocal quick
        told()
        started = time.monotonic()
        found = call(*args, **settings)
        if time.monotonic() - started < 0.005:
            quick += 1
            assert told() == []
        return found

    while quick < 150:
        do(queue.send_many, [fairlead.Send(i, key=str(i), on_conflict="ignore") for i in range(20)])
        for i in range(20):
            do(queue.send, i)
            do(queue.receive, 3)
        do(queue.ack, do(queue.receive, 50))
        for message in do(queue.receive, 5):
            do(message.fail, "again", delay=0)


def test_a_sleeper_is_told_and_only_of_its_queue(
    db: fairlead.Database, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = db.core.waker.ticket("busy")
    db.queue("other").send(1)
    assert told() == []
    db.queue("busy").send(1)
    assert told() == ["busy"]
    [message] = db.queue("busy").receive()
    message.ack()
    assert told() == ["busy"]
    ticket.leave()
    db.queue("busy").send(1)
    assert told() == []


def test_an_exact_extend_tells_the_sleepers(db: fairlead.Database, told: Any) -> None:
    queue = db.queue("busy")
    queue.send(1)
    [message] = queue.receive(lease=60)
    ticket = db.core.waker.ticket("busy")
    told()  # a send that took long to be planned may have notified
    message.extend(90)
    assert told() == []
    message.extend(0, exact=True)
    assert told() == ["busy"]
    assert queue.extend([message], 0, exact=True).acked == 1
    assert told() == ["busy"]
    ticket.leave()


def test_a_move_tells_the_sleepers_of_both_queues(db: fairlead.Database, told: Any) -> None:
    db.queue("busy").send(1)
    tickets = [db.core.waker.ticket(name) for name in ("busy", "other")]
    told()  # a send that took long to be planned may have notified
    assert db.queue("busy").move() == 0
    assert told() == []
    assert db.queue("busy").move("other") == 1
    assert sorted(told()) == ["busy", "other"]
    for ticket in tickets:
        ticket.leave()


def test_a_promotion_tells_the_sleepers(db: fairlead.Database, told: Any) -> None:
    queue = db.queue("busy")
    queue.send(1, delay=60, key="later")
    ticket = db.core.waker.ticket("busy")
    told()  # a send that took long to be planned may have notified
    assert queue.promote(59) == 0
    assert told() == []
    assert queue.promote(60) == 1
    assert told() == ["busy"]
    ticket.leave()
    assert queue.cancel(key="later")


def test_in_an_older_transaction_always(db: fairlead.Database, url: str, told: Any) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("SELECT pg_sleep(0.006)")
        db.queue("busy").using(connection).send(1)
        assert told() == []
        connection.commit()
        assert told() == ["busy"]


def test_a_receive_that_waits_is_woken(db: fairlead.Database) -> None:
    queue = db.queue("busy")
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(queue.receive(1, wait=60)))
    thread.start()
    queue.send("wake up")
    thread.join()
    assert [message.body for message in got] == ["wake up"]


def test_without_listening_it_polls(url: str) -> None:
    with fairlead.connect(url, listen=False) as db:
        ticket = db.core.waker.ticket("busy")
        assert not ticket.live
        ticket.leave()


def test_what_was_received_stands_if_leaving_fails(
    db: fairlead.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, backend = db.queue("busy"), db.core.backend
    real = backend.sleep  # type: ignore[attr-defined]
    slept = threading.Event()

    def sleep(name: str, who: int, us: int) -> Any:
        if us == 0:
            raise fairlead.DatabaseUnavailable("it has just gone")
        yield from real(name, who, us)
        slept.set()

    monkeypatch.setattr(backend, "sleep", sleep)
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(queue.receive(1, wait=60)))
    thread.start()
    slept.wait()
    queue.send("kept")
    thread.join()
    assert [message.body for message in got] == ["kept"]


def test_the_listener_comes_back_with_the_server() -> None:
    """Until then everybody polls, and nobody's call fails for it."""
    with (
        servers.Postgres() as server,
        fairlead.connect(server.create_database("restarted")) as db,
    ):
        db.migrate()
        ticket = db.core.waker.ticket("q")
        assert ticket.live
        server.kill9()
        _until(lambda: not ticket.live)
        server.start()
        _until(lambda: ticket.live)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_listener_that_has_ended_can_be_interrupted(url: str) -> None:
    """Its thread may end in the very moment when the database is closed."""
    with PsycopgListening(url, 5.0, "fairlead") as listening:
        listening.interrupt()
        assert listening.wait() == []
    reads, writes = os.pipe()  # the lowest free numbers: those that were the listener's
    try:
        listening.interrupt()
        os.set_blocking(reads, False)
        with pytest.raises(BlockingIOError):
            os.read(reads, 1)
    finally:
        os.close(reads)
        os.close(writes)
