"""Galera: clients on three nodes that all write, and what must hold all the same.

A node certifies a transaction by the rows that it has *written*. Rows that it has only locked are
locked on its own node alone. So each test here has clients on all nodes, which fight for the same
rows: without the writes that a cluster needs, the limits, groups and events break.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import urlsplit

import pytest

import fairturn
from fairturn import Database, Queue
from tests.clusters.crew import Crew, Held
from tests.clusters.galera import Galera

T = TypeVar("T")

pytestmark = [pytest.mark.deep, pytest.mark.server]

LEASE = 120  # nothing here has to expire
MESSAGES = 400


@pytest.fixture(scope="module")
def cluster() -> Iterator[Galera]:
    with Galera() as cluster:
        cluster.create_database("jobs")
        with ThreadPoolExecutor(3) as pool:  # `migrate` from three nodes at once
            list(pool.map(migrate, cluster.urls("jobs")))
        yield cluster


def migrate(url: str) -> None:
    with fairturn.connect(url) as db:
        db.migrate()


@pytest.fixture
def urls(cluster: Galera) -> list[str]:
    return cluster.urls("jobs")


def each(queue: Queue, held: Held, crew: Crew, total: int, where: str | None = None) -> None:
    """Receive and ack, one message after the other, until the crew has had all of them. An error is
    noted, and the client goes on: what the limits allow is checked, too."""
    while len(held.deliveries) < total and not crew.stopping.is_set():
        for message in again(crew, lambda: queue.receive(1, wait=0.2)):
            place = message.channel if where is None else where
            held.take(place, message)
            again(crew, lambda message=message: message.progress(0.5))  # it takes its time
            held.give(place)
            again(crew, message.ack)


def again(crew: Crew, call: Callable[[], T]) -> T:
    while True:
        try:
            return call()
        except fairturn.DatabaseBusy as error:
            crew.note(error)


def check(crew: Crew, held: Held, total: int) -> None:
    assert not crew.errors
    assert len(held.deliveries) == len(set(held.deliveries)) == total


# --- schema -------------------------------------------------------------------------------------


def test_migrate_from_three_nodes_at_once(cluster: Galera) -> None:
    for n in range(4):
        cluster.create_database(f"new{n}")
        crew = Crew(cluster.urls(f"new{n}"))
        crew.run(lambda db, _: db.migrate())
        assert not crew.errors
        for url in crew.urls:
            with fairturn.connect(url) as db:
                assert db.migrate() == []  # complete, and seen on each node


# --- limits -------------------------------------------------------------------------------------


def test_concurrency_of_a_channel(urls: list[str]) -> None:
    with fairturn.connect(urls[0]) as db:
        queue = db.queue("narrow")
        queue.create(lease=LEASE)
        queue.channel("a").set_policy(max_concurrency=1)
        queue.channel("b").set_policy(max_concurrency=2)
        queue.send_many([fairturn.Send(n, channel="ab"[n % 2]) for n in range(MESSAGES)])
    held, crew = Held(), Crew(urls * 2)
    crew.run(lambda db, _: each(db.queue("narrow"), held, crew, MESSAGES))
    assert held.most["a"] == 1
    assert held.most["b"] <= 2
    check(crew, held, MESSAGES)


def test_limit_of_a_queue(urls: list[str]) -> None:
    with fairturn.connect(urls[0]) as db:
        queue = db.queue("limited")
        queue.create(lease=LEASE)
        queue.set_limit(max_concurrency=1)
        queue.send_many([fairturn.Send(n, channel=f"c{n % 7}") for n in range(MESSAGES)])
    held, crew = Held(), Crew(urls * 2)
    crew.run(lambda db, _: each(db.queue("limited"), held, crew, MESSAGES, "all"))
    assert held.most["all"] == 1
    check(crew, held, MESSAGES)


def test_ordered_channels(urls: list[str]) -> None:
    with fairturn.connect(urls[0]) as db:
        queue = db.queue("ordered")
        queue.create(lease=LEASE, policy=fairturn.Policy(ordered=True))
        queue.send_many([fairturn.Send(n, channel="ab"[n % 2]) for n in range(MESSAGES)])
    held, crew = Held(), Crew(urls * 2)
    crew.run(lambda db, _: each(db.queue("ordered"), held, crew, MESSAGES))
    assert held.most == {"a": 1, "b": 1}
    for bodies in held.order.values():
        assert bodies == sorted(bodies)
    check(crew, held, MESSAGES)


# --- groups -------------------------------------------------------------------------------------


def test_a_group_ends_once_and_misses_no_member(urls: list[str]) -> None:
    """In each round two members end on two nodes, while a third message joins on another one. It
    joins either the group that then stays open, or a new group of that name: never a closed one."""
    rounds = 40
    crew = Crew(urls)
    ready, over = threading.Barrier(3), threading.Barrier(3)
    members: list[fairturn.LeasedMessage] = []
    missed: list[int] = []

    def work(db: Database, number: int) -> None:
        queue = db.queue("members")
        try:
            for n in range(rounds):
                if number == 0:
                    group = db.group(f"g{n}", "members", end={"end": n})
                    group.send_many([{"n": n}, {"n": n}])
                    group.start()
                    members[:] = queue.receive(2, wait=5)
                ready.wait(60)
                if number == 2:
                    db.group(f"g{n}", "members").send({"late": n})
                else:
                    queue.lease(members[number].id, members[number].token).ack()
                over.wait(60)
                if number == 0:
                    status = db.group(f"g{n}", "members").status()
                    if status is None or status.closed or status.held + status.waiting != 1:
                        missed.append(n)
                    settle(db, n)
        except BaseException:
            ready.abort()
            over.abort()
            raise

    def settle(db: Database, n: int) -> None:
        """Finish the late member, in whichever group it is; then there is one end message."""
        queue = db.queue("members")
        group = db.group(f"g{n}", "members")
        group.start()
        ends = 0
        while messages := queue.receive(10):
            for message in messages:
                ends += "end" in message.body
                message.ack()
            if n not in missed:
                group.wait(10)
        assert ends == 1, (n, ends)

    with fairturn.connect(urls[0]) as db:
        db.queue("members").create(lease=LEASE)
    crew.run(work)
    assert not crew.errors
    assert missed == []


# --- events -------------------------------------------------------------------------------------


def created(events: fairturn.Events) -> list[int]:
    return [event.id for event in events if event.id is not None]


def test_events_of_a_transaction_that_commits_late(cluster: Galera, urls: list[str]) -> None:
    """Its events have smaller ids than those that another node has committed and a reader has read
    meanwhile. No reader misses them, on any node."""
    with contextlib.ExitStack() as stack:
        dbs = [stack.enter_context(fairturn.connect(url)) for url in urls]
        dbs[0].queue("late").create(events=True)
        readers = [db.events("late", kinds=["created"], after="", timeout=0.3) for db in dbs]
        read: list[list[int]] = [[] for _ in urls]
        sent: list[int] = []
        for late, early in ((0, 1), (1, 2), (2, 0), (0, 1)):
            connection = stack.enter_context(
                contextlib.closing(cluster.nodes[late].connect("jobs"))
            )
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            connection.begin()
            sent.append(dbs[late].queue("late").using(connection).send("late").id)
            sent.append(dbs[early].queue("late").send("early").id)
            for ids, reader in zip(read, readers, strict=True):
                ids += created(reader)  # it may pass the event that is not committed yet
            connection.commit()
            for ids, reader in zip(read, readers, strict=True):
                ids += created(reader)
        for ids in read:
            assert sorted(ids) == sorted(sent)  # each of them once
            assert ids == read[0]  # in one order


def test_events_while_all_nodes_write(urls: list[str]) -> None:
    each_sends = 60
    crew = Crew(urls * 3)
    sent: list[int] = []
    read: list[list[int]] = [[] for _ in urls]

    def work(db: Database, number: int) -> None:
        if number < 3:
            reader = db.events("busy", kinds=["created"], after="", timeout=0.5)
            while len(read[number]) < each_sends * 6 and not crew.stopping.is_set():
                before = len(read[number])
                read[number] += created(reader)
                if len(read[number]) == before and len(sent) == each_sends * 6:
                    return  # all is sent, and there is nothing to read: the assertion tells
        else:
            for n in range(each_sends):
                sent.append(db.queue("busy").send(n, channel=f"c{number}").id)

    with fairturn.connect(urls[0]) as db:
        db.queue("busy").create(events=True)
    crew.run(work)
    assert not crew.errors
    for ids in read:
        assert sorted(ids) == sorted(sent)
        assert ids == read[0]


# --- fights -------------------------------------------------------------------------------------


def test_nine_clients_fight_for_the_same_messages(urls: list[str]) -> None:
    """Nobody sees an error, and nobody gets the rows of another call."""
    total = 1200
    held, crew = Held(), Crew(urls * 3)

    def work(db: Database, number: int) -> None:
        queue = db.queue("hot")
        while len(held.deliveries) < total and not crew.stopping.is_set():
            messages = queue.receive(5, wait=0.2)
            assert len(messages) <= 5
            for message in messages:
                held.take("", message)
                message.ack()

    with fairturn.connect(urls[0]) as db:
        queue = db.queue("hot")
        queue.create(lease=LEASE, max_attempts=0)
        queue.send_many(list(range(total)))
    crew.run(work)
    check(crew, held, total)


def test_async_clients_fight(urls: list[str]) -> None:
    total = 600
    held = Held()

    async def client(url: str) -> None:
        async with fairturn.connect_async(url) as db:
            queue = db.queue("hot async")
            while len(held.deliveries) < total:
                for message in await queue.receive(5, wait=0.2):
                    held.take("", message)
                    await message.ack()

    async def main() -> None:
        await asyncio.gather(*map(client, urls * 3))

    with fairturn.connect(urls[0]) as db:
        queue = db.queue("hot async")
        queue.create(lease=LEASE, max_attempts=0)
        queue.send_many(list(range(total)))
    asyncio.run(main())
    assert len(held.deliveries) == len(set(held.deliveries)) == total


def test_one_node_sees_what_another_has_confirmed(urls: list[str]) -> None:
    with fairturn.connect(urls[0]) as a, fairturn.connect(urls[1]) as b:
        for n in range(60):
            a.queue(f"causal{n % 3}").create(lease=LEASE)
            sent = a.queue(f"causal{n % 3}").send(n)
            queue = b.queue(f"causal{n % 3}")
            assert queue.get(id=sent.id) is not None
            [message] = queue.receive(1)
            a.queue(f"causal{n % 3}").lease(message.id, message.token).ack()
            assert queue.get(id=sent.id) is None
            assert b.queue(f"causal{n % 3}").drop()
            assert f"causal{n % 3}" not in a.queues()


def test_what_is_sent_once_is_sent_once_by_all_nodes(urls: list[str]) -> None:
    """Keys, once names and due times of schedules; and maintenance, which does no harm."""
    crew = Crew(urls * 2)

    def work(db: Database, number: int) -> None:
        queue = db.queue("once")
        for n in range(20):
            queue.send("key", key=f"k{n}", on_conflict="ignore")
            queue.send("name", once=f"o{n}")
            db.run_schedules()
            db.maintain()

    with fairturn.connect(urls[0]) as db:
        db.queue("once").create(lease=LEASE, events=True)
        for n in range(20):
            db.schedule(f"s{n}").set("once", "schedule", at=1_000_000_000 + n)
    crew.run(work)
    assert not crew.errors
    with fairturn.connect(urls[1]) as db:
        bodies = Counter(message.body for message in db.queue("once").peek(1000))
        assert bodies == {"key": 20, "name": 20, "schedule": 20}
        assert len(created(db.events("once", kinds=["created"], after="", timeout=0.3))) == 60


# --- a node dies --------------------------------------------------------------------------------


def from_node(urls: list[str], number: int) -> str:
    """A URL with all hosts, this node first."""
    hosts = [urlsplit(url).netloc.removeprefix("root@") for url in urls]
    return f"mysql://root@{','.join(hosts[number:] + hosts[:number])}/jobs"


def test_a_node_dies_under_load(cluster: Galera, urls: list[str]) -> None:
    """What was confirmed is there, on the nodes that live; the clients of the dead node go on."""
    crew = Crew([from_node(urls, number) for number in (0, 1, 2)])
    confirmed: list[int] = []
    doubtful: Counter[str] = Counter()
    enough, dead = threading.Event(), threading.Event()

    def work(db: Database, number: int) -> None:
        after = 0
        while after < 40 and not crew.stopping.is_set():
            try:
                confirmed.append(db.queue("mortal").send(number).id)
            except (fairturn.OutcomeUnknown, fairturn.DatabaseUnavailable) as error:
                doubtful[type(error).__name__] += 1
            else:
                after += dead.is_set()
            if len(confirmed) > 100:
                enough.set()

    def kill() -> None:
        assert enough.wait(60)
        cluster.kill9(1)
        dead.set()

    with fairturn.connect(urls[0]) as db:
        db.queue("mortal").create(lease=LEASE)
    killer = threading.Thread(target=kill)
    killer.start()
    crew.run(work)
    killer.join()
    print("unknown or refused sends:", dict(doubtful))
    try:
        assert not crew.errors
        received: list[int] = []
        with fairturn.connect(urls[2]) as db:
            while messages := db.queue("mortal").receive(100):
                received += [message.id for message in messages]
        assert set(confirmed) <= set(received)  # none is lost
        assert len(received) == len(set(received)) <= len(confirmed) + doubtful.total()
    finally:
        cluster.wait_for_size(2)
        cluster.start(1)
    with fairturn.connect(urls[1]) as db:  # the node has the data again
        assert len(db.queue("mortal").peek(100, state="leased")) == 100
