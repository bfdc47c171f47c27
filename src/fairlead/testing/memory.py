"""An in-memory database: the model of Fairlead's own tests, behind the two usual doors.

The model knows no threads and no connections. One lock guards it, and since it answers at once,
the async door never waits for anything.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, TypeVar

from fairlead.aio.database import AsyncDatabase
from fairlead.aio.running import AsyncOwnRunner
from fairlead.aio.waiting import AsyncHub
from fairlead.aio.waking import AsyncWaker
from fairlead.connecting import Options, Target
from fairlead.drivers.base import OwnDriver
from fairlead.errors import InvalidArgument
from fairlead.operations.call import Call, Core
from fairlead.sync.database import Database
from fairlead.sync.running import OwnRunner
from fairlead.sync.waiting import Hub
from fairlead.sync.waking import Waker
from fairlead.testing.model import Model
from fairlead.testing.transaction import NoConnection, NoDriver, Transaction

T = TypeVar("T")
Block = Callable[[], Any]  # gives a context manager, plain or async, whose value is a connection


def memory_database(clock: Callable[[], int] | None = None) -> Database:
    """A Database that lives as long as this object. ``clock``: a ``Clock`` that you move; the real
    time without one."""
    return Memory(clock).connect()


def memory_database_async(clock: Callable[[], int] | None = None) -> AsyncDatabase:
    """The same for ``await``."""
    return Memory(clock).connect_async()


class Memory:
    """What any number of Databases look at."""

    def __init__(
        self,
        clock: Callable[[], int] | None = None,
        *,
        transaction: Block | None = None,
        records: bool = False,
    ) -> None:
        self.clock = clock
        self.model = Model(clock, records)
        self.lock = threading.RLock()
        self.block: Block = transaction or (lambda: contextlib.nullcontext(NoConnection()))
        self._open: list[Transaction] = []

    def connect(self) -> Database:
        return MemoryDatabase(self)

    def connect_async(self) -> AsyncDatabase:
        return AsyncMemoryDatabase(self)

    def target(self) -> Target:
        driver: Any = NoDriver()

        def open() -> OwnDriver:
            return driver

        return Target(self.model, open, None, 10, "memory")

    def core(self) -> Core:
        return Core(self.model, self.clock)

    @contextlib.contextmanager
    def transaction(self, connection: Any) -> Generator[None]:
        """What runs on ``connection`` in the block happens at its end, or not at all."""
        transaction = Transaction(self.model, connection)
        with self.lock:
            self._open.append(transaction)
        try:
            yield
            with self.lock:
                transaction.commit()
        finally:
            with self.lock:
                self._open.remove(transaction)

    def run_on(self, connection: Any, call: Call[T]) -> T:
        """In the transaction of that connection. One that is not ours, whose commit we would not
        see, has none: there it happens at once."""
        with self.lock:
            for transaction in reversed(self._open):
                if transaction.connection is connection:
                    return transaction.run(call)
            return Transaction.at_once(call)


class MemoryDatabase(Database):
    """Looks like the others, and keeps nothing."""

    def __init__(self, memory: Memory) -> None:
        self.target = memory.target()
        self.core = memory.core()
        self.runner = MemoryRunner(memory, self.target)
        self.core.waker = Waker()
        self.core.hub = Hub(self.core, self.runner, self.core.waker)


class AsyncMemoryDatabase(AsyncDatabase):
    """Looks like the others, and keeps nothing."""

    def __init__(self, memory: Memory) -> None:
        self.target = memory.target()
        self.core = memory.core()
        self.runner = runner = AsyncMemoryRunner(memory, self.target)
        self.core.waker = AsyncWaker()
        self.core.hub = AsyncHub(self.core, runner, self.core.waker)


class MemoryRunner(OwnRunner):
    def __init__(self, memory: Memory, target: Target) -> None:
        super().__init__(target, Options())
        self._memory = memory

    def run(self, call: Call[T]) -> T:
        with self._memory.lock:
            return super().run(call)

    @contextlib.contextmanager
    def transaction(self) -> Generator[Any]:
        block = self._memory.block()
        if not hasattr(block, "__enter__"):
            raise InvalidArgument(
                f"transaction= gave {block!r}: a plain function needs a context manager for `with`"
            )
        with block as connection, self._memory.transaction(connection):
            yield connection

    def using(self, connection: Any) -> YourMemoryRunner:
        return YourMemoryRunner(self._memory, connection)


class YourMemoryRunner:
    own = False

    def __init__(self, memory: Memory, connection: Any) -> None:
        self._memory = memory
        self._connection = connection

    def run(self, call: Call[T]) -> T:
        return self._memory.run_on(self._connection, call)

    def using(self, connection: Any) -> YourMemoryRunner:
        return YourMemoryRunner(self._memory, connection)


class AsyncMemoryRunner(AsyncOwnRunner):
    def __init__(self, memory: Memory, target: Target) -> None:
        super().__init__(target, Options())
        self._memory = memory
        self._sync = MemoryRunner(memory, target)

    async def run(self, call: Call[T]) -> T:
        return self._sync.run(call)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any]:
        block = self._memory.block()
        async with contextlib.AsyncExitStack() as stack:
            if hasattr(block, "__aenter__"):
                connection = await stack.enter_async_context(block)
            else:
                connection = stack.enter_context(block)
            with self._memory.transaction(connection):
                yield connection

    def using(self, connection: Any) -> AsyncYourMemoryRunner:
        return AsyncYourMemoryRunner(self._memory, connection)

    async def close(self) -> None:
        self._sync.close()


class AsyncYourMemoryRunner:
    own = False

    def __init__(self, memory: Memory, connection: Any) -> None:
        self._memory = memory
        self._connection = connection

    async def run(self, call: Call[T]) -> T:
        return self._memory.run_on(self._connection, call)

    def using(self, connection: Any) -> AsyncYourMemoryRunner:
        return AsyncYourMemoryRunner(self._memory, connection)


def immediately(coroutine: Coroutine[Any, Any, T]) -> T:
    """What an async call on an in-memory database gives, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise AssertionError(f"{coroutine!r} waits for something: an in-memory database never does")
