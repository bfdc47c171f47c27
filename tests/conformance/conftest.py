"""The suite's fixtures: a door for every variant, and queues that belong to one test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fairturn
from tests import servers, tiers
from tests.conformance import yours
from tests.conformance.door import (
    ONE_WRITER,
    VARIANTS,
    Clock,
    Door,
    GroupDoor,
    QueueDoor,
    Variant,
    unique,
)
from tests.conformance.scheduling import ScheduleDoor


class Doors:
    """The doors of this session, each opened when first needed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.loop = asyncio.new_event_loop()
        self.open: dict[str, Door] = {}
        self.migrated: set[str] = set()

    def url(self, backend: str) -> str:
        if backend == "sqlite":
            return f"sqlite:///{self.directory / 'conformance.db'}"
        if backend == "postgresql":
            return servers.postgres_url()
        if backend == "mysql":
            return servers.mysql_url()
        return "memory"

    def door(self, text: str) -> Door:
        if text not in self.open:
            variant = Variant.of(text)
            door = Door(variant, self.url(variant.backend), Clock(), self.loop)
            if variant.backend not in self.migrated:
                door.migrate()
                self.migrated.add(variant.backend)
            door.warm_up()
            self.open[text] = door
        return self.open[text]

    def close(self) -> None:
        for door in self.open.values():
            door.close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


@pytest.fixture(scope="session")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    doors = Doors(tmp_path_factory.mktemp("conformance"))
    yield doors
    doors.close()


def _check_quiet(door: Door) -> None:
    """No task is running, no connection is out of the pool or inside a transaction."""
    if tasks := asyncio.all_tasks(door.loop):  # one that was told to end may still be ending
        door.loop.run_until_complete(asyncio.wait(tasks, timeout=30))
    assert not asyncio.all_tasks(door.loop)
    runner = getattr(door.inner._runner, "_sync", door.inner._runner)
    pool = runner._pool

    def out() -> int:
        opened = getattr(pool, "_opened", None)
        if opened is None:
            opened = pool._size - pool._free._value + len(pool._idle)
        return opened - len(pool._idle)

    deadline = time.monotonic() + 30  # a wait that is over may still be looking a last time
    while out() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert out() == 0, "a connection was not given back"
    for driver, _ in pool._idle:
        connection = getattr(driver, "connection", None)
        if hasattr(connection, "in_transaction"):
            assert not connection.in_transaction
        elif hasattr(connection, "info"):
            assert connection.info.transaction_status == 0
        elif hasattr(connection, "server_status"):
            assert not connection.server_status & 1


class Databases(dict[str, fairturn.Database]):
    """A plain Database per backend, with the database's clock, as users have it; and a table of
    the user's own next to Fairturn's."""

    def __init__(self, doors: Doors) -> None:
        self.doors = doors

    def __missing__(self, backend: str) -> fairturn.Database:
        url = self.doors.url(backend)
        database = self[backend] = fairturn.connect(url)
        database.migrate()
        # As many connections as threads of a test may need, so that none looks like a leak.
        pool = database._runner._pool
        for driver in [pool.acquire() for _ in range(min(pool._size, 4))]:
            pool.release(driver)
        list(database.events(timeout=0))  # starts what wakes those who wait
        with yours.plain(backend, url) as mine:
            mine.begin()
            mine.execute("CREATE TABLE IF NOT EXISTS person (name VARCHAR(50))")
            mine.commit()
        return database


@pytest.fixture(scope="session")
def databases(doors: Doors) -> Iterator[Databases]:
    databases = Databases(doors)
    yield databases
    for database in databases.values():
        database.close()


@pytest.fixture
def session_things(request: pytest.FixtureRequest, doors: Doors, databases: Databases) -> None:
    """tests/conftest.py asks for this before it counts what there is: the connections that live
    as long as the session and that this test is going to use."""
    callspec = getattr(request.node, "callspec", None)
    for name, value in callspec.params.items() if callspec else ():
        if name == "db":
            doors.door(value)
        elif name == "setup":
            databases[value.backend].queues()
        elif name == "backend":
            databases[value].queues()


def _backend(variant: str) -> str:
    return Variant.of(variant).backend


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test runs in every variant; `make test` takes one of each backend."""
    if "db" not in metafunc.fixturenames or hasattr(metafunc.module, "db"):
        return
    marked = metafunc.definition.get_closest_marker
    variants = VARIANTS
    if marked("few_variants"):
        # Bad arguments are refused before a connection is taken.
        variants = [one for one in VARIANTS if one.endswith("-sync-own")]
        variants.append("sqlite-async-own")
    elif marked("yours") or marked("writers"):
        variants = [one for one in VARIANTS if one.endswith("-yours")]
        if marked("writers"):
            variants = [one for one in variants if not one.startswith(ONE_WRITER)]
    chosen = tiers.one_of_each(metafunc, variants, _backend)
    metafunc.parametrize("db", chosen, indirect=True)


@pytest.fixture
def db(request: pytest.FixtureRequest, doors: Doors, session_things: None) -> Iterator[Door]:
    """A door, in every variant; the test's queues are dropped after it."""
    door = doors.door(request.param)
    door.clock.reset()
    door.made = []  # type: ignore[attr-defined]
    yield door
    door.rest()
    _check_quiet(door)
    for name in door.made:  # type: ignore[attr-defined]
        door.wait(door.inner.queue(name).drop())
    door.forget()


@pytest.fixture
def clock(db: Door) -> Clock:
    return db.clock


@pytest.fixture
def make(db: Door) -> Callable[..., QueueDoor]:
    """make(**settings) -> a new queue with a unique name."""

    def make(name: str | None = None, **settings: Any) -> QueueDoor:
        queue = db.queue(unique() if name is None else name)
        db.made.append(queue.name)  # type: ignore[attr-defined]
        assert queue.create(**settings) is True
        return queue

    return make


@pytest.fixture
def queue(make: Callable[..., QueueDoor]) -> QueueDoor:
    return make()


@pytest.fixture
def grouped(db: Door) -> Callable[..., GroupDoor]:
    """grouped(queue, **options) -> a handle on a group with a new name."""

    def grouped(queue: QueueDoor, **options: Any) -> GroupDoor:
        return db.group(unique("g"), queue.name, **options)

    return grouped


@pytest.fixture
def scheduled(db: Door) -> Iterator[Callable[..., ScheduleDoor]]:
    """scheduled(queue, body, **options) -> a schedule with a new name, set unless there is no
    queue. Whatever schedules there are at the end are removed: they would tick in other tests."""

    def scheduled(
        queue: QueueDoor | None = None, body: Any = "tick", name: str | None = None, **options: Any
    ) -> ScheduleDoor:
        schedule = ScheduleDoor(db, name or unique("s"))
        if queue is not None:
            assert schedule.set(queue.name, body, **options) is True
        return schedule

    yield scheduled
    for left in db.wait(db.inner.schedules()):
        db.wait(db.inner.schedule(left.name).remove())
