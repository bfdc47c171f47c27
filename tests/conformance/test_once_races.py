"""Senders of one name at the same time, on real servers: exactly one message (semantics §19.2).

The first of them may roll back, while others wait for it. Then one of those is the first.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import fairturn
from fairturn import ChannelFull, DatabaseBusy, DuplicateKey, Policy, Send
from tests.conformance.door import unique
from tests.conformance.locks import PATIENCE, until_waiting
from tests.conformance.test_concurrency import together
from tests.conformance.yours import Mine, plain

CLIENTS = 6
BACKENDS = ("sqlite", "postgresql", "mysql")
SERVERS = ("postgresql", "mysql")


@pytest.fixture(params=BACKENDS)
def backend(request: Any, session_things: None) -> str:
    return request.param


@pytest.fixture
def db(backend: str, doors: Any) -> Iterator[fairturn.Database]:
    with fairturn.connect(doors.url(backend), pool_size=CLIENTS + 2) as database:
        yield database


@pytest.fixture
def queue(db: fairturn.Database) -> Iterator[fairturn.Queue]:
    queue = db.queue(unique())
    queue.create()
    yield queue
    queue.drop()


@pytest.fixture
def clients(doors: Any, backend: str) -> Iterator[list[fairturn.Database]]:
    opened = [fairturn.connect(doors.url(backend), pool_size=2) for _ in range(CLIENTS)]
    yield opened
    for database in opened:
        database.close()


@contextmanager
def opened(backend: str, doors: Any, level: str | None = None) -> Iterator[Mine]:
    """A transaction of the user's, at some isolation level; rolled back if it is still open."""
    with plain(backend, doors.url(backend)) as mine:
        if level is not None and backend == "mysql":
            mine.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            mine.commit()
        mine.begin()
        if level is not None and backend == "postgresql":
            mine.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        try:
            yield mine
        finally:
            mine.rollback()


class Senders:
    """Calls in threads, which are known to wait for a lock before the test goes on."""

    def __init__(self, backend: str, doors: Any, calls: list[Callable[[], Any]]) -> None:
        self.results: list[Any] = []
        self.threads = [threading.Thread(target=self._run, args=[call]) for call in calls]
        for thread in self.threads:
            thread.start()
        until_waiting(backend, doors.url(backend), len(calls), lambda: self.results)

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.results.append(call())
        except Exception as error:
            self.results.append(error)

    def join(self) -> list[Any]:
        for thread in self.threads:
            thread.join()
        errors = [result for result in self.results if isinstance(result, Exception)]
        assert not errors, errors
        return self.results


def race(clients: list[fairturn.Database], queue: fairturn.Queue, body: Any, **options: Any) -> Any:
    """All send the same at the same time."""
    return together(*(partial(c.queue(queue.name).send, body, **options) for c in clients))


def check_one_each(queue: fairturn.Queue, results: list[tuple[str, fairturn.Sent]]) -> None:
    """Under each name one was sent, the others have its id, and there is one message of it."""
    sent = {name: id for name, id in results if id.outcome == "sent"}
    assert Counter(name for name, id in results if id.outcome == "sent") == Counter(sent.keys())
    assert {name for name, _ in results} == set(sent)
    assert all(id == sent[name] for name, id in results)
    stats = queue.stats()
    assert (stats.total, stats.sent) == (len(sent), len(sent))
    assert {message.body: message.id for message in queue.peek(5000)} == sent


def test_many_clients_one_by_one(queue, clients, rng):
    names = [f"n{n}" for n in range(30)]

    def send(client: fairturn.Database, order: list[str]) -> list[Any]:
        mine = client.queue(queue.name)
        return [(name, mine.send(name, once=name)) for name in order]

    orders = [names, *(rng.sample(names, len(names)) for _ in clients[1:])]
    results = together(
        *(
            lambda c=client, o=order: send(c, o)
            for client, order in zip(clients, orders, strict=True)
        )
    )
    check_one_each(queue, [pair for result in results for pair in result])


def test_many_clients_in_batches(queue, clients, rng):
    """In any order: they wait for each other, and not in a circle."""
    names = [f"n{n}" for n in range(200)]

    def send(client: fairturn.Database, seed: float) -> list[Any]:
        mine, dice = client.queue(queue.name), random.Random(seed)
        found: list[Any] = []
        for _ in range(5):
            some = dice.sample(names, 60)
            found += zip(some, mine.send_many([Send(n, once=n) for n in some]), strict=True)
        return found

    results = together(*(partial(send, client, rng.random()) for client in clients))
    check_one_each(queue, [pair for result in results for pair in result])


def test_a_name_that_has_been_forgotten(queue, clients):
    for n in range(5):
        name = f"n{n}"
        old = queue.send(name, once=name, once_for=0.000001)
        queue.cancel(id=old)
        sent = race(clients, queue, name, once=name)
        assert Counter(one.outcome for one in sent) == {"sent": 1, "duplicate": CLIENTS - 1}
        assert len(set(sent)) == 1
        assert sent[0] != old


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
def test_while_somebody_sweeps(db, queue, clients):
    """Maintenance deletes the very names that are being taken again."""
    stop = threading.Event()

    def sweep() -> None:
        while not stop.is_set():
            db.maintain()

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        for n in range(20):
            name = f"n{n}"
            queue.cancel(id=queue.send(0, once=name, once_for=0.000001))
            sent = race(clients, queue, name, once=name)
            assert len(set(sent)) == 1
            assert Counter(one.outcome for one in sent)["sent"] == 1
    finally:
        stop.set()
        sweeper.join()


# --- an open transaction ------------------------------------------------------------------------


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("many", [False, True])
def test_the_second_waits_for_the_first_to_commit(queue, doors, backend, level, many):
    with opened(backend, doors, level) as mine:
        first = queue.using(mine.connection).send(1, once="x")
        calls: list[Callable[[], Any]] = [
            lambda: (
                queue.send_many([Send(2, once="x"), Send("plain")])[0]
                if many
                else queue.send(2, once="x")
            )
        ] * CLIENTS
        senders = Senders(backend, doors, calls)
        mine.commit()
        sent = senders.join()
    assert [(one, one.outcome) for one in sent] == [(first, "duplicate")] * CLIENTS
    assert Counter(m.body for m in queue.peek()) == Counter([1, *["plain"] * (many * CLIENTS)])


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("old", [False, True], ids=["new name", "forgotten name"])
@pytest.mark.parametrize("many", [False, True])
def test_the_first_rolls_back_and_one_of_the_others_is_sent(
    queue, doors, backend, level, old, many
):
    if old:
        queue.cancel(id=queue.send(0, once="x", once_for=0.000001))
    with opened(backend, doors, level) as mine:
        first = queue.using(mine.connection).send(1, once="x")
        assert first.outcome == "sent"
        calls: list[Callable[[], Any]] = [
            lambda: (
                queue.send_many([Send(2, once="x"), Send("plain")])[0]
                if many
                else queue.send(2, once="x")
            )
        ] * CLIENTS
        senders = Senders(backend, doors, calls)
        mine.rollback()
        sent = senders.join()
    assert Counter(one.outcome for one in sent) == {"sent": 1, "duplicate": CLIENTS - 1}
    assert len(set(sent)) == 1
    assert sent[0] != first
    assert Counter(m.body for m in queue.peek()) == Counter([2, *["plain"] * (many * CLIENTS)])
    assert queue.send(3, once="x") == sent[0]


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("old", [False, True], ids=["new name", "forgotten name"])
def test_those_who_wait_in_transactions_of_yours_are_answered(queue, doors, backend, end, old):
    """There nothing is repeated, so a deadlock among them would show."""
    if old:
        queue.cancel(id=queue.send(0, once="x", once_for=0.000001))

    def send() -> fairturn.Sent:
        with opened(backend, doors) as other:
            sent = queue.using(other.connection).send(2, once="x")
            other.commit()
            return sent

    with opened(backend, doors) as mine:
        first = queue.using(mine.connection).send(1, once="x")
        senders = Senders(backend, doors, [send] * CLIENTS)
        getattr(mine, end)()
        sent = senders.join()
    assert len(set(sent)) == 1
    assert (sent[0] == first) is (end == "commit")
    assert Counter(one.outcome for one in sent)["sent"] == (end == "rollback")
    assert [m.body for m in queue.peek()] == [1 if end == "commit" else 2]


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_only_senders_of_one_name_wait(queue, doors, backend, level):
    """Not those of its neighbours, not receivers, not maintenance, nor whoever remembers a value of
    that name."""
    queue.send_many([Send(n, once=n) for n in ("b", "h")])
    old = queue.send(0, once="e", once_for=0.000001)
    queue.cancel(id=old)
    done: list[str] = []

    def work() -> None:
        for name in ("a", "c", "e", "g", "i", "z"):
            assert queue.send(name, once=name).outcome == "sent"
        assert queue.send(0, once="b").outcome == "duplicate"
        queue.send_many([Send(name, once=name) for name in ("aa", "cc", "dd", "ee", "zz")])
        queue.remember("d", 1, keep=60)
        assert queue.recall("d") == 1
        assert len(queue.receive(100)) == 13
        fairturn_maintain()
        done.append("all")

    with fairturn.connect(doors.url(backend)) as other, opened(backend, doors, level) as mine:
        fairturn_maintain = other.maintain
        bound = queue.using(mine.connection)
        bound.send("open", once="d")
        bound.send("open", once="b")  # a duplicate
        bound.send_many([Send("open", once="f"), Send("open", once="h")])
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        mine.rollback()
        thread.join()
    assert done == ["all"]


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
@pytest.mark.parametrize("many", [False, True])
def test_under_an_old_snapshot(queue, doors, backend, many):
    """The first has committed, but a transaction of yours cannot see it: on MySQL it is told all
    the same, on PostgreSQL it has to be rolled back; a second message is never sent."""
    with opened(backend, doors, "REPEATABLE READ") as mine:
        mine.execute("SELECT count(*) FROM person")
        first = queue.send(1, once="x")
        bound = queue.using(mine.connection)

        def send() -> Any:
            if many:
                return bound.send_many([Send(2, once="x"), Send(3)])[0]
            return bound.send(2, once="x")

        if backend == "mysql":
            assert (send(), send().outcome) == (first, "duplicate")
        else:
            with pytest.raises(DatabaseBusy, match="roll it back"):
                send()
        mine.rollback()
    assert [m.body for m in queue.peek()] == [1]


# --- what is not sent is not remembered, though your transaction goes on ------------------------


@pytest.mark.parametrize("old", [False, True], ids=["new name", "forgotten name"])
def test_errors_leave_your_transaction_usable_and_the_name_free(queue, doors, backend, old):
    queue.channel("full").set_policy(max_size=1)
    queue.send(0, channel="full", key="k")
    if old:
        for name in "xyz":
            queue.cancel(id=queue.send(0, once=name, once_for=0.000001))
    with opened(backend, doors) as mine:
        bound = queue.using(mine.connection)
        with pytest.raises(ChannelFull):
            bound.send(1, once="x", channel="full")
        with pytest.raises(ChannelFull):
            bound.send_many([Send(1, once="x"), Send(1, once="y", channel="full")])
        with pytest.raises(DuplicateKey):
            bound.send_many([Send(1, once="z"), Send(1, key="k")])
        mine.commit()
    assert [queue.send(n, once=n).outcome for n in "xyz"] == ["sent"] * 3


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
def test_a_key_that_comes_in_between_leaves_the_name_free(queue, doors, backend):
    """The conflict is found only when the name has been taken."""
    with opened(backend, doors) as mine, opened(backend, doors) as other:
        queue.using(mine.connection).send(1, key="k")
        bound = queue.using(other.connection)
        caught: list[Any] = []

        def send() -> None:
            with pytest.raises(DuplicateKey):
                bound.send_many([Send(2, once="x"), Send(3, key="k")])
            caught.append(bound.send(4, once="x").outcome)

        senders = Senders(backend, doors, [send])
        mine.commit()
        senders.join()
        other.commit()
    assert caught == ["sent"]
    assert sorted(m.body for m in queue.peek()) == [1, 4]


def test_a_full_channel_is_no_answer_to_a_duplicate(queue, clients):
    """With room for one, the others learn that it has been sent, whenever they ask."""
    for n in range(10):
        channel, name = f"c{n}", f"n{n}"
        queue.channel(channel).set_policy(max_size=1)
        sent = race(clients, queue, 1, once=name, channel=channel)
        assert len(set(sent)) == 1


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
def test_a_purge_meanwhile(db, queue, doors, backend):
    """A send that is open across a purge is purged, its name too."""
    with opened(backend, doors) as mine:
        queue.using(mine.connection).send(1, once="x")
        queue.purge()
        second = queue.send(2, once="x")
        assert second.outcome == "sent"
        mine.commit()
    assert queue.send(3, once="x") == second
    assert [m.body for m in queue.peek()] == [2]


def test_sends_that_race_for_a_policy_of_size(queue, clients):
    queue.set(policy=Policy(max_size=1000))
    names = [f"n{n}" for n in range(40)]

    def send(client: fairturn.Database) -> list[Any]:
        sent = client.queue(queue.name).send_many([Send(n, once=n) for n in names])
        return list(zip(names, sent, strict=True))

    results = together(*(lambda c=client: send(c) for client in clients))
    check_one_each(queue, [pair for result in results for pair in result])
