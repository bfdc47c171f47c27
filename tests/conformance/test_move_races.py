"""Several movers of one queue, and movers beside consumers, on real servers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import fairturn
from fairturn import Send
from tests.conformance.door import unique
from tests.conformance.test_concurrency import BACKENDS, together
from tests.conformance.yours import plain

TOTAL = 300
CLIENTS = 4
servers = pytest.mark.parametrize("backend", ["postgresql", "mysql"], indirect=True)


@pytest.fixture(params=BACKENDS)
def backend(request: Any, session_things: None) -> str:
    return request.param


@pytest.fixture
def clients(doors: Any, backend: str) -> Iterator[list[fairturn.Database]]:
    opened = [fairturn.connect(doors.url(backend), pool_size=2) for _ in range(CLIENTS)]
    yield opened
    for database in opened:
        database.close()


@pytest.fixture
def queues(clients: list[fairturn.Database]) -> Iterator[tuple[fairturn.Queue, fairturn.Queue]]:
    both = clients[0].queue(unique("from")), clients[0].queue(unique("to"))
    for queue in both:
        queue.create(lease=60)
    yield both
    for queue in both:
        queue.drop()


def empty(queue: fairturn.Queue, to: str | None, limit: int) -> int:
    """Move until nothing is left; how many."""
    total = 0
    while moved := queue.move(to, limit=limit):
        total += moved
    return total


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_two_movers_move_each_message_once_and_in_order(queues, clients, limit):
    source, target = queues
    source.send_many([Send(n, channel=f"c{n % 5}") for n in range(TOTAL)])
    work = [
        lambda d=database: empty(d.queue(source.name), target.name, limit) for database in clients
    ]
    assert sum(together(*work)) == TOTAL
    assert [m.body for m in target.peek(TOTAL + 1)] == list(range(TOTAL))
    assert (source.stats().total, target.stats().sent) == (0, TOTAL)


def test_movers_home_and_to_a_name_at_once(queues, clients):
    grave, target = queues
    home = clients[0].queue(unique("home"))
    home.create(dead_letter=grave.name)
    home.send_many(list(range(TOTAL)))
    home.kill(home.receive(TOTAL), "boom")
    work = [
        lambda d=database, to=to: empty(d.queue(grave.name), to, 7)
        for database, to in zip(clients, (None, target.name, None, target.name), strict=True)
    ]
    assert sum(together(*work)) == TOTAL
    found = [[m.body for m in queue.peek(TOTAL)] for queue in (home, target)]
    assert sorted(found[0] + found[1]) == list(range(TOTAL))
    # A kill need not send them to the grave in the order of their ids, but by id they are there.
    assert found == [sorted(found[0]), sorted(found[1])]
    home.drop()


def test_beside_consumers_every_message_is_in_one_place(queues, clients):
    source, target = queues
    source.send_many([Send(n, channel=f"c{n % 5}") for n in range(TOTAL)])

    def consume(database: fairturn.Database) -> list[int]:
        mine = database.queue(source.name)
        got: list[int] = []
        empty = 0
        while empty < 3:
            messages = mine.receive(3)
            empty = 0 if messages else empty + 1
            got += [m.body for m in messages]
            assert mine.ack(messages).lost == []
        return got

    first, second, third, fourth = clients
    results = together(
        lambda: empty(first.queue(source.name), target.name, 5),
        lambda: empty(second.queue(source.name), target.name, 5),
        lambda: consume(third),
        lambda: consume(fourth),
    )
    empty(source, target.name, TOTAL)  # what a consumer held while the movers looked
    moved = [m.body for m in target.peek(TOTAL)]
    found = Counter(moved + results[2] + results[3])
    assert sorted(found) == list(range(TOTAL))
    assert set(found.values()) == {1}
    assert source.stats().total == 0


def test_two_queues_into_each_other(queues, clients):
    """Their movers meet in opposite directions and never in a circle."""
    left, right = queues
    left.send_many(list(range(TOTAL)))
    right.send_many(list(range(TOTAL, 2 * TOTAL)))

    def shove(database: fairturn.Database, source: str, to: str) -> None:
        for _ in range(20):
            database.queue(source).move(to, limit=20)

    together(
        lambda: shove(clients[0], left.name, right.name),
        lambda: shove(clients[1], right.name, left.name),
        lambda: shove(clients[2], left.name, right.name),
        lambda: shove(clients[3], right.name, left.name),
    )
    found = [m.body for queue in queues for m in queue.peek(2 * TOTAL)]
    assert sorted(found) == list(range(2 * TOTAL))


@servers
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_mover_waits_for_one_whose_transaction_is_open(queues, clients, doors, backend, end):
    """Otherwise the second one's ids would lie before the first one's."""
    source, target = queues
    source.send_many([1, 2, 3, 4])
    with plain(backend, doors.url(backend)) as mine:
        mine.begin()
        assert source.using(mine.connection).move(target.name, limit=2) == 2
        moved: list[int] = []
        second = threading.Thread(
            target=lambda: moved.append(clients[1].queue(source.name).move(target.name))
        )
        second.start()
        getattr(mine, end)()
        second.join()
    assert moved == [2 if end == "commit" else 4]
    assert [m.body for m in target.peek()] == [1, 2, 3, 4]


@servers
def test_a_home_that_is_dropped_meanwhile(queues, clients, doors, backend):
    """Whoever comes first: each message is here or, as one sent there before the drop, gone."""
    grave, _ = queues
    home = clients[0].queue(unique("home"))
    home.create(dead_letter=grave.name)
    home.send_many(list(range(50)))
    home.kill(home.receive(50), "boom")
    moved, dropped = together(
        lambda: empty(clients[1].queue(grave.name), None, 3),
        lambda: clients[2].queue(home.name).drop(),
    )
    assert dropped
    assert grave.stats().ready == 50 - moved


def test_movers_of_neighbouring_queues_keep_the_order_of_each(clients):
    """A scan that locks rows may touch the first of the next queue: its own mover passed it by."""
    for _ in range(8):
        names = [unique("from") for _ in clients]
        for name in names:
            clients[0].queue(name).create()
            clients[0].queue(f"{name}-to").create()
            clients[0].queue(name).send_many(list(range(60)))
        together(
            *(
                lambda d=database, n=name: empty(d.queue(n), f"{n}-to", 7)
                for database, name in zip(clients, names, strict=True)
            )
        )
        for name in names:
            target = clients[0].queue(f"{name}-to")
            assert [message.body for message in target.peek(100)] == list(range(60))
            target.drop()
            clients[0].queue(name).drop()
