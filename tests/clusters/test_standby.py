"""A primary and its standby: what a connection to the wrong one is told, and that everybody finds
the primary again after a failover."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import fairturn
from tests.clusters.standby import Node, Replicated
from tests.faults.crew import wait_until

pytestmark = [
    pytest.mark.server,
    # An error in a thread of ours would only be printed.
    pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning"),
]
CLEAR = r"takes no writes.*standby.*target_session_attrs=read-write"


@pytest.fixture(scope="module")
def still() -> Iterator[Replicated]:
    """A pair that no test changes. Its queue "q" has one message, with id 1 and key "old"."""
    with Replicated() as pair:
        with fairturn.connect(pair.create_database("jobs")) as db:
            db.migrate()
            db.queue("q").create(events=True)
            db.queue("q").send("old", key="old")
        pair.catch_up()
        yield pair


@pytest.fixture
def pair() -> Iterator[Replicated]:
    """A pair that a test may break."""
    with Replicated() as pair:
        with fairturn.connect(pair.create_database("jobs")) as db:
            db.migrate()
            db.queue("q").create(max_attempts=0)
        pair.catch_up()
        yield pair


def listeners(node: Node) -> int:
    """How many connections are registered to be woken."""
    with psycopg.connect(node.url("jobs")) as own:
        row = own.execute(
            "SELECT count(*) FROM fairturn.listener JOIN pg_stat_activity ON pid = who"
        ).fetchone()
    return 0 if row is None else row[0]


# --- the wrong server ---------------------------------------------------------------------------

WRITES: dict[str, Callable[[Any], Any]] = {
    "send": lambda queue: queue.send(1),
    "send with a key": lambda queue: queue.send(1, key="k"),
    "send_many": lambda queue: queue.send_many([1, 2]),
    "receive": lambda queue: queue.receive(),
    "receive that waits": lambda queue: queue.receive(wait=30),
    "ack": lambda queue: queue.lease(1, 1).ack(),
    "create": lambda queue: queue.create(),
    "purge": lambda queue: queue.purge(),
}


@pytest.mark.parametrize("call", WRITES.values(), ids=WRITES.keys())
def test_a_standby_takes_no_writes(still: Replicated, call: Callable[[Any], Any]) -> None:
    with (
        fairturn.connect(still.standby.url("jobs")) as db,
        pytest.raises(fairturn.DatabaseUnavailable, match=CLEAR),
    ):
        call(db.queue("q"))


@pytest.mark.parametrize("call", WRITES.values(), ids=WRITES.keys())
def test_a_standby_takes_no_writes_async(still: Replicated, call: Callable[[Any], Any]) -> None:
    async def main() -> None:
        async with fairturn.connect_async(still.standby.url("jobs")) as db:
            with pytest.raises(fairturn.DatabaseUnavailable, match=CLEAR):
                await call(db.queue("q"))

    asyncio.run(main())


@pytest.mark.parametrize("name", ["send", "receive"])
def test_a_standby_takes_no_writes_of_your_transaction(still: Replicated, name: str) -> None:
    url = still.standby.url("jobs")
    with (
        fairturn.connect(url) as db,
        psycopg.connect(url) as yours,
        pytest.raises(fairturn.DatabaseUnavailable, match=CLEAR),
    ):
        WRITES[name](db.queue("q").using(yours))


def test_a_standby_can_be_read(still: Replicated) -> None:
    with fairturn.connect(still.standby.url("jobs")) as db:
        queue = db.queue("q")
        assert queue.stats().ready == 1
        assert [message.body for message in queue.peek()] == ["old"]
        assert [event.kind for event in db.events(after="", timeout=0.1)] == ["created"]
        with pytest.raises(fairturn.WaitTimeout):
            queue.wait(key="old", timeout=0.1)


def test_a_standby_can_be_read_async(still: Replicated) -> None:
    async def main() -> None:
        async with fairturn.connect_async(still.standby.url("jobs")) as db:
            queue = db.queue("q")
            assert (await queue.stats()).ready == 1
            events = db.events(after="", timeout=0.1)
            assert [event.kind async for event in events] == ["created"]
            with pytest.raises(fairturn.WaitTimeout):
                await queue.wait(key="old", timeout=0.1)

    asyncio.run(main())


def test_no_server_of_the_url_is_a_primary(still: Replicated) -> None:
    url = f"{still.standby.url('jobs')}?target_session_attrs=read-write"
    with (
        fairturn.connect(url) as db,
        pytest.raises(fairturn.DatabaseUnavailable, match=r"cannot connect .*read-only"),
    ):
        db.queue("q").send(1)


def test_a_read_only_database_costs_one_call(still: Replicated) -> None:
    """All connections of the pool are of the same kind: when one is refused, none is used again."""
    with psycopg.connect(still.primary.url("postgres"), autocommit=True) as admin:
        admin.execute("ALTER DATABASE jobs SET default_transaction_read_only = on")
        try:
            with fairturn.connect(still.primary.url("jobs")) as db:
                fill_pool(db, 4)
                admin.execute("ALTER DATABASE jobs RESET default_transaction_read_only")
                with pytest.raises(fairturn.DatabaseUnavailable, match=CLEAR):
                    db.queue("other").create()
                for n in range(4):
                    db.queue(f"other{n}").create()
        finally:
            admin.execute("ALTER DATABASE jobs RESET default_transaction_read_only")


def fill_pool(db: fairturn.Database, count: int) -> None:
    """Open so many connections, and give them back."""
    db.queues()
    drivers = [db._runner._pool.acquire() for _ in range(count)]
    for driver in drivers:
        db._runner._pool.release(driver)


def test_a_waker_that_met_a_standby_listens_when_it_is_the_primary(pair: Replicated) -> None:
    """As behind a proxy, in the seconds before it has noticed the new primary."""
    with fairturn.connect(pair.url("jobs")) as db:
        id = db.queue("q").send(1).id
    pair.catch_up()
    standby = pair.standby
    with fairturn.connect(standby.url("jobs")) as db:
        queue = db.queue("q")
        ticket = db._core.waker.ticket("q")
        assert not ticket.live
        pair.fail_over()
        wait_until(lambda: ticket.live, "the waker listens")
        ticket.leave()
        assert [message.id for message in queue.receive(wait=5)] == [id]


@pytest.mark.deep
def test_an_async_waker_that_met_a_standby_listens_when_it_is_the_primary(
    pair: Replicated,
) -> None:
    async def main() -> None:
        async with fairturn.connect_async(pair.standby.url("jobs")) as db:
            ticket = await db._core.waker.ticket("q")
            assert not ticket.live
            pair.fail_over()
            deadline = time.monotonic() + 60
            while not ticket.live:
                assert time.monotonic() < deadline, "the waker does not listen"
                await ticket.wait(0.02)
            await ticket.leave()

    asyncio.run(main())


# --- a failover ---------------------------------------------------------------------------------


class Waiting:
    """A call that waits, in a thread; its result or its error."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error

    def join(self) -> Any:
        self._thread.join()
        if self.error is not None:
            raise self.error
        return self.result


def test_calls_that_wait_outlast_a_failover(pair: Replicated) -> None:
    """The URL has both servers. Two calls wait when the primary is killed: they go on at the new
    one, and they are woken there. (Of two Databases: each is one listener.)"""
    url = pair.url("jobs")
    with fairturn.connect(url) as one, fairturn.connect(url) as two, fairturn.connect(url) as other:
        asked = other.queue("q").send("asked", type="asked", delay=3600).id
        pair.catch_up()
        received = Waiting(
            lambda: [m.body for m in one.queue("q").receive(wait=120, types=["sent"])]
        )
        answered = Waiting(lambda: two.queue("q").wait(id=asked, timeout=120).state)
        wait_until(lambda: listeners(pair.primary) == 2, "they wait")
        pair.fail_over()
        wait_until(lambda: listeners(pair.primary) == 2, "they wait at the new primary")
        wait_until(lambda: sent(other, "sent"), "a send succeeds")
        assert received.join() == ["sent"]
        other.queue("q").cancel(id=asked)
        assert answered.join() == "gone"


def test_a_reader_of_events_outlasts_a_failover(pair: Replicated) -> None:
    url = pair.url("jobs")
    with fairturn.connect(url) as one, fairturn.connect(url) as other:
        other.queue("q").set(events=True)
        pair.catch_up()
        told = Waiting(lambda: next(one.events("q", kinds=["created"], timeout=120)).kind)
        wait_until(lambda: listeners(pair.primary) == 1, "it waits")
        pair.fail_over()
        wait_until(lambda: listeners(pair.primary) == 1, "it waits at the new primary")
        wait_until(lambda: sent(other, "sent"), "a send succeeds")
        assert told.join() == "created"


def sent(db: fairturn.Database, type: str) -> bool:
    try:
        db.queue("q").send("sent", type=type, key="sent", on_conflict="ignore")
    except fairturn.DatabaseUnavailable:
        return False
    return True


def test_calls_that_wait_outlast_a_failover_async(pair: Replicated) -> None:
    async def main() -> None:
        url = pair.url("jobs")
        async with fairturn.connect_async(url) as one, fairturn.connect_async(url) as two:
            asked = (await one.queue("q").send("asked", type="asked", delay=3600)).id
            pair.catch_up()
            received = asyncio.create_task(one.queue("q").receive(wait=120, types=["sent"]))
            answered = asyncio.create_task(two.queue("q").wait(id=asked, timeout=120))
            await until(lambda: listeners(pair.primary) == 2)
            await asyncio.to_thread(pair.fail_over)
            await until(lambda: listeners(pair.primary) == 2)
            with fairturn.connect(url) as other:
                await until(lambda: sent(other, "sent"))
            assert [message.body for message in await received] == ["sent"]
            await two.queue("q").cancel(id=asked)
            assert (await answered).state == "gone"

    asyncio.run(main())


async def until(condition: Callable[[], Any]) -> None:
    """wait_until(), beside an event loop that goes on."""
    await asyncio.to_thread(wait_until, condition, "a condition of the test")


@pytest.mark.deep
def test_a_wait_for_a_database_that_stays_away_tells_it(pair: Replicated) -> None:
    """Not that the message is not finished: nobody knows."""
    url = pair.url("jobs")
    with fairturn.connect(url) as one, fairturn.connect(url) as two:
        id = one.queue("q").send(1, delay=3600).id
        answered = Waiting(lambda: one.queue("q").wait(id=id, timeout=5))
        received = Waiting(lambda: two.queue("q").receive(wait=5))
        wait_until(lambda: listeners(pair.primary) == 2, "they wait")
        pair.standby.kill9()
        pair.primary.kill9()
        for waiting in (answered, received):
            with pytest.raises(fairturn.DatabaseUnavailable):
                waiting.join()


@pytest.mark.deep
def test_closing_ends_calls_that_outlast_an_outage(pair: Replicated) -> None:
    one, two = fairturn.connect(pair.url("jobs")), fairturn.connect(pair.url("jobs"))
    id = one.queue("q").send(1, delay=3600).id
    calls = [
        Waiting(lambda: one.queue("q").wait(id=id, timeout=600)),
        Waiting(lambda: two.queue("q").receive(wait=600)),
    ]
    wait_until(lambda: listeners(pair.primary) == 2, "they wait")
    pair.standby.kill9()
    pair.primary.kill9()
    for db in (one, two):
        wait_until(lambda db=db: not db._core.waker.live, "its connections are gone")
        db.close()
    for call in calls:
        with pytest.raises(fairturn.DatabaseUnavailable, match="closed"):
            call.join()


@pytest.mark.deep
def test_an_old_primary_that_rejoins_is_not_taken_for_one(pair: Replicated) -> None:
    with fairturn.connect(pair.url("jobs")) as db:
        queue = db.queue("q")
        queue.send(1)
        pair.catch_up()
        for _ in range(2):
            pair.fail_over()
            wait_until(lambda: sent(db, "plain"), "a send succeeds")
            pair.rejoin()
            pair.catch_up()
        bodies = [message.body for message in queue.receive(10)]
    assert sorted(map(str, bodies)) == ["1", "sent"]
