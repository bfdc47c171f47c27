"""``fairturn.connect_async`` and the AsyncDatabase that it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fairturn.aio.batch import AsyncBatch
from fairturn.aio.events import AsyncEvents
from fairturn.aio.group import AsyncGroup
from fairturn.aio.queue import AsyncPermit, AsyncQueue
from fairturn.aio.schedule import AsyncSchedule, follow
from fairturn.core import check
from fairturn.core.schedules import ScheduleStatus, Ticked
from fairturn.core.values import Duration, GroupStatus, Maintained, PermitStatus, Stats, Step
from fairturn.execution.aio.runner import runner_for
from fairturn.execution.aio.wait_hub import AsyncHub
from fairturn.execution.aio.waker import waker_for
from fairturn.execution.database_url import Options, target
from fairturn.operations import (
    groups,
    permits,
    queues,
)
from fairturn.operations.call import Call, Core
from fairturn.operations.groups import OnDead
from fairturn.operations.insight import queries
from fairturn.operations.schedules import runs, schedule


def connect_async(
    url: str,
    *,
    schema: str = "fairturn",
    pool_size: int = 10,
    timeout: float = 5.0,
    synchronous: str = "FULL",
    prepare: bool = True,
    listen: bool = True,
    clock: Callable[[], int] | None = None,
) -> AsyncDatabase:
    """Connect to a database: ``sqlite:///jobs.db``, ``sqlite://`` (in memory), ``postgresql://…``
    or ``mysql://…``. No connection is opened before the first call.

    On PostgreSQL, calls that wait are woken by NOTIFY, on one more connection. With
    ``listen=False``, or ``prepare=False`` (for PgBouncer in transaction mode), they poll."""
    return AsyncDatabase(
        url, Options(schema, pool_size, timeout, synchronous, prepare, listen), clock
    )


class AsyncDatabase:
    """A connected Fairturn installation. Tasks may share it."""

    def __init__(self, url: str, options: Options, clock: Callable[[], int] | None = None) -> None:
        self.target = target(url, options)
        self._core = Core(self.target.backend, clock)
        self._runner = runner_for(self.target, options)
        self._core.waker = waker_for(self.target, self._runner)
        self._core.hub = AsyncHub(self._core, self._runner, self._core.waker)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.target.shown}>"

    def queue(self, name: str) -> AsyncQueue:
        """Return a handle on a queue; no I/O."""
        return AsyncQueue(self._core, self._runner, name)

    async def queues(self) -> list[str]:
        """Return the names of all queues."""
        return await self._runner.run(queues.queues(self._core))

    async def stats(self) -> Stats:
        """Return exact counts and totals over all queues; ``.queues`` has those of each queue."""
        return await self._runner.run(queries.all_stats(self._core))

    async def trace(self, key: str) -> list[Step]:
        """Return the history of a key in all queues: its messages and their logged failures."""
        return await self._runner.run(queries.trace(self._core, key))

    async def maintain(self, limit: int = 1000) -> Maintained:
        """Promote, recover, expire, purge and fold in all queues, ``limit`` rows of each kind."""
        return await self._runner.run(queues.maintain(self._core, limit))

    def group(
        self,
        name: str,
        queue: str | None = None,
        *,
        end: Any = None,
        abort: Any = None,
        on_dead: OnDead = "ignore",
    ) -> AsyncGroup:
        """Return a handle on a group of messages; no I/O. ``end`` (a Send, or a body) is sent to
        ``queue`` when all members are finished, ``abort`` when the group is cancelled.
        ``on_dead="abort"``: it is cancelled when a member is dead."""
        opening = groups.opening(name, queue, end, abort, on_dead)
        return AsyncGroup(self._core, self._runner, opening)

    async def groups(self, limit: int = 1000) -> list[GroupStatus]:
        """Return the open groups, by name."""
        return await self._runner.run(groups.groups(self._core, limit))

    def schedule(self, name: str) -> AsyncSchedule:
        """Return a handle on a schedule; no I/O."""
        return AsyncSchedule(self._core, self._runner, name)

    async def schedules(self) -> list[ScheduleStatus]:
        """Return all schedules, by name."""
        return await self._runner.run(schedule.schedules(self._core))

    async def run_schedules(self, limit: int = 100) -> Ticked:
        """Send the messages of up to ``limit`` schedules that are due. Any number of workers may
        call this at the same time: the message of each due time is sent exactly once."""
        return await follow(self._runner, runs.run(self._core, limit))

    def batch(self) -> AsyncBatch:
        """Return a batch: sends and policy changes of many queues, run in one transaction."""
        return AsyncBatch(self._core, self._runner)

    def events(
        self,
        queue: str | None = None,
        *,
        kinds: Sequence[str] | None = None,
        after: str | None = None,
        timeout: Duration | None = None,
    ) -> AsyncEvents:
        """Iterate over the events of queues whose ``events`` setting is on. ``after``: a cursor to
        continue from, ``""`` for the beginning, None for now. It ends after ``timeout`` seconds
        without an event; without a timeout it never ends."""
        timeout_us = check.optional_microseconds(timeout, "timeout")
        events = AsyncEvents(self._core, self._runner, queue, kinds, after, timeout_us)
        # sync only: events.begin()
        return events

    async def permit(self, name: str = "", *, ttl: Duration = 30) -> AsyncPermit:
        """Register a live worker. While the permit is extended, its leases do not expire."""
        id = await self._runner.run(permits.create(self._core, name, ttl))
        return AsyncPermit(self._core, self._runner, id, ttl)

    async def permits(self) -> list[PermitStatus]:
        """Return the permits that have not expired, oldest first, with their leases."""
        return await self._runner.run(permits.permits(self._core))

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; return the names of the migrations that were applied."""
        return await self._runner.run(
            Call("migrate", self._core.backend.migrate, repeatable=True, needs_schema=False)
        )

    async def clock(self) -> int:
        """Return the database's clock, in microseconds since the epoch."""
        return await self._runner.run(Call("clock", self._core.backend.clock, repeatable=True))

    async def close(self) -> None:
        """Close the connections. Later calls raise DatabaseUnavailable."""
        self._core.closed = True
        await self._core.hub.close()
        await self._core.waker.close()
        await self._runner.close()

    async def __aenter__(self) -> AsyncDatabase:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()
