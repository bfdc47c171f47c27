"""``fairlead.connect_async`` and the AsyncDatabase it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fairlead.aio.batch import AsyncBatch
from fairlead.aio.events import AsyncEvents
from fairlead.aio.group import AsyncGroup
from fairlead.aio.queue import AsyncPermit, AsyncQueue
from fairlead.aio.running import AsyncOwnRunner, ThreadRunner
from fairlead.aio.schedule import AsyncSchedule, follow
from fairlead.aio.waiting import AsyncHub
from fairlead.aio.waking import waker_for
from fairlead.connecting import Options, target
from fairlead.operations import check, groups, insight, queues, schedules, ticking
from fairlead.operations.call import Call, Core
from fairlead.operations.groups import OnDead
from fairlead.permits import PermitStatus
from fairlead.schedules import ScheduleStatus, Ticked
from fairlead.values import Duration, GroupStatus, Maintained, Stats, Step


def connect_async(
    url: str,
    *,
    schema: str = "fairlead",
    pool_size: int = 10,
    timeout: float = 5.0,
    synchronous: str = "FULL",
    prepare: bool = True,
    listen: bool = True,
    clock: Callable[[], int] | None = None,
) -> AsyncDatabase:
    """Connect to a database: ``sqlite:///jobs.db``, ``sqlite://`` (in memory), ``postgresql://…``
    or ``mysql://…``. Nothing is opened before the first call.

    On PostgreSQL those who wait are woken by NOTIFY on a connection of their own; ``listen=False``
    makes them poll instead, as ``prepare=False`` (for PgBouncer in transaction mode) does too."""
    return AsyncDatabase(
        url, Options(schema, pool_size, timeout, synchronous, prepare, listen), clock
    )


class AsyncDatabase:
    """A connected Fairlead installation. Tasks may share it."""

    def __init__(self, url: str, options: Options, clock: Callable[[], int] | None = None) -> None:
        self.target = target(url, options)
        self.core = Core(self.target.backend, clock)
        kind = ThreadRunner if self.target.open_async is None else AsyncOwnRunner
        self.runner = kind(self.target, options)
        self.core.waker = waker_for(self.target, self.runner)
        self.core.hub = AsyncHub(self.core, self.runner, self.core.waker)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.target.shown}>"

    def queue(self, name: str) -> AsyncQueue:
        """A handle on a queue; no I/O."""
        return AsyncQueue(self.core, self.runner, name)

    async def queues(self) -> list[str]:
        """The names of all queues."""
        return await self.runner.run(queues.queues(self.core))

    async def stats(self) -> Stats:
        """Exact counts and totals over all queues; ``.queues`` has them one by one."""
        return await self.runner.run(insight.all_stats(self.core))

    async def trace(self, key: str) -> list[Step]:
        """The life of a key across all queues: its messages and their logged failures."""
        return await self.runner.run(insight.trace(self.core, key))

    async def maintain(self, limit: int = 1000) -> Maintained:
        """Promote, recover, expire, purge and fold for all queues, ``limit`` rows of each kind."""
        return await self.runner.run(queues.maintain(self.core, limit))

    def group(
        self,
        name: str,
        queue: str | None = None,
        *,
        end: Any = None,
        abort: Any = None,
        on_dead: OnDead = "ignore",
    ) -> AsyncGroup:
        """A handle on a group of messages; no I/O. ``end`` and ``abort`` (a Send, or a body) are
        sent to ``queue`` when all members are finished, or when it is cancelled.
        ``on_dead="abort"`` cancels it when a member dies."""
        opening = groups.opening(name, queue, end, abort, on_dead)
        return AsyncGroup(self.core, self.runner, opening)

    async def groups(self, limit: int = 1000) -> list[GroupStatus]:
        """The groups that are open, by name."""
        return await self.runner.run(groups.groups(self.core, limit))

    def schedule(self, name: str) -> AsyncSchedule:
        """A handle on a schedule; no I/O."""
        return AsyncSchedule(self.core, self.runner, name)

    async def schedules(self) -> list[ScheduleStatus]:
        """All schedules, by name."""
        return await self.runner.run(schedules.schedules(self.core))

    async def run_schedules(self, limit: int = 100) -> Ticked:
        """Send what the schedules have due, up to ``limit`` of them. Any number of workers may do
        so at once: each tick is sent exactly once."""
        return await follow(self.runner, ticking.run(self.core, limit))

    def batch(self) -> AsyncBatch:
        """Collect sends and policy changes over many queues and run them in one transaction."""
        return AsyncBatch(self.core, self.runner)

    def events(
        self,
        queue: str | None = None,
        *,
        kinds: Sequence[str] | None = None,
        after: str | None = None,
        timeout: Duration | None = None,
    ) -> AsyncEvents:
        """What happens, event by event, in queues whose ``events`` setting is on. ``after``: a
        cursor to go on from, ``""`` for the beginning, None for now. It ends after ``timeout``
        seconds without an event; without a time-out never."""
        timeout_us = check.optional_microseconds(timeout, "timeout")
        return AsyncEvents(self.core, self.runner, queue, kinds, after, timeout_us)

    async def permit(self, name: str = "", *, ttl: Duration = 30) -> AsyncPermit:
        """Register a live worker; extend it in time and its leases do not expire."""
        check.microseconds(ttl, "ttl")
        id = await self.runner.run(queues.permit_create(self.core, name, ttl))
        return AsyncPermit(self.core, self.runner, id, ttl)

    async def permits(self) -> list[PermitStatus]:
        """The live workers: whose permits have not expired, by age, with their leases."""
        return await self.runner.run(queues.permits(self.core))

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; the names of the migrations that were applied."""
        return await self.runner.run(
            Call("migrate", self.core.backend.migrate, repeatable=True, needs_schema=False)
        )

    async def clock(self) -> int:
        """The database's clock, in microseconds since the epoch."""
        return await self.runner.run(Call("clock", self.core.backend.clock, repeatable=True))

    async def close(self) -> None:
        """Close the connections; calls after this raise DatabaseUnavailable."""
        await self.core.hub.close()
        await self.core.waker.close()
        await self.runner.close()

    async def __aenter__(self) -> AsyncDatabase:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()
