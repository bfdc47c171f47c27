"""One door for the suite: it looks like the sync facade and drives any of the variants.

``sync``/``async``: through ``fairturn.connect`` or, on a private event loop, ``connect_async``.
``own``/``yours``: on Fairturn's connections, or each call in a transaction on the user's
connection, which is committed after the call and rolled back if it raises.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import fairturn
from fairturn.core.values import moment
from fairturn.execution.sync import wait_hub
from fairturn.testing.memory import Memory
from tests.conformance import connections

wait_hub.LINGER = 0.01  # or every test that waits would wait for its thread to end
SECOND = 1_000_000
START = 1_900_000_000 * SECOND  # March 2030; every test starts here

# Which variants a backend has. The one place where a capability is declared: sqlite3 has no async
# connection that a user could bring, and the model has no connections at all.
MODES: dict[str, list[str]] = {
    "memory": ["sync-own", "async-own"],
    "sqlite": ["sync-own", "async-own", "sync-yours"],
    "postgresql": ["sync-own", "async-own", "sync-yours", "async-yours"],
    "mysql": ["sync-own", "async-own", "sync-yours", "async-yours"],
}
VARIANTS = [f"{backend}-{mode}" for backend, modes in MODES.items() for mode in modes]

# Which of them have a second writer while you have a transaction open.
ONE_WRITER = ("memory", "sqlite")

VERBS = ("ack", "complete", "defer", "fail", "kill", "extend", "release", "progress")


class Clock:
    """The time of the tests: stands still until it is moved."""

    def __init__(self) -> None:
        self.us = START

    def __call__(self) -> int:
        return self.us

    def tick(self, seconds: float) -> None:
        self.us += round(seconds * SECOND)

    def reset(self) -> None:
        self.us = START

    @property
    def seconds(self) -> float:
        return self.us / SECOND

    def moment(self, after: float = 0) -> Any:
        """The datetime that is ``after`` seconds from now."""
        return moment(self.us + round(after * SECOND))


@dataclass(frozen=True)
class Variant:
    """One of VARIANTS, taken apart."""

    backend: str
    door: str
    whose: str

    @classmethod
    def of(cls, text: str) -> Variant:
        return cls(*text.split("-"))

    @property
    def is_async(self) -> bool:
        return self.door == "async"

    @property
    def yours(self) -> bool:
        return self.whose == "yours"


def _unwrap(value: Any) -> Any:
    if isinstance(value, MessageDoor | PermitDoor):
        return value.inner
    if isinstance(value, list) and any(isinstance(item, MessageDoor) for item in value):
        return [_unwrap(item) for item in value]
    return value


class Door:
    """Looks like a sync Database."""

    def __init__(
        self, variant: Variant, url: str, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.variant = variant
        self.url = url
        self.clock = clock
        self.loop = loop
        self.memory: Memory | None = None
        if variant.backend == "memory":
            self.memory = Memory(clock)
            self.inner: Any = self._look_at(self.memory)
        elif variant.is_async:
            self.inner = fairturn.connect_async(url, clock=clock)
        else:
            self.inner = fairturn.connect(url, clock=clock)
        self._connection: Any = None

    # --- running -----------------------------------------------------------------------------
    def wait(self, value: Any) -> Any:
        return self.loop.run_until_complete(value) if self.variant.is_async else value

    def warm_up(self) -> None:
        """Open what lives as long as the Database: connections for a test and its background, and
        what wakes those who wait."""
        runner = getattr(self.inner._runner, "_sync", self.inner._runner)
        pool = runner._pool
        self.queues()
        if self.variant.yours:
            self.connection()
        drivers = [self._now(pool.acquire()) for _ in range(min(pool._size, 4))]
        for driver in drivers:
            self._now(pool.release(driver))
        self.events()

    def _now(self, value: Any) -> Any:
        return self.loop.run_until_complete(value) if asyncio.iscoroutine(value) else value

    def connection(self) -> Any:
        """The user's connection. All tests have the same: a new one reads the schema anew."""
        if self._connection is None:
            if self.variant.is_async:
                self._connection = self.wait(
                    connections.ASYNC[self.variant.backend]().open(self.url)
                )
            else:
                self._connection = connections.SYNC[self.variant.backend](self.url)
        return self._connection

    def rest(self) -> None:
        """The test is over: the user's connection must be out of any transaction."""
        if self._connection is not None and not self._connection.idle:
            self.hang_up()
            raise AssertionError("a test left its transaction open")

    def hang_up(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self.wait(connection.close())

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        connection = self.connection()
        self.wait(connection.begin())
        try:
            yield connection.connection
        except BaseException:
            self.wait(connection.rollback())
            raise
        self.wait(connection.commit())

    @contextmanager
    def rolled_back(self) -> Iterator[Any]:
        """A transaction of the user's that comes to nothing."""
        connection = self.connection()
        self.wait(connection.begin())
        try:
            yield connection.connection
        finally:
            self.wait(connection.rollback())

    def do(self, target: Any, name: str, args: Any = (), kwargs: Any = None) -> Any:
        """target.name(*args, **kwargs) in this variant."""
        args = [_unwrap(item) for item in args]
        kwargs = {key: _unwrap(value) for key, value in (kwargs or {}).items()}
        if not (self.variant.yours and hasattr(target, "using")):
            return self.wait(getattr(target, name)(*args, **kwargs))
        with self.transaction() as connection:
            bound = target.using(connection)
            value = self.wait(getattr(bound, name)(*args, **kwargs))
        if name == "extend" and isinstance(target, fairturn.Message):
            target._row = bound._row  # what the copy learned
        return value

    # --- the Database ------------------------------------------------------------------------
    def queue(self, name: str) -> QueueDoor:
        return QueueDoor(self, self.inner.queue(name))

    def permit(self, name: str = "", **options: Any) -> PermitDoor:
        return PermitDoor(self, self.do(self.inner, "permit", [name], options))

    def group(self, name: str, queue: Any = None, **options: Any) -> GroupDoor:
        return GroupDoor(self, self.inner.group(name, queue, **options))

    def settled(self) -> None:
        """Groups that are complete have closed: our own calls see to it, after a call in your
        transaction maintenance does (§12.10)."""
        if self.variant.yours:
            self.maintain()

    def events(self, queue: Any = None, *, timeout: float | None = 0, **options: Any) -> Events:
        """The events that are there (or come before ``timeout`` seconds of silence)."""
        found = self.inner.events(queue, timeout=timeout, **options)

        async def collect() -> list[Any]:
            return [event async for event in found]

        events = Events(self.wait(collect()) if self.variant.is_async else found)
        events.cursor = found.cursor
        return events

    @contextmanager
    def batch(self) -> Iterator[Any]:
        if not self.variant.yours:
            with self.inside(self.inner.batch()) as batch:
                yield batch
            return
        with (
            self.transaction() as connection,
            self.inside(self.inner.batch().using(connection)) as batch,
        ):
            yield batch

    @contextmanager
    def inside(self, manager: Any) -> Iterator[Any]:
        """``with`` or ``async with``."""
        if not self.variant.is_async:
            with manager as entered:
                yield entered
            return
        entered = self.wait(manager.__aenter__())
        try:
            yield entered
        except BaseException as error:
            if not self.wait(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self.wait(manager.__aexit__(None, None, None))

    def background(self, call: Callable[[], Any]) -> Background:
        """A call of the inner facade, on our own connection, while the test goes on."""
        return Background(self, call)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.do(self.inner, name, args, kwargs)

    def database_clock(self) -> int:
        return self.do(self.inner, "clock")

    def forget(self) -> None:
        """A consumer without memory, as after a restart."""
        self.inner._core.consumers.clear()

    def another(self) -> Door:
        """A second, independent client of the same database."""
        door = Door(self.variant, self.url, self.clock, self.loop)
        if self.memory is not None:
            door.memory = self.memory
            door.inner = self._look_at(self.memory)
        return door

    def _look_at(self, memory: Memory) -> Any:
        return memory.connect_async() if self.variant.is_async else memory.connect()

    def close(self) -> None:
        self.rest()
        self.hang_up()
        self.wait(self.inner.close())


class Events(list[Any]):
    cursor: str | None = None  # where to go on


class Messages(list[Any]):
    retry_after: float | None = None
    lost: list[Any]


class QueueDoor:
    """Looks like a sync Queue."""

    def __init__(self, door: Door, inner: Any) -> None:
        self.door = door
        self.inner = inner
        self.name = inner.name

    def channel(self, name: str) -> ChannelDoor:
        return ChannelDoor(self, name)

    def receive(self, n: int = 1, **options: Any) -> Messages:
        received = self.door.do(self.inner, "receive", [n], options)
        messages = Messages(MessageDoor(self.door, message) for message in received)
        messages.retry_after = received.retry_after
        messages.lost = list(received.lost)
        return messages

    def lease(self, id: int, delivery: int) -> MessageDoor:
        return MessageDoor(self.door, self.inner.lease(id, delivery))

    def wait(self, **options: Any) -> Any:
        """Only ever on our own connection."""
        return self.door.wait(self.inner.wait(**options))

    def one(self, **options: Any) -> Any:
        """Receive exactly one message."""
        [message] = self.receive(1, **options)
        return message

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.door.do(self.inner, name, args, kwargs)


class Background:
    """A call in a thread or a task; ``result()`` waits for it."""

    def __init__(self, door: Door, call: Callable[[], Any]) -> None:
        self.door = door
        self._value: Any = None
        self._error: BaseException | None = None
        if door.variant.is_async:
            self._task = door.loop.create_task(call())
        else:
            self._thread = threading.Thread(target=self._run, args=[call])
            self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._value = call()
        except BaseException as error:
            self._error = error

    def until(self, condition: Callable[[], bool]) -> None:
        """Go on once it has come so far; it must not have ended before."""
        while not condition():
            assert not self.ended, "it ended too early"
            if self.door.variant.is_async:
                self.door.wait(asyncio.sleep(0.001))
            else:
                time.sleep(0.001)

    @property
    def ended(self) -> bool:
        if self.door.variant.is_async:
            return self._task.done()
        return not self._thread.is_alive()

    def result(self) -> Any:
        if self.door.variant.is_async:
            return self.door.wait(self._task)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value


class GroupDoor:
    """Looks like a sync Group."""

    def __init__(self, door: Door, inner: Any) -> None:
        self.door = door
        self.inner = inner
        self.name = inner.name

    def wait(self, timeout: float | None = None) -> Any:
        """Only ever on our own connection."""
        return self.door.wait(self.inner.wait(timeout))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.door.do(self.inner, name, args, kwargs)


class ChannelDoor:
    """Looks like a sync Channel."""

    def __init__(self, queue: QueueDoor, name: str) -> None:
        self.queue = queue
        self.inner = queue.inner.channel(name)
        self.name = name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            door = self.queue.door
            if not door.variant.yours:
                return door.wait(getattr(self.inner, name)(*args, **kwargs))
            with door.transaction() as connection:
                channel = self.queue.inner.using(connection).channel(self.name)
                return door.wait(getattr(channel, name)(*args, **kwargs))

        return call


class MessageDoor:
    """Looks like a sync LeasedMessage."""

    def __init__(self, door: Door, inner: Any) -> None:
        self.door = door
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name in VERBS:
            return lambda *args, **kwargs: self.door.do(self.inner, name, args, kwargs)
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return repr(self.inner)


class PermitDoor:
    """Looks like a sync Permit."""

    def __init__(self, door: Door, inner: Any) -> None:
        self.door = door
        self.inner = inner
        self.id = inner.id

    def extend(self) -> None:
        self.door.do(self.inner, "extend")

    def close(self) -> None:
        self.door.do(self.inner, "close")


# --- small helpers of the tests -----------------------------------------------------------------


def bodies(messages: Any) -> list[Any]:
    return [message.body for message in messages]


def ids(messages: Any) -> list[int]:
    return [message.id for message in messages]


def channels(messages: Any) -> list[str]:
    return [message.channel for message in messages]


def drain(queue: Any, n: int = 1, most: int = 10_000) -> list[Any]:
    """Receive and ack until nothing comes; the messages in order."""
    out: list[Any] = []
    while messages := queue.receive(n):
        out += messages
        assert queue.ack(messages).lost == []
        assert len(out) <= most, "it never ends"
    return out


def counts(queue: Any) -> dict[str, int]:
    """The gauges of stats() that are not 0."""
    stats = queue.stats()
    names = ("ready", "scheduled", "leased", "held", "done", "dead")
    return {name: getattr(stats, name) for name in names if getattr(stats, name)}


def totals(queue: Any) -> dict[str, int]:
    """The totals of stats() that are not 0."""
    stats = queue.stats()
    return {
        name: getattr(stats, name) for name in fairturn.core.values.COUNTERS if getattr(stats, name)
    }


def told(message: Any) -> dict[str, Any]:
    """What a group's work learns about its group, without the name."""
    found = message.headers["fairturn.group"]
    return {key: value for key, value in found.items() if key != "name"}


def gauges(status: Any) -> dict[str, int]:
    """The unfinished members of a group, where there are any."""
    names = ("held", "waiting", "leased")
    return {name: getattr(status, name) for name in names if getattr(status, name)}


def unique(prefix: str = "q") -> str:
    return f"{prefix}-{random.randrange(16**12):012x}"
