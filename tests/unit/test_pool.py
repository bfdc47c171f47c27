"""execution/{sync,aio}/pool.py: bounded, newest first, tried when stale, closed for good."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from typing import Any

import pytest

from fairturn import DatabaseUnavailable
from fairturn.execution.aio import pool as aio_pool
from fairturn.execution.aio.pool import AsyncPool
from fairturn.execution.sync import pool as sync_pool
from fairturn.execution.sync.pool import STALE, Pool
from fairturn.worker.executors.threads import Interrupted, _raise_in


class Gone(Exception):
    """What a dead connection raises."""


class FakeDriver:
    def __init__(self) -> None:
        self.closed = False
        self.dead = False
        self.tried = 0
        self.error: Exception = Gone()

    def execute(self, text: str, params: Any) -> list[Any]:
        self.tried += 1
        if self.dead:
            raise self.error
        return [(1,)]

    def close(self) -> None:
        assert not self.closed
        self.closed = True

    def abort(self) -> None:
        pass

    def code(self, error: BaseException) -> str | None:
        return "gone" if isinstance(error, Gone) else None


class AsyncFakeDriver(FakeDriver):
    async def execute(self, text: str, params: Any) -> list[Any]:  # type: ignore[override]
        return super().execute(text, params)

    async def close(self) -> None:  # type: ignore[override]
        super().close()


class FakeTime:
    """time.monotonic() that stands still until told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Sync:
    """The sync pool, as the tests below use it."""

    def __init__(self, size: int, timeout: float) -> None:
        self.opened: list[FakeDriver] = []
        self.fail: Exception | None = None
        self.pool: Any = Pool(self._open, size, timeout)  # type: ignore[arg-type]

    def _open(self) -> FakeDriver:
        if self.fail:
            raise self.fail
        self.opened.append(FakeDriver())
        return self.opened[-1]

    def do(self, name: str, *args: Any) -> Any:
        return getattr(self.pool, name)(*args)

    def end(self) -> None:
        pass


class Async(Sync):
    """The async pool behind the same face."""

    def __init__(self, size: int, timeout: float) -> None:
        self.opened = []
        self.fail = None
        self.loop = asyncio.new_event_loop()
        self.pool = AsyncPool(self._open_async, size, timeout)  # type: ignore[arg-type]

    async def _open_async(self) -> FakeDriver:
        if self.fail:
            raise self.fail
        self.opened.append(AsyncFakeDriver())
        return self.opened[-1]

    def do(self, name: str, *args: Any) -> Any:
        return self.loop.run_until_complete(getattr(self.pool, name)(*args))

    def end(self) -> None:
        assert not asyncio.all_tasks(self.loop)
        self.loop.close()


@pytest.fixture(params=[Sync, Async], ids=["sync", "async"])
def make(request):
    made = []

    def make(size: int = 3, timeout: float = 0.02) -> Sync:
        made.append(request.param(size, timeout))
        return made[-1]

    yield make
    for pool in made:
        pool.end()


@pytest.fixture
def fake_time(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(sync_pool, "time", fake)
    monkeypatch.setattr(aio_pool, "time", fake)
    return fake


def test_nothing_is_opened_before_it_is_needed(make):
    assert make().opened == []


def test_a_connection_is_used_again(make):
    pool = make()
    for _ in range(5):
        driver = pool.do("acquire")
        pool.do("release", driver)
    assert len(pool.opened) == 1


def test_newest_first(make):
    pool = make()
    one, two = pool.do("acquire"), pool.do("acquire")
    pool.do("release", one)
    pool.do("release", two)
    assert pool.do("acquire") is two
    assert pool.do("acquire") is one


def test_at_most_size(make):
    pool = make(size=2)
    one = pool.do("acquire")
    pool.do("acquire")
    with pytest.raises(DatabaseUnavailable, match="all 2 connections were busy"):
        pool.do("acquire")
    pool.do("release", one)
    assert pool.do("acquire") is one
    assert len(pool.opened) == 2


def test_a_discarded_connection_makes_room(make):
    pool = make(size=1)
    one = pool.do("acquire")
    pool.do("discard", one)
    assert one.closed
    two = pool.do("acquire")
    assert two is not one
    pool.do("release", two)


def test_a_failed_open_makes_room(make):
    pool = make(size=1)
    pool.fail = OSError("no")
    for _ in range(3):
        with pytest.raises(OSError, match="no"):
            pool.do("acquire")
    pool.fail = None
    assert pool.do("acquire")


def test_a_fresh_connection_is_trusted(make, fake_time):
    pool = make()
    driver = pool.do("acquire")
    pool.do("release", driver)
    fake_time.now += STALE
    assert pool.do("acquire") is driver
    assert driver.tried == 0


def test_a_stale_connection_is_tried_first(make, fake_time):
    pool = make()
    driver = pool.do("acquire")
    pool.do("release", driver)
    fake_time.now += STALE + 0.1
    assert pool.do("acquire") is driver
    assert driver.tried == 1


def test_a_stale_dead_connection_is_replaced(make, fake_time):
    pool = make(size=1)
    driver = pool.do("acquire")
    pool.do("release", driver)
    driver.dead = True
    fake_time.now += STALE + 0.1
    fresh = pool.do("acquire")
    assert fresh is not driver
    assert driver.closed
    pool.do("release", fresh)
    assert pool.do("acquire") is fresh


def test_a_lost_connection_takes_the_idle_ones_with_it(make):
    """What broke it has broken them, and each would cost its user an error or a wait."""
    pool = make(size=3)
    one, two, three = (pool.do("acquire") for _ in range(3))
    pool.do("release", one)
    pool.do("release", two)
    pool.do("lose", three)
    assert (one.closed, two.closed, three.closed) == (True, True, True)
    fresh = [pool.do("acquire") for _ in range(3)]
    assert pool.opened[3:] == fresh


def test_a_stale_dead_connection_takes_the_idle_ones_with_it(make, fake_time):
    pool = make(size=3)
    one, two, three = (pool.do("acquire") for _ in range(3))
    pool.do("release", one)
    pool.do("release", two)
    two.dead = True
    fake_time.now += STALE + 0.1
    assert pool.do("acquire") not in (one, two)
    assert (one.closed, two.closed, three.closed) == (True, True, False)
    assert pool.do("acquire") is pool.opened[4]
    with pytest.raises(DatabaseUnavailable, match="all 3 connections were busy"):
        pool.do("acquire")


def test_an_error_that_is_not_the_databases_is_raised_and_makes_room(make, fake_time):
    pool = make(size=1)
    driver = pool.do("acquire")
    pool.do("release", driver)
    driver.dead, driver.error = True, ZeroDivisionError()
    fake_time.now += STALE + 0.1
    with pytest.raises(ZeroDivisionError):
        pool.do("acquire")
    assert driver.closed
    assert pool.do("acquire")


def test_close_closes_what_is_idle_and_refuses_more(make):
    pool = make()
    one, two = pool.do("acquire"), pool.do("acquire")
    pool.do("release", one)
    pool.do("close")
    assert (one.closed, two.closed) == (True, False)
    with pytest.raises(DatabaseUnavailable, match="closed"):
        pool.do("acquire")
    pool.do("release", two)
    assert two.closed
    pool.do("close")


# --- sync only ----------------------------------------------------------------------------------


def _in_thread(call: Any) -> tuple[threading.Thread, list[Any]]:
    out: list[Any] = []

    def run() -> None:
        try:
            out.append(call())
        except BaseException as error:
            out.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, out


def _until_waiting(pool: Pool, threads: int = 1) -> None:
    """Wait until that many threads sleep in the pool's condition."""
    while True:
        with pool._free:
            if len(pool._free._waiters) >= threads:  # type: ignore[attr-defined]
                return


def test_a_waiting_thread_gets_the_released_connection():
    setup = Sync(1, 30)
    driver = setup.do("acquire")
    thread, out = _in_thread(setup.pool.acquire)
    _until_waiting(setup.pool)
    setup.do("release", driver)
    thread.join()
    assert out == [driver]


def test_a_waiting_thread_may_open_in_place_of_a_discarded_connection():
    setup = Sync(1, 30)
    driver = setup.do("acquire")
    thread, out = _in_thread(setup.pool.acquire)
    _until_waiting(setup.pool)
    setup.do("discard", driver)
    thread.join()
    assert out == [setup.opened[1]]


def test_a_thread_that_is_interrupted_passes_the_connection_on():
    """The release that would have woken another one came to it."""
    setup = Sync(1, 30)
    driver = setup.pool.acquire()
    first, interrupted = _in_thread(setup.pool.acquire)
    _until_waiting(setup.pool)
    second, out = _in_thread(setup.pool.acquire)
    _until_waiting(setup.pool, 2)
    _raise_in(first.ident, Interrupted)
    setup.pool.release(driver)
    second.join()
    assert out == [driver]
    first.join()
    assert isinstance(interrupted[0], Interrupted)


def test_close_wakes_the_waiting():
    setup = Sync(1, 30)
    setup.do("acquire")
    waiting = [_in_thread(setup.pool.acquire) for _ in range(3)]
    _until_waiting(setup.pool, 3)
    setup.do("close")
    for thread, out in waiting:
        thread.join()
        assert isinstance(out[0], DatabaseUnavailable)


def test_many_threads_never_share_a_connection():
    setup = Sync(3, 30)
    busy: set[int] = set()
    guard = threading.Lock()
    wrong = []

    def work() -> None:
        for _ in range(200):
            driver = setup.pool.acquire()
            with guard:
                if id(driver) in busy:
                    wrong.append(driver)
                busy.add(id(driver))
            with guard:
                busy.discard(id(driver))
            setup.pool.release(driver)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(setup.opened) <= 3


def _child(pool: Any, parent: Any, out: Any) -> None:
    mine = pool.acquire()
    out.put((mine is parent, os.getpid()))
    pool.release(mine)
    pool.close()


def test_a_forked_child_starts_afresh():
    setup = Sync(1, 30)
    driver = setup.do("acquire")
    setup.do("release", driver)
    context = multiprocessing.get_context("fork")
    out = context.SimpleQueue()
    child = context.Process(target=_child, args=(setup.pool, driver, out))
    child.start()
    shared, pid = out.get()
    child.join()
    out.close()
    assert shared is False
    assert pid != os.getpid()
    assert setup.do("acquire") is driver
    assert not driver.closed


# --- async only ---------------------------------------------------------------------------------


def test_a_cancelled_waiter_takes_no_room():
    setup = Async(1, 30)

    async def scenario() -> None:
        driver = await setup.pool.acquire()
        waiter = asyncio.ensure_future(setup.pool.acquire())
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        await setup.pool.release(driver)
        assert await setup.pool.acquire() is driver

    setup.loop.run_until_complete(scenario())
    setup.end()


def test_waiting_tasks_are_served():
    setup = Async(2, 30)
    served = []

    async def work(n: int) -> None:
        driver = await setup.pool.acquire()
        await asyncio.sleep(0)
        served.append(n)
        await setup.pool.release(driver)

    async def scenario() -> None:
        await asyncio.gather(*(work(n) for n in range(20)))

    setup.loop.run_until_complete(scenario())
    setup.end()
    assert sorted(served) == list(range(20))
    assert len(setup.opened) == 2


def test_close_refuses_those_that_already_wait():
    setup = Async(1, 30)

    async def scenario() -> None:
        driver = await setup.pool.acquire()
        waiter = asyncio.ensure_future(setup.pool.acquire())
        await asyncio.sleep(0)
        await setup.pool.close()
        await setup.pool.release(driver)
        with pytest.raises(DatabaseUnavailable):
            await waiter

    setup.loop.run_until_complete(scenario())
    setup.end()
