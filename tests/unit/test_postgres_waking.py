"""PostgreSQL's NOTIFY: only while somebody sleeps, and then soon enough."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import fairturn
from fairturn.drivers.psycopg.notifications import PsycopgListening
from tests import servers

pytestmark = pytest.mark.server


@pytest.fixture
def url() -> str:
    return servers.postgres_url("waking")


@pytest.fixture
def db(url: str) -> Iterator[fairturn.Database]:
    with fairturn.connect(url) as db:
        db.migrate()
        for name in ("busy", "other"):
            db.queue(name).drop()
            db.queue(name).create()
        yield db


@pytest.fixture
def told(url: str, db: fairturn.Database) -> Iterator[Any]:
    """told() -> the notifications since the last call."""
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN fairturn")

        def told() -> list[str]:
            listener.execute("NOTIFY fairturn, 'that was all'")
            names: list[str] = []
            for notify in listener.notifies():
                if notify.payload == "that was all":
                    return names
                names.append(notify.payload)
            raise AssertionError("the connection was closed")

        yield told


def test_a_busy_queue_notifies_nobody(db: fairturn.Database, told: Any) -> None:
    """But if the server is held up between the beginnings of a transaction and of its only
    statement, as on a busy machine it may happen to one call among many."""
    queue = db.queue("busy")
    notified: list[bool] = []  # by each call

    def do(call: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        found = call(*args, **settings)
        notified.append(told() != [])
        return found

    for _ in range(8):
        do(queue.send_many, [fairturn.Send(i, key=str(i), on_conflict="ignore") for i in range(20)])
        for i in range(20):
            do(queue.send, i)
            do(queue.receive, 3)
        do(queue.ack, do(queue.receive, 50))
        for message in do(queue.receive, 5):
            do(message.fail, "again", delay=0)
    assert sum(notified) < len(notified) / 10


def check_quiet(told: Any, call: Callable[[], Any]) -> None:
    """It notifies nobody; at the first try, if the server is not held up (see above)."""
    for _ in range(20):
        call()
        if told() == []:
            return
    raise AssertionError("it notifies each time")


def test_a_sleeper_is_told_and_only_of_its_queue(
    db: fairturn.Database, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = db._core.waker.ticket("busy")
    check_quiet(told, lambda: db.queue("other").send(1))
    db.queue("busy").send(1)
    assert told() == ["busy"]
    [message] = db.queue("busy").receive()
    message.ack()
    assert told() == ["busy"]
    ticket.leave()
    check_quiet(told, lambda: db.queue("busy").send(1))


def test_an_exact_extend_tells_the_sleepers(db: fairturn.Database, told: Any) -> None:
    queue = db.queue("busy")
    queue.send(1)
    [message] = queue.receive(lease=60)
    ticket = db._core.waker.ticket("busy")
    told()
    check_quiet(told, lambda: message.extend(90))
    message.extend(0, exact=True)
    assert told() == ["busy"]
    assert queue.extend([message], 0, exact=True).acked == 1
    assert told() == ["busy"]
    ticket.leave()


def test_a_move_tells_the_sleepers_of_both_queues(db: fairturn.Database, told: Any) -> None:
    db.queue("busy").send(1)
    tickets = [db._core.waker.ticket(name) for name in ("busy", "other")]
    told()  # what the send may have notified
    check_quiet(told, db.queue("busy").move)
    assert db.queue("busy").move("other") == 1
    assert sorted(told()) == ["busy", "other"]
    for ticket in tickets:
        ticket.leave()


def test_a_promotion_tells_the_sleepers(db: fairturn.Database, told: Any) -> None:
    queue = db.queue("busy")
    queue.send(1, delay=60, key="later")
    ticket = db._core.waker.ticket("busy")
    told()  # what the send may have notified
    check_quiet(told, lambda: queue.promote(59))
    assert queue.promote(60) == 1
    assert told() == ["busy"]
    ticket.leave()
    assert queue.cancel(key="later")


def test_in_an_older_transaction_always(db: fairturn.Database, url: str, told: Any) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("SELECT pg_sleep(0.006)")
        db.queue("busy").using(connection).send(1)
        assert told() == []
        connection.commit()
        assert told() == ["busy"]


def test_a_receive_that_waits_is_woken(db: fairturn.Database) -> None:
    queue = db.queue("busy")
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(queue.receive(1, wait=60)))
    thread.start()
    queue.send("wake up")
    thread.join()
    assert [message.body for message in got] == ["wake up"]


def test_without_listening_it_polls(url: str) -> None:
    with fairturn.connect(url, listen=False) as db:
        ticket = db._core.waker.ticket("busy")
        assert not ticket.live
        ticket.leave()


def test_what_was_received_stands_if_leaving_fails(
    db: fairturn.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, backend = db.queue("busy"), db._core.backend
    real = backend.sleep  # type: ignore[attr-defined]
    slept = threading.Event()

    def sleep(name: str, who: int, us: int) -> Any:
        if us == 0:
            raise fairturn.DatabaseUnavailable("it has just gone")
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
        fairturn.connect(server.create_database("restarted")) as db,
    ):
        db.migrate()
        ticket = db._core.waker.ticket("q")
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
    with PsycopgListening(url, 5.0, "fairturn") as listening:
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
