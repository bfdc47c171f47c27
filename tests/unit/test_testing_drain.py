"""fairturn.testing: drain() runs what is due as a worker would."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import fairturn
from fairturn import Context, Defer, GiveUp, Retry
from fairturn.testing import Drained, use
from tests.unit.draining import NOWHERE, drain_both, raised_by_both

processed: list[int] = []
process_app = fairturn.App(NOWHERE)


@process_app.task(executor="process")
def in_a_process() -> None:
    processed.append(os.getpid())


@pytest.fixture
def app() -> fairturn.App:
    return fairturn.App(NOWHERE)


@pytest.fixture
def ran() -> list[Any]:
    return []


# --- what runs, and where ------------------------------------------------------------------------
def test_everything_due_runs_and_what_that_sends(app, ran):
    @app.task(queue="a")
    def first(n: int) -> None:
        ran.append(f"first {n}")
        if n:
            second.send(n)

    @app.task(queue="b")
    async def second(n: int) -> None:
        ran.append(f"second {n}")
        await first.send_async(n - 1)

    assert [drained.done for drained in drain_both(app, lambda: first.send(2))] == [5, 5]
    assert ran == ["first 2", "second 2", "first 1", "second 1", "first 0"] * 2


def test_queues_take_turns(app, ran):
    for name in ("a", "b"):
        app.task(name=name, queue=name)(lambda n, name=name: ran.append(f"{name}{n}"))
    with use(app) as test:
        for name in ("a", "b"):
            app.tasks[name].send_many({"n": n} for n in range(3))
        test.drain()
    assert ran == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_plain_functions_run_in_this_thread_and_in_no_event_loop(app, ran):
    async def elsewhere() -> str:
        return "a loop of its own"

    @app.task
    def task() -> None:
        ran.append((threading.current_thread(), asyncio.run(elsewhere())))

    with use(app) as test:
        task.send()
        test.drain()
    assert ran == [(threading.current_thread(), "a loop of its own")]


def test_coroutines_have_one_event_loop_for_the_whole_block(app, ran):
    @app.task
    async def task() -> None:
        ran.append(asyncio.get_running_loop())
        await asyncio.sleep(0)

    with use(app) as test:
        for _ in range(2):
            task.send()
            test.drain()
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
    assert ran[0] is ran[1]
    assert ran[0].is_closed()


def test_in_an_event_loop_there_is_drain_async(app, ran):
    @app.task
    async def task() -> None:
        ran.append(asyncio.get_running_loop())

    @app.task
    def plain() -> None:
        ran.append(threading.current_thread())

    async def main() -> None:
        async with use(app) as test:
            await task.send_async()
            with pytest.raises(fairturn.UsageError, match="await test"):
                test.drain()
            assert (await test.drain_async()).done == 1
            assert ran == [asyncio.get_running_loop()]
            await plain.send_async()
            await test.drain_async()
            assert ran[1] is not threading.current_thread()
            # … and a thread of the test's may drain.
            await task.send_async()
            assert (await asyncio.to_thread(test.drain)).done == 1

    asyncio.run(main())


def test_process_handlers_run_inline():
    with use(process_app) as test:
        in_a_process.send()
        assert test.drain().done == 1
    assert processed == [os.getpid()]


def test_a_handler_has_its_context(app, ran):
    @app.task(result=True)
    def task(ctx: Context, n: int) -> int:
        ctx.progress(0.5, note="half")
        ctx.extend(60)
        current = fairturn.current_context()
        ran.append((ctx.attempt, ctx.queue, ctx.task, ctx.cancelled, current is ctx))
        return n * 2

    with use(app) as test:
        id = task.send(21)
        test.drain()
        assert task.wait(id).result == 42
        assert fairturn.current_context() is None
    assert ran == [(1, "default", "task", False, True)]


def test_handlers_see_the_context_variables_of_the_test(app, ran):
    import contextvars

    tenant = contextvars.ContextVar("tenant", default="nobody")

    @app.task
    def plain() -> None:
        ran.append(tenant.get())
        tenant.set("changed")

    @app.task
    async def coroutine() -> None:
        ran.append(tenant.get())

    def send() -> None:
        tenant.set("me")
        plain.send()
        plain.send()
        coroutine.send()

    with use(app) as test:
        send()
        test.drain()
        assert tenant.get() == "me"
    assert ran == ["me", "me", "me"]


# --- errors --------------------------------------------------------------------------------------
@pytest.fixture
def failing(app: fairturn.App, ran: list[Any]) -> fairturn.Task[..., Any]:
    @app.task(retry=fairturn.Backoff(initial=10, factor=2, max_attempts=3, jitter=0))
    def fail(until: int = 99) -> None:
        context = fairturn.current_context()
        assert context is not None
        ran.append(context.attempt)
        if context.attempt < until:
            raise ZeroDivisionError(f"attempt {context.attempt}")

    return fail


def test_what_a_handler_raises_is_raised_to_the_test(app, failing, ran):
    raised_by_both(app, failing.send, ZeroDivisionError)
    with use(app) as test:
        failing.send()
        with pytest.raises(ZeroDivisionError, match="attempt 1") as error:
            test.drain()
        assert error.traceback[-1].name == "fail"
        # To the message happened what happens to it in production.
        [message] = test.db.queue("default").peek()
        assert (message.state, message.attempts) == ("scheduled", 1)
        assert message.error == "ZeroDivisionError: attempt 1"
        assert message.due_at == test.clock.now + timedelta(seconds=10)
        assert test.drain() == Drained()


def test_after_the_first_error_the_others_wait(app, failing, ran):
    @app.task
    def other() -> None:
        ran.append("other")

    with use(app) as test:
        failing.send()
        other.send()
        with pytest.raises(ZeroDivisionError):
            test.drain()
        assert ran == [1]
        assert test.drain().done == 1
        assert ran == [1, "other"]


def test_errors_can_be_left_as_they_are_in_production(app, failing):
    for drained in drain_both(app, failing.send, raise_errors=False):
        assert (drained.failed, drained.dead) == (1, 0)
        assert [str(error) for error in drained.errors] == ["attempt 1"]


def test_a_retry_comes_when_the_clock_has_moved(app, failing, ran):
    with use(app) as test:
        failing.send()
        test.drain(raise_errors=False)
        test.clock.move(9.9)
        assert test.drain(raise_errors=False) == Drained()
        test.clock.move(0.1)
        assert test.drain(raise_errors=False).failed == 1
        test.clock.move(20)
        assert test.drain(raise_errors=False).dead == 1
        assert ran == [1, 2, 3]
        assert test.db.queue("default").stats().dead == 1


def test_retries_moves_the_clock_until_nothing_waits(app, failing, ran):
    with use(app) as test:
        start = test.clock.now
        failing.send(until=3)
        drained = test.drain(retries=True)
        assert (drained.done, drained.failed, drained.dead) == (1, 2, 0)
        assert [str(error) for error in drained.errors] == ["attempt 1", "attempt 2"]
        assert test.clock.now == start + timedelta(seconds=30)


def test_with_retries_the_error_of_a_dead_message_is_raised(app, failing, ran):
    raised_by_both(app, failing.send, ZeroDivisionError, retries=True)
    assert ran == [1, 2, 3] * 2
    for drained in drain_both(app, failing.send, retries=True, raise_errors=False):
        assert (drained.failed, drained.dead) == (2, 1)


def test_what_a_handler_asks_for_is_no_error(app, ran):
    @app.task
    def task(ctx: Context, what: str) -> None:
        if what == "defer" and ctx.memo is None:
            raise Defer(60, memo="seen")
        if what == "retry" and ctx.attempt == 1:
            raise Retry(delay=60)
        if what == "give up":
            raise GiveUp("never")
        ran.append((what, ctx.memo))

    def send() -> None:
        for what in ("defer", "retry", "give up"):
            task.send(what)

    for drained in drain_both(app, send):
        assert drained == Drained(deferred=1, failed=1, dead=1)
    assert ran == []
    for drained in drain_both(app, send, until=60):
        assert drained == Drained(done=2, deferred=1, failed=1, dead=1)
    assert ran == [("defer", "seen"), ("retry", None)] * 2


def test_a_message_that_does_not_fit_its_task_is_an_error(app):
    @app.task
    def task(n: int) -> None: ...

    with use(app) as test:
        test.db.queue("default").send({"n": "x"}, type="task")
        with pytest.raises(fairturn.InvalidArgument, match=r"task\(n\): not an int"):
            test.drain()


def test_a_message_for_nobody_is_an_error(app):
    @app.task
    def task() -> None: ...

    @app.task
    def other() -> None: ...

    def send() -> None:
        app.db.queue("default").send({}, type="renamed")

    with use(app) as test:
        send()
        with pytest.raises(fairturn.InvalidArgument, match="'renamed'; the app has other, task"):
            test.drain()
    for drained in drain_both(app, send, raise_errors=False):
        assert drained == Drained(failed=1)


def test_a_lease_that_is_lost(app):
    @app.task
    def task(ctx: Context) -> None:
        app.db.queue("default").cancel(id=ctx.message.id, force=True)
        ctx.extend(60)

    assert [d.lost for d in drain_both(app, task.send, raise_errors=False)] == [1, 1]


def test_a_coroutine_that_takes_too_long(app):
    @app.task(timeout=0.01, retry=False)
    async def task() -> None:
        await asyncio.Event().wait()

    raised_by_both(app, task.send, fairturn.TaskTimeout)
    for drained in drain_both(app, task.send, raise_errors=False):
        assert drained.dead == 1
        assert isinstance(drained.errors[0], fairturn.TaskTimeout)


def test_a_test_that_fails_inside_a_handler_fails(app):
    """pytest.fail() and Ctrl-C are no failures of the message."""

    @app.task
    def plain() -> None:
        pytest.fail("from a function")

    @app.task
    async def coroutine() -> None:
        pytest.fail("from a coroutine")

    failed = pytest.fail.Exception
    with use(app) as test:
        plain.send()
        with pytest.raises(failed, match="from a function"):
            test.drain(raise_errors=False)
    raised_by_both(app, coroutine.send, failed, raise_errors=False)


def test_a_drain_without_end_is_stopped(app, ran):
    @app.task
    def again() -> None:
        ran.append(1)
        again.send()

    @app.task
    async def later(n: int) -> None:
        raise Defer(60)

    raised_by_both(app, again.send, AssertionError)
    assert len(ran) == 2000
    with use(app) as test:
        later.send(1)
        with pytest.raises(AssertionError, match=r"handled 7 messages.* such as later"):
            test.drain(retries=True, raise_errors=False, limit=7)
        assert test.db.queue("default").stats().leased == 0


# --- time ----------------------------------------------------------------------------------------
def test_what_is_delayed_waits_for_the_clock(app, ran):
    @app.task
    def task() -> None:
        ran.append(1)

    with use(app) as test:
        task.schedule(delay=3600).send()
        assert test.drain() == Drained()
        test.clock.move(timedelta(hours=1))
        assert test.drain().done == 1


def test_until_runs_each_thing_at_its_time(app, ran):
    @app.task
    def task(name: str) -> None:
        ran.append((name, test.clock.now - start))
        if name == "first":
            task.schedule(delay=5).send("from the first")

    with use(app) as test:
        start = test.clock.now
        task.schedule(delay=20).send("second")
        task.schedule(delay=10).send("first")
        task.schedule(delay=31).send("too late")
        assert test.drain(until=30).done == 3
        assert test.clock.now == start + timedelta(seconds=30)
        assert test.drain(until=start + timedelta(seconds=31)).done == 1
        assert test.drain(until=start).done == 0  # that is over: time does not go back
        assert test.clock.now == start + timedelta(seconds=31)
    assert [(name, after.total_seconds()) for name, after in ran] == [
        ("first", 10),
        ("from the first", 15),
        ("second", 20),
        ("too late", 31),
    ]


def test_a_rate_is_waited_for(app, ran):
    @app.task
    def task() -> None:
        ran.append(test.clock.now)

    with use(app) as test:
        start = test.clock.now
        test.db.queue("default").set(policy=fairturn.Policy(rate="1/min"))
        task.send_many([{}, {}, {}])
        assert test.drain().done == 1
        assert test.drain(retries=True).done == 2
    assert [(at - start).total_seconds() for at in ran] == [0, 60, 120]


def test_an_ordered_channel_waits_for_the_retry_of_its_first(app, ran):
    @app.task(retry=fairturn.Backoff(initial=10, jitter=0))
    def task(ctx: Context, n: int) -> None:
        ran.append((n, ctx.attempt))
        if (n, ctx.attempt) == (1, 1):
            raise ValueError

    def send() -> None:
        app.db.queue("default").set(policy=fairturn.Policy(ordered=True))
        task.send_many([{"n": 1}, {"n": 2}])

    for drained in drain_both(app, send, retries=True):
        assert (drained.done, drained.failed) == (2, 1)
    assert ran == [(1, 1), (1, 2), (2, 1)] * 2


def test_schedules_tick_by_the_clock(app, ran):
    @app.task
    def task(name: str) -> None:
        ran.append((name, test.clock.now.strftime("%H:%M")))

    app.every(600, task, args={"name": "every"}, name="every")
    app.cron("0 13 * * *", task, args={"name": "cron"}, name="cron")
    app.at(datetime(2025, 1, 6, 12, 15, tzinfo=UTC), task, args={"name": "at"}, name="at")
    with use(app) as test:
        assert [schedule.name for schedule in test.db.schedules()] == ["at", "cron", "every"]
        assert test.drain() == Drained()
        test.clock.move(600)
        assert test.tick().sent == 1
        assert ran == []
        test.assert_sent(task, times=1, name="every")
        assert test.drain().done == 1
        test.drain(until=datetime(2025, 1, 6, 13, tzinfo=UTC))
    assert sorted(ran, key=lambda one: (one[1], one[0])) == [
        ("every", "12:10"),
        ("at", "12:15"),
        ("every", "12:20"),
        ("every", "12:30"),
        ("every", "12:40"),
        ("every", "12:50"),
        ("cron", "13:00"),
        ("every", "13:00"),
    ]


def test_all_schedules_tick_however_many(app):
    @app.task
    def task() -> None: ...

    for n in range(150):
        app.every(60, task, name=f"schedule {n}")
    with use(app) as test:
        test.clock.move(60)
        assert test.tick().sent == 150
        assert test.tick().sent == 0


def test_retries_do_not_follow_schedules_for_ever(app, failing, ran):
    app.every(1, failing, args={"until": 0})
    with use(app) as test:
        assert test.drain(retries=True) == Drained()


def test_a_schedule_that_cannot_be_run_is_an_error(app):
    @app.task
    def task() -> None: ...

    with use(app) as test:
        test.db.queue("gone").create()
        test.db.schedule("lost").set("gone", every=60)
        test.db.queue("gone").drop()
        test.clock.move(60)
        with pytest.raises(AssertionError, match="lost: QueueNotFound"):
            test.drain()
        test.clock.move(600)
        assert test.drain(raise_errors=False) == Drained()
        test.clock.move(600)
        [(name, _)] = test.tick().errors
        assert name == "lost"


def test_a_failure_waits_for_the_back_off_of_its_queue(app):
    @app.task
    def broken() -> None:
        raise ValueError

    with use(app) as test:
        backoff = fairturn.Backoff(initial=600, factor=1, maximum=600, jitter=0)
        test.db.queue("default").set(backoff=backoff)
        broken.send()
        test.drain(raise_errors=False)
        [waiting] = test.db.queue("default").peek()
        assert waiting.due_at - test.clock.now == timedelta(seconds=600)
