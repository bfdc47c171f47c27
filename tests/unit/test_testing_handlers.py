"""fairturn.testing: hooks, handlers that wait for others, and transactions under drain()."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

import pytest

import fairturn
from fairturn import Context, GiveUp
from fairturn.testing import use
from tests.unit.draining import NOWHERE, drain_both, raised_by_both


@pytest.fixture
def app() -> fairturn.App:
    return fairturn.App(NOWHERE)


@pytest.fixture
def ran() -> list[Any]:
    return []


# --- hooks ---------------------------------------------------------------------------------------
class Recorder(fairturn.Middleware):
    def __init__(self, told: list[Any]) -> None:
        self.told = told

    def sending(self, task: Any, message: Any) -> None:
        self.told.append(f"sending {task.name}")

    @contextmanager
    def handling(self, context: Any) -> Iterator[None]:
        self.told.append(f"handling {context.task}")
        try:
            yield
        except ValueError:
            self.told.append("it failed")
            raise

    def finished(self, context: Any, verdict: Any, seconds: float) -> None:
        self.told.append(f"finished {verdict.kind}")

    def worker_started(self, worker: Any) -> None:
        self.told.append("started")

    def worker_stopped(self, worker: Any) -> None:
        self.told.append("stopped")


def test_middleware_is_told_as_by_a_worker():
    told: list[str] = []
    app = fairturn.App(NOWHERE, middleware=[Recorder(told)])

    @app.task
    def good() -> None: ...

    @app.task(retry=False)
    async def bad() -> None:
        raise ValueError

    def send() -> None:
        good.send()
        bad.send()

    drain_both(app, send, raise_errors=False)
    assert told == 2 * [
        "sending good",
        "sending bad",
        "started",
        "handling good",
        "finished ack",
        "handling bad",
        "it failed",
        "finished kill",
        "stopped",
    ]


def test_an_error_in_a_hook_is_an_error_of_the_test(caplog):
    class Broken(fairturn.Middleware):
        def finished(self, context: Any, verdict: Any, seconds: float) -> None:
            raise LookupError("in a hook")

    app = fairturn.App(NOWHERE, middleware=[Broken()])

    @app.task
    def task() -> None: ...

    raised_by_both(app, task.send, LookupError)
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        for drained in drain_both(app, task.send, raise_errors=False):
            assert drained.done == 1
    assert [record.name for record in caplog.records] == ["fairturn.worker"] * 2


def test_on_give_up_is_told_plain_or_async(app, ran):
    async def told_async(context: Any, error: str) -> None:
        await asyncio.sleep(0)
        ran.append((context.task, error))

    async def broken(context: Any, error: str) -> None:
        raise LookupError("in a hook")

    def told(context: Any, error: str) -> None:
        ran.append((context.task, error))

    for name, hook in {"plain": told, "async": told_async}.items():

        @app.task(name=name, retry=False, on_give_up=hook)
        def fail() -> None:
            raise ValueError("no")

    @app.task(on_give_up=broken)
    def bad() -> None:
        raise GiveUp

    def send() -> None:
        app.tasks["plain"].send()
        app.tasks["async"].send()

    drain_both(app, send, raise_errors=False)
    assert ran == [("plain", "ValueError: no"), ("async", "ValueError: no")] * 2
    raised_by_both(app, bad.send, LookupError)


# --- handlers that wait for others ---------------------------------------------------------------
@pytest.fixture
def family(app: fairturn.App) -> fairturn.App:
    @app.task(result=True)
    async def child(n: int) -> int:
        if n < 0:
            raise ValueError("the child")
        return n + 1

    @app.task(result=True)
    def parent(ctx: Context, n: int) -> int:
        id = child.send(n)
        with ctx.yield_slot():
            return child.wait(id).result

    @app.task(result=True)
    async def mother(ctx: fairturn.AsyncContext, n: int) -> int:
        ids = [await child.send_async(n), await parent.send_async(n)]
        async with ctx.yield_slot():
            return sum([(await child.wait_async(id)).result for id in ids])

    return app


@pytest.mark.parametrize("name", ["parent", "mother"])
def test_a_handler_that_gives_its_slot_away_gets_what_it_waits_for(family, name):
    task = family.tasks[name]
    expected = {"parent": 2, "mother": 4}[name]
    with use(family) as test:
        id = task.send(1)
        test.drain()
        assert task.wait(id).result == expected

    async def main() -> None:
        async with use(family) as test:
            id = await task.send_async(1)
            await test.drain_async()
            assert (await task.wait_async(id)).result == expected

    asyncio.run(main())


@pytest.mark.parametrize("name", ["parent", "mother"])
def test_what_it_waits_for_fails(family, name):
    """Nobody waits for ever for a child that has failed."""
    with use(family) as test:
        family.tasks[name].send(-1)
        with pytest.raises(ValueError, match="the child"):
            test.drain()
        assert test.db.queue("default").stats().leased == 0


@pytest.mark.parametrize("name", ["parent", "mother"])
def test_what_it_waits_for_fails_in_an_event_loop(family, name, monkeypatch):
    # A thread that waits cannot be made to leave before the block ends; do not wait for it long.
    monkeypatch.setattr("fairturn.testing.drain.UNWIND", 0.01 if name == "parent" else 60)

    async def main() -> None:
        async with use(family) as test:
            await family.tasks[name].send_async(-1)
            with pytest.raises(ValueError, match="the child"):
                await test.drain_async()
            assert test.db.queue("default").stats().leased == (name == "parent")

    asyncio.run(main())


# --- transactions --------------------------------------------------------------------------------
def test_what_is_written_in_a_handlers_transaction(app):
    """Your connection, our ack and what was sent in it: all or nothing."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE person (name TEXT)")

    @app.task
    def other(n: int) -> None: ...

    @app.task(queue="people", retry=False)
    def store(ctx: Context, name: str) -> None:
        with ctx.transaction() as conn:
            conn.execute("INSERT INTO person VALUES (?)", [name])
            ids.append(other.using(conn).send(1))
            other.send(2)  # not in the transaction
            ids.append(other.using(conn).send(3))
            test.assert_sent(other, times=0, n=1)
            if name == "bad":
                raise ValueError

    ids: list[int] = []
    with use(app, transaction=lambda: connection) as test:
        store.send("bad")
        with pytest.raises(ValueError):
            test.drain()
        assert connection.execute("SELECT name FROM person").fetchall() == []
        assert [call.args["n"] for call in test.sent(other)] == [2]
        assert test.db.queue("people").stats().dead == 1
        store.send("good")
        test.drain()
        assert connection.execute("SELECT name FROM person").fetchall() == [("good",)]
        assert [call.args["n"] for call in test.sent(other)] == [2, 2, 1, 3]
        assert [call.message.id for call in test.sent(other)[2:]] == ids[2:]
        assert len({call.message.id for call in test.sent()}) == len(test.sent())
        assert test.db.queue("people").stats().total == 1
    connection.close()


def test_a_transaction_of_a_coroutine(app, ran):
    connection: Any = object()

    @asynccontextmanager
    async def begin() -> Any:
        ran.append("begin")
        yield connection
        ran.append("commit")

    @app.task
    async def other() -> None: ...

    @app.task(queue="people")
    async def store(ctx: fairturn.AsyncContext) -> None:
        async with ctx.transaction() as conn:
            assert conn is connection
            await other.using(conn).send_async()

    @app.task(queue="people")
    def plain(ctx: Context) -> None:
        with ctx.transaction():
            pass

    with use(app, transaction=begin) as test:
        store.send()
        assert test.drain().done == 2
        assert test.db.stats().total == 0
        assert ran == ["begin", "commit"]
        plain.send()
        with pytest.raises(fairturn.InvalidArgument, match="plain function"):
            test.drain()
    with use(app, transaction=lambda: nullcontext(connection)) as test:
        store.send()
        assert test.drain().done == 2


def test_without_a_connection_the_ack_is_all(app):
    @app.task
    def good(ctx: Context) -> None:
        with ctx.transaction():
            pass

    @app.task
    def bad(ctx: Context) -> None:
        with ctx.transaction() as conn:
            conn.execute("INSERT")

    with use(app) as test:
        good.send()
        assert test.drain().done == 1
        assert test.db.stats().total == 0
        bad.send()
        with pytest.raises(AttributeError, match="transaction=lambda"):
            test.drain()


def test_a_transaction_whose_lease_is_lost_comes_to_nothing(app):
    @app.task
    def other(n: int) -> None: ...

    @app.task
    def early(ctx: Context) -> None:
        with ctx.transaction() as conn:
            other.using(conn).send(1)
            app.db.queue("default").cancel(id=ctx.message.id, force=True)

    with use(app) as test:
        early.send()
        assert test.drain(raise_errors=False).lost == 1
        test.assert_sent(other, times=0)


def test_an_error_after_the_transaction_is_raised_though_nothing_is_tried_again(app):
    @app.task
    def task(ctx: Context) -> None:
        with ctx.transaction():
            pass
        raise ValueError("too late")

    raised_by_both(app, task.send, ValueError, retries=True)
    for drained in drain_both(app, task.send, raise_errors=False):
        assert (drained.done, len(drained.errors)) == (1, 1)
