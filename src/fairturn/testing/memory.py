"""A database in memory: the memory backend behind the sync and the async door.

The memory backend has no threads and no connections. One lock guards it. It answers immediately,
so that a call of the async door never waits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, TypeVar

from fairturn.aio.database import AsyncDatabase
from fairturn.core.errors import InvalidArgument
from fairturn.drivers.base import OwnDriver
from fairturn.execution.aio.runner import AsyncOwnRunner
from fairturn.execution.aio.wait_hub import AsyncHub
from fairturn.execution.aio.waker import AsyncWaker
from fairturn.execution.database_url import Options, Target
from fairturn.execution.sync.runner import OwnRunner
from fairturn.execution.sync.wait_hub import Hub
from fairturn.execution.sync.waker import Waker
from fairturn.operations.call import Call, Core
from fairturn.sync.database import Database
from fairturn.testing.model import Model
from fairturn.testing.transaction import NoConnection, NoDriver, Transaction

T = TypeVar("T")
Block = Callable[[], Any]  # returns a context manager (plain or async) that yields a connection


def memory_database(clock: Callable[[], int] | None = None) -> Database:
    """Return a new, empty Database in memory. ``clock`` is a ``Clock`` that you move; without one
    the database uses the real time."""
    return Memory(clock).connect()


def memory_database_async(clock: Callable[[], int] | None = None) -> AsyncDatabase:
    """The async form of ``memory_database``."""
    return Memory(clock).connect_async()


class Memory:
    """The data that any number of Database objects share."""

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
        """Commit the calls on ``connection`` at the end of the block, or roll them back."""
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
        """Run a call in the transaction of that connection. A connection without a transaction of
        ours, whose commit we would not see, has none: then the call takes effect immediately."""
        with self.lock:
            for transaction in reversed(self._open):
                if transaction.connection is connection:
                    return transaction.run(call)
            return Transaction.run_now(call)


class MemoryDatabase(Database):
    def __init__(self, memory: Memory) -> None:
        self.target = memory.target()
        self._core = memory.core()
        self._runner = MemoryRunner(memory, self.target)
        self._core.waker = Waker()
        self._core.hub = Hub(self._core, self._runner, self._core.waker)


class AsyncMemoryDatabase(AsyncDatabase):
    def __init__(self, memory: Memory) -> None:
        self.target = memory.target()
        self._core = memory.core()
        self._runner = runner = AsyncMemoryRunner(memory, self.target)
        self._core.waker = AsyncWaker()
        self._core.hub = AsyncHub(self._core, runner, self._core.waker)


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
                f"transaction= returned {block!r}, which is no context manager for `with`: a plain "
                "function needs one"
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
    """Return the result of an async call on a database in memory, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise AssertionError(f"{coroutine!r} has to wait; a database in memory never does")
