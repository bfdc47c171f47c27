"""fairturn.testing: the clock, the in-memory database, and what was sent."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn.testing import Clock, memory_database, memory_database_async, use

NOWHERE = "sqlite:////nowhere/at/all.db"  # opening it would fail


@dataclass
class User:
    name: str
    age: int


app = fairturn.App(NOWHERE)


@app.task(queue="emails", channel=lambda to, **_: to.split("@")[1])
def welcome(to: str, greeting: str = "Hello") -> None: ...


@app.task(key=lambda user: user.name, on_conflict="ignore", priority=7)
def greet(user: User) -> None: ...


@app.task(key=lambda page, **_: page, on_conflict="replace", debounce=10)
def reindex(page: str, version: int) -> None: ...


@app.task
def collect(*names: str, **more: int) -> None: ...


# --- the clock -----------------------------------------------------------------------------------
def test_a_clock_stands_until_it_is_moved():
    clock = Clock()
    start = clock.now
    assert start == Clock().now
    assert start.tzinfo is UTC
    clock.move(1.5)
    clock.move(timedelta(minutes=1))
    assert clock.now == start + timedelta(seconds=61.5)
    assert clock() == round(clock.now.timestamp() * 1_000_000)


def test_a_clock_can_be_set_to_any_time_that_is_one():
    clock = Clock(datetime(2026, 3, 29, tzinfo=UTC))
    assert clock.now == datetime(2026, 3, 29, tzinfo=UTC)
    clock.set(datetime(2001, 1, 1, tzinfo=UTC))
    assert repr(clock) == "<Clock 2001-01-01 00:00:00+00:00>"
    with pytest.raises(fairturn.InvalidArgument, match="time zone"):
        clock.set(datetime(2001, 1, 1))
    with pytest.raises(fairturn.InvalidArgument, match="negative"):
        clock.move(-1)


def test_what_code_schedules_by_the_real_time_is_still_to_come():
    assert Clock().now < datetime.now(UTC)


# --- the database --------------------------------------------------------------------------------
def test_a_memory_database_is_a_database():
    clock = Clock()
    with memory_database(clock) as db:
        queue = db.queue("q")
        assert queue.create() is True
        queue.send({"n": 1}, delay=60)
        assert queue.receive() == []
        clock.move(60)
        [message] = queue.receive()
        assert message.body == {"n": 1}
        message.ack()
    with pytest.raises(fairturn.DatabaseUnavailable):
        db.queues()


def test_two_memory_databases_know_nothing_of_each_other():
    with memory_database() as one, memory_database() as other:
        one.queue("q").create()
        assert one.queues() == ["q"]
        assert other.queues() == []


def test_without_a_clock_it_has_the_real_time():
    before = datetime.now(UTC)
    with memory_database() as db:
        db.queue("q").create()
        created = db.queue("q").settings().created_at
    assert before - timedelta(milliseconds=1) <= created <= datetime.now(UTC)


def test_the_async_twin():
    async def main() -> None:
        async with memory_database_async(Clock()) as db:
            queue = db.queue("q")
            await queue.create()
            await queue.send("hello")
            [message] = await queue.receive()
            await message.complete("done")
            assert (await queue.wait(id=message.id)).result == "done"

    asyncio.run(main())


@pytest.fixture
def hectic() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hectic")
def test_threads_may_share_it():
    """Each message is given once, whoever asks."""
    with memory_database() as db:
        queue = db.queue("q")
        queue.create()
        got: list[int] = []

        def work(sends: int) -> None:
            for i in range(sends):
                queue.send(i)
                for message in queue.receive(2):
                    got.append(message.id)
                    message.ack()

        threads = [threading.Thread(target=work, args=[100]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while messages := queue.receive(100):
            got += [message.id for message in messages]
            queue.ack(messages)
        assert sorted(got) == list(range(1, 401))


# --- the block -----------------------------------------------------------------------------------
def test_the_app_has_its_own_database_again_after_the_block(tmp_path: Path):
    own = fairturn.App(f"sqlite:///{tmp_path / 'own.db'}")

    @own.task(queue="q")
    def task() -> None: ...

    own.db.queue("q").create()
    database = own.db
    with use(own) as test:
        task.send()
        assert own.db is test.db is not database
        assert own.db.queue("q").stats().ready == 1
    assert own.db is database
    assert own.db.queue("q").stats().ready == 0
    own.close()


def test_the_database_is_restored_after_an_error_too():
    before = app.databases
    with pytest.raises(ZeroDivisionError), use(app):
        raise ZeroDivisionError
    assert app.databases is before


def test_blocks_can_be_nested_and_each_has_its_own():
    with use(app) as outer:
        welcome.send("ann@example.org")
        with use(app) as inner:
            inner.assert_nothing_sent()
            welcome.send("bob@example.org")
            welcome.send("cid@example.org")
        welcome.send("dan@example.org")
        assert [call.args["to"][:3] for call in inner.sent()] == ["bob", "cid"]
        assert [call.args["to"][:3] for call in outer.sent()] == ["ann", "dan"]


def test_a_test_is_one_block():
    test = use(app)
    with pytest.raises(fairturn.UsageError, match="with use"):
        test.drain()
    with test, pytest.raises(fairturn.UsageError, match="use\\(app\\) for each"), test:
        pass


def test_queues_have_the_settings_that_the_test_gives_them():
    with use(app) as test:
        test.db.queue("emails").set(max_attempts=2)
        assert app.db.queue("emails").settings().max_attempts == 2
    with use(app) as test:
        assert test.db.queue("emails").settings().max_attempts == 5


def test_async_senders_and_workers_see_the_same_database():
    ran: list[str] = []
    own = fairturn.App(NOWHERE)

    @own.task(result=True)
    async def echo(text: str) -> str:
        ran.append(text)
        return text

    async def main() -> None:
        async with use(own) as test:
            await echo.send_async("from a coroutine")
            echo.send("from anywhere")
            assert len(test.sent(echo)) == 2
            async with own.worker():
                id = await echo.send_async("for a real worker")
                assert (await echo.wait_async(id, timeout=60)).result == "for a real worker"
        assert len(ran) == 3

    asyncio.run(main())


# --- what was sent -------------------------------------------------------------------------------
def test_a_call_as_it_was_sent():
    with use(app) as test:
        id = welcome.with_options(priority=3, key="k").schedule(delay=60).send("ann@example.org")
        [call] = test.sent()
        assert call.task is welcome
        assert call.args == {"to": "ann@example.org", "greeting": "Hello"}
        assert (call.queue, call.channel, call.key) == ("emails", "example.org", "k")
        assert call.priority == 3
        assert call.due == test.clock.now + timedelta(seconds=60)
        assert call.message.id == id
        assert call.message.state == "scheduled"


def test_arguments_are_python_values_again():
    with use(app) as test:
        greet.send(User("Ann", 41))
        collect.send("a", "b", x=1)
        assert test.sent(greet)[0].args == {"user": User("Ann", 41)}
        assert test.sent(collect)[0].args == {"names": ("a", "b"), "x": 1}


def test_sent_can_be_narrowed():
    with use(app) as test:
        welcome.send("ann@example.org")
        greet.send(User("Ann", 41))
        test.db.queue("emails").send({"no": "task"})
        assert [call.task for call in test.sent()] == [welcome, greet, None]
        assert [call.task for call in test.sent(welcome)] == [welcome]
        assert [call.task for call in test.sent("greet")] == [greet]
        assert [call.task for call in test.sent(queue="emails")] == [welcome, None]
        assert test.sent(greet, queue="emails") == []
        assert test.sent(queue="emails")[1].args == {}
        assert test.sent(queue="emails")[1].message.body == {"no": "task"}


def test_what_has_run_was_sent_all_the_same():
    with use(app) as test:
        welcome.send("ann@example.org")
        test.drain()
        assert len(test.sent(welcome)) == 1
        test.forget()
        test.assert_nothing_sent()


def test_a_duplicate_was_not_sent():
    with use(app) as test:
        greet.send(User("Ann", 41))
        assert greet.send(User("Ann", 42)).outcome == "duplicate"
        test.assert_sent(greet, times=1, user=User("Ann", 41))


def test_a_debounced_call_is_one_and_the_last():
    with use(app) as test:
        reindex.send("home", 1)
        reindex.send("other", 1)
        reindex.send("home", 2)
        assert [tuple(call.args.values()) for call in test.sent(reindex)] == [
            ("home", 2),
            ("other", 1),
        ]


def test_a_call_that_arms_a_done_message_again_is_another():
    with use(app) as test:
        test.db.queue("default").set(retention=60)
        reindex.send("home", 1)
        assert test.drain(until=10).done == 1
        reindex.send("home", 2)
        reindex.send("home", 3)
        assert [call.args["version"] for call in test.sent(reindex)] == [1, 3]


def test_a_batch_that_fails_has_sent_nothing():
    with use(app) as test:
        batch = test.db.batch()
        batch.queue("emails").send("first")
        batch.queue("emails").send("second", key="k")
        test.db.queue("emails").send("holder", key="k")
        with pytest.raises(fairturn.DuplicateKey), batch:
            pass
        assert [call.message.body for call in test.sent()] == ["holder"]


def test_the_work_of_a_group_is_sent_when_it_ends():
    with use(app) as test:
        group = test.db.group("g", "emails", end=welcome.message("end@example.org"))
        group.send_many([welcome.message("member@example.org")])
        group.start()
        test.assert_sent(welcome, times=0, to="end@example.org")
        assert test.drain().done == 2
        test.assert_sent(welcome, times=1, to="end@example.org")


# --- asserting -----------------------------------------------------------------------------------
def test_assert_sent_gives_the_calls_that_fit():
    with use(app) as test:
        welcome.send("ann@example.org")
        welcome.send("ann@example.org", greeting="Hi")
        welcome.send("bob@example.org")
        assert len(test.assert_sent(welcome)) == 3
        assert len(test.assert_sent(welcome, times=2, to="ann@example.org")) == 2
        [call] = test.assert_sent("welcome", to="ann@example.org", greeting="Hi")
        assert call.args["greeting"] == "Hi"
        test.assert_sent(welcome, times=0, to="eve@example.org")
        test.assert_sent(greet, times=0)


def test_the_complaint_shows_what_was_sent_instead():
    with use(app) as test:
        with pytest.raises(AssertionError) as nothing:
            test.assert_sent(welcome)
        assert str(nothing.value) == "welcome was not sent. Nothing was sent"
        welcome.schedule(delay=60).send("ann@example.org")
        greet.send(User("Ann", 41))
        with pytest.raises(AssertionError) as wrong:
            test.assert_sent(welcome, to="bob@example.org")
        assert str(wrong.value).splitlines() == [
            "welcome with to='bob@example.org' was not sent. Sent:",
            (
                "  welcome(to='ann@example.org', greeting='Hello') in queue 'emails', "
                "channel 'example.org', due 2025-01-06 12:01:00+00:00"
            ),
            "  greet(user=User(name='Ann', age=41)) in queue 'default', key 'Ann', priority 7",
        ]
        with pytest.raises(AssertionError, match="welcome was sent once, not 2 times"):
            test.assert_sent(welcome, times=2)
        with pytest.raises(AssertionError, match=r"(?s)Something was sent\. Sent:.*ann@"):
            test.assert_nothing_sent()


def test_a_long_list_is_cut():
    with use(app) as test:
        welcome.send_many({"to": f"{n}@example.org"} for n in range(30))
        with pytest.raises(AssertionError, match="and 10 more") as error:
            test.assert_nothing_sent()
        assert len(str(error.value).splitlines()) == 22


def test_an_argument_that_the_task_does_not_have_is_a_mistake():
    with use(app) as test:
        with pytest.raises(fairturn.InvalidArgument, match="no argument 'too'; it has to, greet"):
            test.assert_sent(welcome, times=0, too="ann@example.org")
        test.assert_sent(collect, times=0, anything=1)


def test_strange_messages_are_shown_as_they_are():
    with use(app) as test:
        test.db.queue("emails").send([1], type="welcome")
        test.db.queue("emails").send([2], type="unknown")
        test.db.queue("emails").send([3])
        with pytest.raises(AssertionError) as error:
            test.assert_nothing_sent()
        assert str(error.value).splitlines()[1:] == [
            "  welcome [1] in queue 'emails'",
            "  unknown [2] in queue 'emails'",
            "  a message [3] in queue 'emails'",
        ]


# --- your connections ----------------------------------------------------------------------------
def test_a_connection_that_is_not_ours_sends_at_once():
    """Its commit cannot be seen, so it is not waited for."""
    connection: Any = object()
    with use(app) as test:
        welcome.using(connection).send("ann@example.org")
        test.assert_sent(welcome, times=1)

    async def main() -> None:
        async with use(app) as test:
            await welcome.using(connection).send_async("ann@example.org")
            test.assert_sent(welcome, times=1)

    asyncio.run(main())
