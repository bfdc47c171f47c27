"""What Fairturn's own programs (worker, server, relay, doctor, command line) need from the two
doors, beside their public calls. Only this module looks inside the objects of the doors."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, TypeVar

from fairturn.aio.database import AsyncDatabase
from fairturn.aio.leased import AsyncLeasedMessage
from fairturn.aio.queue import AsyncQueue
from fairturn.backends.base import Backend
from fairturn.backends.steps import Op
from fairturn.core.settings import Settings
from fairturn.execution.aio.runner import AsyncOwnRunner, ThreadRunner
from fairturn.execution.aio.waker import AsyncTicket
from fairturn.operations import queues
from fairturn.operations.call import Call
from fairturn.sync.database import Database
from fairturn.sync.leased import LeasedMessage
from fairturn.sync.queue import Queue

T = TypeVar("T")


# --- the async door ---------------------------------------------------------------------------
async def ticket(queue: AsyncQueue, woken: asyncio.Event) -> AsyncTicket:
    """Subscribe to a queue: ``woken`` is set when something may have changed there."""
    return await queue._core.waker.ticket(queue.name, woken)


async def all_settings(db: AsyncDatabase) -> list[Settings]:
    """Return the settings of all queues, in one statement."""
    return await db._runner.run(queues.all_settings(db._core))


async def now(db: AsyncDatabase) -> int:
    """Return the time in microseconds, by the clock that the Database's messages follow."""
    now = db._core.now()
    return await db.clock() if now is None else now


def set_answer_timeout(db: AsyncDatabase, seconds: float) -> None:
    """Set a time limit: a connection is closed if the server does not answer within ``seconds``. It
    has no effect on SQLite."""
    if isinstance(db._runner, AsyncOwnRunner):
        db._runner.set_answer_timeout(seconds)


@asynccontextmanager
async def acking_transaction(message: AsyncLeasedMessage, db: Database) -> AsyncGenerator[Any]:
    """Open a transaction that acks the message at its end; its value is the connection. On SQLite
    this is a plain connection of ``db``, the sync Database of the same file."""
    runner: Any = message._door._runner
    if isinstance(runner, ThreadRunner):
        async with runner.transaction(transaction(db)) as connection:
            yield connection
            LeasedMessage(db.queue(message.queue), message._row).using(connection).ack()
    else:
        async with runner.transaction() as connection:
            yield connection
            await message.using(connection).ack()


# --- the sync door ----------------------------------------------------------------------------
def transaction(db: Database) -> AbstractContextManager[Any]:
    """Open a transaction; its value is the connection."""
    return db._runner.transaction()


def abort(db: Database, thread: int) -> None:
    """End the call that this thread has under way, whatever it waits for, with an error."""
    db._runner.abort(thread)


def examine(db: Database, what: str, read: Callable[[Backend], Op[T]]) -> T:
    """Run a read of the backend, even on a schema that does not fit this client."""
    backend, migrates = db.target.backend, db.target.migrates_itself
    return db._runner.run(Call(what, lambda: read(backend), repeatable=True, needs_schema=migrates))


def expect_groups(queue: Queue) -> None:
    """From now on, look for complete groups after each verb, even if no member of a group was
    received here."""
    queue._core.grouped = True
