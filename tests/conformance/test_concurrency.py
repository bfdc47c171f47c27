"""Many clients at once, on real servers with real threads and processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import fairturn
from fairturn import DatabaseError, Policy, Send
from tests import servers
from tests.conformance.door import Clock, unique
from tests.conformance.locks import PATIENCE

CONSUMERS = 8
BACKENDS = ("sqlite", "postgresql", "mysql")


@pytest.fixture(params=BACKENDS)
def backend(request: Any, session_things: None) -> str:
    return request.param


@pytest.fixture
def db(backend: str, doors: Any) -> Iterator[fairturn.Database]:
    """A Database of its own per test, with the database's clock."""
    with fairturn.connect(doors.url(backend), pool_size=CONSUMERS + 2) as database:
        yield database


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


@pytest.fixture
def consumers(doors: Any, backend: str) -> Iterator[list[fairturn.Database]]:
    """Independent clients, each with connections and a memory of its own."""
    opened = [fairturn.connect(doors.url(backend), pool_size=2) for _ in range(CONSUMERS)]
    yield opened
    for database in opened:
        database.close()


@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("channels", [1, 20])
def test_consumers_never_share_a_message(queue, consumers, n, channels):
    total = 400
    queue.send_many([Send(i, channel=f"c{i % channels}") for i in range(total)])

    def consume(database: fairturn.Database) -> list[int]:
        mine = database.queue(queue.name)
        got: list[int] = []
        empty = 0
        while empty < 3:
            messages = mine.receive(n)
            empty = 0 if messages else empty + 1
            got += [m.body for m in messages]
            assert mine.ack(messages).lost == []
        return got

    results = together(*(lambda d=database: consume(d) for database in consumers))
    got = Counter(body for result in results for body in result)
    rest = [m.body for m in queue.receive(total)]
    assert not [body for body, times in got.items() if times > 1]
    assert len(got) + len(rest) == total
    stats = queue.stats()
    assert (stats.delivered, stats.acked) == (total, len(got))


def test_carried_acks_under_load(queue, consumers):
    total = 400
    queue.send_many([Send(i, channel=f"c{i % 5}") for i in range(total)])

    def consume(database: fairturn.Database) -> int:
        mine = database.queue(queue.name)
        done = 0
        messages: Any = []
        empty = 0
        while empty < 3:
            carried = messages
            messages = mine.receive(5, ack=carried)
            assert list(messages.lost) == []
            done += len(carried)
            empty = 0 if messages else empty + 1
        return done

    done = sum(together(*(lambda d=database: consume(d) for database in consumers)))
    assert done + queue.stats().total == total
    assert queue.stats().acked == done


class Watch:
    """Looks at the rows again and again: how many leases does each channel have right now?"""

    def __init__(self, database: fairturn.Database, queue: str) -> None:
        self.queue = database.queue(queue)
        self.most: Counter[str] = Counter()
        self.most_of_queue = 0
        self.looks = 0
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            leased = {c.channel: c.leased for c in self.queue.channels()}
            self.looks += 1
            self.most_of_queue = max(self.most_of_queue, sum(leased.values()))
            for channel, count in leased.items():
                self.most[channel] = max(self.most[channel], count)


def _under_watch(db, queue, consumers, total, n):
    """Consume everything with 8 clients while somebody counts the rows."""
    watch = Watch(db, queue.name)
    watcher = threading.Thread(target=watch.run)
    watcher.start()
    left = [total]
    guard = threading.Lock()

    def consume(database: fairturn.Database) -> None:
        mine = database.queue(queue.name)
        deadline = time.monotonic() + 60
        while left[0] > 0 and time.monotonic() < deadline:
            messages = mine.receive(n)
            with guard:
                left[0] -= len(messages)
            mine.ack(messages)

    try:
        together(*(lambda d=database: consume(d) for database in consumers))
    finally:
        watch.stop.set()
        watcher.join()
    assert left[0] == 0
    assert queue.stats().total == 0
    assert watch.looks > 3
    return watch


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("own", [True, False], ids=["own policy", "default policy"])
def test_promise_06_limits_are_never_exceeded(db, queue, consumers, limit, own):
    if own:
        for channel in "abc":
            queue.channel(channel).set_policy(max_concurrency=limit)
    else:
        queue.set(policy=Policy(max_concurrency=limit))
    total = 240
    queue.send_many([Send(i, channel="abc"[i % 3]) for i in range(total)])
    watch = _under_watch(db, queue, consumers, total, 4)
    assert max(watch.most.values()) <= limit


def test_10_11_the_limit_of_the_queue_is_never_exceeded(db, queue, consumers):
    queue.set_limit(max_concurrency=3)
    total = 200
    queue.send_many([Send(i, channel=f"c{i % 10}") for i in range(total)])
    watch = _under_watch(db, queue, consumers, total, 2)
    assert watch.most_of_queue <= 3


def test_10_10_ordered_channels_stay_in_order(queue, consumers):
    queue.set(policy=Policy(ordered=True))
    per_channel = 40
    queue.send_many([Send(i, channel=c) for i in range(per_channel) for c in "ab"])
    seen: dict[str, list[int]] = {"a": [], "b": []}
    guard = threading.Lock()

    def consume(database: fairturn.Database) -> None:
        mine = database.queue(queue.name)
        deadline = time.monotonic() + 60
        while sum(map(len, seen.values())) < 2 * per_channel and time.monotonic() < deadline:
            for message in (messages := mine.receive(3)):
                with guard:
                    seen[message.channel].append(message.body)
            mine.ack(messages)

    together(*(lambda d=database: consume(d) for database in consumers))
    assert seen == {"a": list(range(per_channel)), "b": list(range(per_channel))}


def test_10_09_rates_are_never_exceeded(doors, backend):
    """By a clock that stands still while they receive, so that what is due can be counted."""
    clock = Clock()
    got: list[int] = []
    guard = threading.Lock()

    def consume(database: fairturn.Database, name: str) -> None:
        mine = database.queue(name)
        for _ in range(3):
            messages = mine.receive(3)
            with guard:
                got.extend(m.body for m in messages)
            mine.ack(messages)

    with contextlib.ExitStack() as stack:
        connect = partial(fairturn.connect, doors.url(backend), clock=clock)
        clients = [stack.enter_context(connect()) for _ in range(CONSUMERS)]
        queue = clients[0].queue(unique())
        queue.create(lease=60)
        queue.channel("").set_policy(rate="50/s", burst=5)
        queue.send_many(range(200))
        for due in range(5, 41, 5):
            together(*(partial(consume, client, queue.name) for client in clients))
            # One of them may have passed by while another one was at the gate.
            while messages := queue.receive(3):
                got += [m.body for m in messages]
            assert len(got) == len(set(got)) == due
            clock.tick(0.1)
        queue.drop()


def test_senders_of_one_key_agree_on_one_message(queue, consumers):
    """First create of a key from eight sides: one message, eight answers, no error."""

    def send(database: fairturn.Database) -> list[Any]:
        mine = database.queue(queue.name)
        return [mine.send(n, key=f"k{n}", on_conflict="ignore") for n in range(15)]

    results = together(*(lambda d=database: send(d) for database in consumers))
    for n in range(15):
        answers = [result[n] for result in results]
        assert len(set(answers)) == 1
        assert sum(answer.created for answer in answers) == 1
    assert queue.stats().total == 15


def test_batches_of_the_same_keys_in_opposite_order_meet_no_deadlock(queue, consumers):
    keys = [f"k{n}" for n in range(40)]

    def send(n: int, database: fairturn.Database) -> None:
        mine = database.queue(queue.name)
        order = keys if n % 2 else keys[::-1]
        for _ in range(5):
            mine.send_many([Send(n, key=key, on_conflict="replace") for key in order])

    together(*(lambda n=n, d=database: send(n, d) for n, database in enumerate(consumers)))
    assert queue.stats().total == 40


def test_defect_6_first_messages_and_policies_of_new_channels_race(queue, consumers):
    def work(n: int, database: fairturn.Database) -> None:
        mine = database.queue(queue.name)
        for c in range(10):
            if n % 2:
                mine.channel(f"c{c}").set_policy(max_concurrency=1)
            mine.send(n, channel=f"c{c}")
            mine.receive(2)

    together(*(lambda n=n, d=database: work(n, d) for n, database in enumerate(consumers)))
    listed = {c.channel: c for c in queue.channels()}
    assert len(listed) == 10
    for channel in listed.values():
        assert channel.policy == Policy(max_concurrency=1)
        assert channel.ready + channel.leased == CONSUMERS


def test_promise_04_of_many_acks_of_one_message_one_wins(queue, consumers):
    queue.send(1)
    [message] = queue.receive()

    def ack(database: fairturn.Database) -> int:
        return database.queue(queue.name).ack([message]).acked

    assert sum(together(*(lambda d=database: ack(d) for database in consumers))) == 1
    assert queue.stats().acked == 1


def test_recovery_by_many_gives_each_message_once(queue, consumers):
    queue.send_many(range(60))
    assert len(queue.receive(60, lease=0)) == 60

    def receive(database: fairturn.Database) -> list[Any]:
        return [m for _ in range(4) for m in database.queue(queue.name).receive(5, lease=60)]

    got = [
        m for r in together(*(lambda d=database: receive(d) for database in consumers)) for m in r
    ]
    got += queue.receive(60)
    assert sorted(m.body for m in got) == list(range(60))
    assert all(m.deliveries == 2 and m.recovered for m in got)
    assert queue.stats().recovered == 60


def test_maintainers_do_not_get_in_each_others_way(queue, consumers):
    queue.send_many([Send(n, delay=0.001) for n in range(200)])
    queue.send_many(range(50))
    queue.receive(50, lease=0)
    time.sleep(0.002)
    together(*(lambda d=database: d.maintain() for database in consumers))
    stats = queue.stats()
    assert (stats.ready, stats.recovered) == (250, 50)


def test_creating_one_queue_from_many_sides(db, consumers):
    name = unique()
    created = together(*(lambda d=database: d.queue(name).create() for database in consumers))
    assert sorted(created) == [False] * (CONSUMERS - 1) + [True]
    db.queue(name).drop()


def test_10_20_a_send_that_is_open_across_a_purge_is_purged(queue, doors, backend):
    if backend == "sqlite":
        return  # one writer: nothing can happen across another's open transaction
    from tests.conformance.connections import SYNC

    mine = SYNC[backend](doors.url(backend))
    mine.begin()
    queue.using(mine.connection).send("open", key="k")
    thread = threading.Thread(target=queue.purge)
    thread.start()
    thread.join(PATIENCE)
    blocked = thread.is_alive()
    mine.commit()
    thread.join()
    mine.close()
    assert not blocked, "a purge must not wait for senders"
    assert queue.receive(5) == []
    assert queue.stats().total == 0
    assert queue.send("new", key="k").created


# --- two processes migrate at once ----------------------------------------------------------------


def _migrate(url: str, barrier: Any, out: Any) -> None:
    database = fairturn.connect(url)
    barrier.wait()
    try:
        out.put(("ok", database.migrate()))
    except BaseException as error:
        out.put(("error", repr(error)))
    database.close()


@pytest.mark.parametrize("attempt", [0, *(pytest.param(n, marks=pytest.mark.deep) for n in (1, 2))])
def test_processes_that_migrate_at_once(backend, tmp_path, attempt):
    if backend == "sqlite":
        url = f"sqlite:///{tmp_path / 'new.db'}"
    else:
        make = servers.postgres_url if backend == "postgresql" else servers.mysql_url
        url = make(f"migrate{attempt}")
    context = multiprocessing.get_context("spawn")
    barrier, out = context.Barrier(4), context.SimpleQueue()
    processes = [context.Process(target=_migrate, args=(url, barrier, out)) for _ in range(4)]
    for process in processes:
        process.start()
    results = [out.get() for _ in processes]
    for process in processes:
        process.join()
        process.close()
    out.close()
    assert [result for result in results if result[0] == "error"] == []
    with fairturn.connect(url) as database:
        assert database.migrate() == []
        applied = [names for _, names in results if names]
        if backend != "sqlite":  # which migrates itself on connecting
            assert applied == [[name for name, _ in database._core.backend.migrations()]]
        queue = database.queue("q")
        assert queue.create() is True
        queue.send(1)
        assert queue.receive()[0].body == 1


@pytest.mark.parametrize("backend", ["postgresql", "mysql"], indirect=True)
def test_without_a_schema_the_error_says_what_to_do(backend):
    make = servers.postgres_url if backend == "postgresql" else servers.mysql_url
    with fairturn.connect(make("empty")) as database:
        for call in (database.queues, database.stats, database.queue("q").create):
            with pytest.raises(fairturn.SchemaOutdated, match="migrate"):
                call()
        with pytest.raises(DatabaseError):
            database.queue("q").send(1)


# --- a hundred thousand in one channel ------------------------------------------------------------

OTHERS = 100


@pytest.fixture(scope="module")
def crowded(doors: Any) -> Iterator[Callable[[str], str]]:
    """A queue with 100,000 messages in one channel, made once per backend."""
    made: dict[str, str] = {}

    def crowded(backend: str) -> str:
        if backend not in made:
            name = unique("crowded")
            with fairturn.connect(doors.url(backend)) as database:
                queue = database.queue(name)
                queue.create(lease=600)
                for start in range(0, 100_000, 10_000):
                    queue.send_many([Send(n, channel="m") for n in range(start, start + 10_000)])
            made[backend] = name
        return made[backend]

    yield crowded
    for backend, name in made.items():
        with fairturn.connect(doors.url(backend)) as database:
            database.queue(name).drop()
            while database.maintain(50_000).more:  # the tests after this need not carry it along
                pass


@pytest.mark.parametrize("n", [1, 10, 100, 1000])
def test_promise_07_a_crowd_in_one_channel_delays_the_others_by_two_rounds(db, backend, crowded, n):
    queue = db.queue(crowded(backend))
    names = [f"{'az'[k % 2]}{k:03}-{n}" for k in range(OTHERS)]  # before and after the crowd
    queue.send_many([Send(name, channel=name) for name in names])
    missing = set(names)
    given = 0
    while missing:
        messages = queue.receive(n)
        for place, message in enumerate(messages, given + 1):
            if message.channel in missing:
                missing.discard(message.channel)
                assert place <= 2 * (OTHERS + 1), f"{message.channel} came as number {place}"
        given += len(messages)
        assert given <= 3000
        queue.ack(messages)
