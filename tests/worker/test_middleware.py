"""Hooks around handlers: their order, their thread, their errors; and what a worker leaves."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import fairturn
from fairturn import GiveUp
from tests.worker.bench import PATIENCE, Bench, eventually

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


class Recorder(fairturn.Middleware):
    """Writes down which hook ran, for what, and whether in the main thread."""

    def __init__(self, name: str, told: list[Any]) -> None:
        self.name = name
        self.told = told

    def tell(self, *what: Any) -> None:
        main = threading.current_thread() is threading.main_thread()
        self.told.append((self.name, *what, "loop" if main else "thread"))

    @contextlib.contextmanager
    def handling(self, context: Any) -> Iterator[None]:
        self.tell("before", context.task)
        try:
            yield
        except Exception as error:
            self.tell("error", str(error))
            raise
        finally:
            self.tell("after", context.task)

    def finished(self, context: Any, verdict: Any, seconds: float) -> None:
        assert seconds >= 0
        self.tell("finished", verdict.kind)

    def worker_started(self, worker: Any) -> None:
        assert worker.ready
        self.tell("started")

    def worker_stopped(self, worker: Any) -> None:
        assert worker.plan.running == 0
        self.tell("stopped")


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_hooks_run_in_order_and_in_the_right_thread(bench: Bench, kind: str) -> None:
    told: list[Any] = []
    bench.app.middleware.extend([Recorder("a", told), fairturn.Middleware(), Recorder("b", told)])

    @bench.task(name="t")
    def plain() -> None:
        told.append("handler")

    @bench.task(name="u")
    async def coroutine() -> None:
        told.append("handler")

    task = plain if kind == "plain" else coroutine
    where = "thread" if kind == "plain" else "loop"
    async with bench.worker():
        await task.send_async()
        await eventually(bench.empty)
    assert told == [
        ("a", "started", "loop"),
        ("b", "started", "loop"),
        ("a", "before", task.name, where),
        ("b", "before", task.name, where),
        "handler",
        ("b", "after", task.name, where),
        ("a", "after", task.name, where),
        ("a", "finished", "ack", "loop"),
        ("b", "finished", "ack", "loop"),
        ("a", "stopped", "loop"),
        ("b", "stopped", "loop"),
    ]


async def test_hooks_see_the_error_and_the_verdict(bench: Bench) -> None:
    told: list[Any] = []
    bench.app.middleware.append(Recorder("a", told))

    @bench.task()
    async def hopeless() -> None:
        raise GiveUp("never")

    async with bench.worker():
        await hopeless.wait_async(await hopeless.send_async(), PATIENCE)
    assert ("a", "error", "never", "loop") in told
    assert ("a", "finished", "kill", "loop") in told


async def test_errors_in_hooks(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """In ``handling`` they are the handler's; elsewhere they are logged and harm nobody."""

    class Broken(fairturn.Middleware):
        def finished(self, context: Any, verdict: Any, seconds: float) -> None:
            raise RuntimeError("broken in finished")

        def worker_started(self, worker: Any) -> None:
            raise RuntimeError("broken in started")

        async def worker_stopped(self, worker: Any) -> None:  # type: ignore[override]
            raise RuntimeError("broken in stopped")

    class Refuses(fairturn.Middleware):
        def handling(self, context: Any) -> None:
            if context.task == "refused":
                raise PermissionError("not you")

    bench.app.middleware.extend([Broken(), Refuses()])
    ran: list[str] = []

    @bench.task(retry=False)
    def refused() -> None:
        ran.append("refused")

    @bench.task()
    async def welcome() -> None:
        ran.append("welcome")

    async with bench.worker():
        outcome = await refused.wait_async(await refused.send_async(), PATIENCE)
        assert outcome.error == "PermissionError: not you"
        await welcome.send_async()
        await eventually(bench.empty)
    assert ran == ["welcome"]
    for text in ("broken in finished", "broken in started", "broken in stopped"):
        assert text in caplog.text


async def test_a_handler_starts_in_a_context_of_its_own(bench: Bench) -> None:
    """What one handler or its hooks put into a context variable is not seen by the next."""

    class Tenant(fairturn.Middleware):
        @contextlib.contextmanager
        def handling(self, context: Any) -> Iterator[None]:
            seen.append(tenant.get())
            tenant.set(context.message.channel)
            yield

    seen: list[str] = []
    inside: list[str] = []
    bench.app.middleware.append(Tenant())

    @bench.task()
    def plain() -> None:
        inside.append(tenant.get())

    @bench.task()
    async def coroutine() -> None:
        await asyncio.sleep(0)
        inside.append(tenant.get())

    async with bench.worker(concurrency=1):
        for n in range(5):
            await plain.with_options(channel=f"p{n}").send_async()
            await coroutine.with_options(channel=f"c{n}").send_async()
        await eventually(bench.empty)
    assert seen == ["nobody"] * 10
    assert sorted(inside) == [f"{kind}{n}" for kind in "cp" for n in range(5)]


async def test_a_coroutine_hook_has_ended_when_the_worker_has(bench: Bench) -> None:
    ended: list[str] = []

    class Slow(fairturn.Middleware):
        async def worker_stopped(self, worker: Any) -> None:  # type: ignore[override]
            await asyncio.sleep(0.05)
            ended.append("stopped")

    bench.app.middleware.append(Slow())

    async def hook(ctx: Any, error: str) -> None:
        worker.stop()
        await asyncio.sleep(0.05)
        gc.collect()  # nobody but the worker knows of it
        await asyncio.sleep(0.05)
        ended.append(error)

    @bench.task(on_give_up=hook)
    async def hopeless() -> None:
        raise GiveUp("never")

    await hopeless.send_async()
    worker = bench.worker()
    await worker.run()
    assert ended == ["never", "stopped"]


# --- beginnings and ends --------------------------------------------------------------------------
async def test_a_worker_creates_missing_queues(bench: Bench) -> None:
    name = f"{bench.name}-new"
    bench.made.append(name)
    ran: list[int] = []

    @bench.task(queue=name)
    async def task() -> None:
        ran.append(1)

    async with bench.worker() as worker:
        await eventually(lambda: worker.ready)
        await task.send_async()
        await eventually(lambda: ran)


async def test_a_queue_that_is_dropped_under_a_worker_is_made_again(bench: Bench) -> None:
    name = await bench.create()
    hold = asyncio.Event()
    ran: list[int] = []

    @bench.task(queue=name)
    async def task(n: int) -> None:
        ran.append(n)
        if n == 1:
            await hold.wait()

    @bench.task()
    async def elsewhere() -> None:
        await hold.wait()

    async def made_again() -> bool:
        return name in await bench.app.async_db.queues()

    async with bench.worker() as worker:
        await elsewhere.send_async()
        await task.send_async(1)
        await eventually(lambda: ran == [1] and worker.plan.running == 2)
        await bench.app.async_db.queue(name).drop()
        await eventually(made_again)
        hold.set()
        await task.send_async(2)
        await eventually(lambda: ran == [1, 2])
        await eventually(bench.empty)
        hold.clear()
        await task.send_async(1)
        await eventually(lambda: len(ran) == 3)
        worker.stop()
        await bench.app.async_db.queue(name).drop()  # also when it wants to write its last acks
        hold.set()
    assert (await bench.stats()).acked == 1
    assert sum(worker.metrics.lost_acks.values()) == 2


async def test_an_app_without_tasks_has_no_worker(bench: Bench) -> None:
    with pytest.raises(fairturn.InvalidArgument, match="has no tasks"):
        bench.worker()


async def test_nothing_is_left_behind(bench: Bench) -> None:
    """No thread, no task, no connection: sockets are counted by the suite's own fixture."""
    started = threading.Semaphore(0)

    @bench.task(retry=False)
    def plain(n: int) -> None:
        if n % 7 == 0:
            raise ValueError(n)
        started.release()

    @bench.task(result=True)
    async def coroutine(n: int) -> int:
        return n

    before = set(threading.enumerate())
    workers: list[Any] = []
    for _ in range(2):
        async with bench.worker(concurrency=8) as worker:
            await plain.send_many_async({"n": n} for n in range(40))
            await coroutine.send_many_async({"n": n} for n in range(40))
            await eventually(bench.empty)
        workers.append(worker)

    def left() -> set[str]:
        now = set(threading.enumerate()) - before
        return {thread.name for thread in now if not thread.name.startswith("asyncio_")}

    await eventually(lambda: not {name for name in left() if name.startswith("fairturn-handler")})
    gc.collect()
    for worker in workers:
        assert (worker.plan.running, worker.plan.buffered) == (0, 0)
        assert not worker.slots.running
        assert worker.settler.pending == 0
        assert not worker.heartbeat.held_permits
    totals = [sum(t[2]) for w in workers for t in w.metrics.snapshot()["tasks"]]
    assert sum(totals) == 160


async def test_two_workers_of_one_app_in_one_program(bench: Bench) -> None:
    done: list[int] = []

    @bench.task()
    async def task(n: int) -> None:
        await asyncio.sleep(0)
        done.append(n)

    async with bench.worker(name="one") as one, bench.worker(name="two") as two:
        await task.send_many_async({"n": n} for n in range(100))
        await eventually(bench.empty)
    assert sorted(done) == list(range(100))
    received = [w.metrics.received.get(bench.name, 0) for w in (one, two)]
    assert sum(received) >= 100
