"""``fairlead.connect`` and the Database it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fairlead.connecting import Options, target
from fairlead.operations import check, groups, insight, queues, schedules, ticking
from fairlead.operations.call import Call, Core
from fairlead.operations.groups import OnDead
from fairlead.permits import PermitStatus
from fairlead.schedules import ScheduleStatus, Ticked
from fairlead.sync.batch import Batch
from fairlead.sync.events import Events
from fairlead.sync.group import Group
from fairlead.sync.queue import Permit, Queue
from fairlead.sync.running import OwnRunner
from fairlead.sync.schedule import Schedule, follow
from fairlead.sync.waiting import Hub
from fairlead.sync.waking import waker_for
from fairlead.values import Duration, GroupStatus, Maintained, Stats, Step


def connect(
    url: str,
    *,
    schema: str = "fairlead",
    pool_size: int = 10,
    timeout: float = 5.0,
    synchronous: str = "FULL",
    prepare: bool = True,
    listen: bool = True,
    clock: Callable[[], int] | None = None,
) -> Database:
    """Connect to a database: ``sqlite:///jobs.db``, ``sqlite://`` (in memory), ``postgresql://…``
    or ``mysql://…``. Nothing is opened before the first call.

    On PostgreSQL those who wait are woken by NOTIFY on a connection of their own; ``listen=False``
    makes them poll instead, as ``prepare=False`` (for PgBouncer in transaction mode) does too."""
    return Database(url, Options(schema, pool_size, timeout, synchronous, prepare, listen), clock)


class Database:
    """A connected Fairlead installation. Threads may share it."""

    def __init__(self, url: str, options: Options, clock: Callable[[], int] | None = None) -> None:
        self.target = target(url, options)
        self.core = Core(self.target.backend, clock)
        self.runner = OwnRunner(self.target, options)
        self.core.waker = waker_for(self.target, self.runner)
        self.core.hub = Hub(self.core, self.runner, self.core.waker)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.target.shown}>"

    def queue(self, name: str) -> Queue:
        """A handle on a queue; no I/O."""
        return Queue(self.core, self.runner, name)

    def queues(self) -> list[str]:
        """The names of all queues."""
        return self.runner.run(queues.queues(self.core))

    def stats(self) -> Stats:
        """Exact counts and totals over all queues; ``.queues`` has them one by one."""
        return self.runner.run(insight.all_stats(self.core))

    def trace(self, key: str) -> list[Step]:
        """The life of a key across all queues: its messages and their logged failures."""
        return self.runner.run(insight.trace(self.core, key))

    def maintain(self, limit: int = 1000) -> Maintained:
        """Promote, recover, expire, purge and fold for all queues, ``limit`` rows of each kind."""
        return self.runner.run(queues.maintain(self.core, limit))

    def group(
        self,
        name: str,
        queue: str | None = None,
        *,
        end: Any = None,
        abort: Any = None,
        on_dead: OnDead = "ignore",
    ) -> Group:
        """A handle on a group of messages; no I/O. ``end`` and ``abort`` (a Send, or a body) are
        sent to ``queue`` when all members are finished, or when it is cancelled.
        ``on_dead="abort"`` cancels it when a member dies."""
        opening = groups.opening(name, queue, end, abort, on_dead)
        return Group(self.core, self.runner, opening)

    def groups(self, limit: int = 1000) -> list[GroupStatus]:
        """The groups that are open, by name."""
        return self.runner.run(groups.groups(self.core, limit))

    def schedule(self, name: str) -> Schedule:
        """A handle on a schedule; no I/O."""
        return Schedule(self.core, self.runner, name)

    def schedules(self) -> list[ScheduleStatus]:
        """All schedules, by name."""
        return self.runner.run(schedules.schedules(self.core))

    def run_schedules(self, limit: int = 100) -> Ticked:
        """Send what the schedules have due, up to ``limit`` of them. Any number of workers may do
        so at once: each tick is sent exactly once."""
        return follow(self.runner, ticking.run(self.core, limit))

    def batch(self) -> Batch:
        """Collect sends and policy changes over many queues and run them in one transaction."""
        return Batch(self.core, self.runner)

    def events(
        self,
        queue: str | None = None,
        *,
        kinds: Sequence[str] | None = None,
        after: str | None = None,
        timeout: Duration | None = None,
    ) -> Events:
        """What happens, event by event, in queues whose ``events`` setting is on. ``after``: a
        cursor to go on from, ``""`` for the beginning, None for now. It ends after ``timeout``
        seconds without an event; without a time-out never."""
        timeout_us = check.optional_microseconds(timeout, "timeout")
        return Events(self.core, self.runner, queue, kinds, after, timeout_us)

    def permit(self, name: str = "", *, ttl: Duration = 30) -> Permit:
        """Register a live worker; extend it in time and its leases do not expire."""
        check.microseconds(ttl, "ttl")
        id = self.runner.run(queues.permit_create(self.core, name, ttl))
        return Permit(self.core, self.runner, id, ttl)

    def permits(self) -> list[PermitStatus]:
        """The live workers: whose permits have not expired, by age, with their leases."""
        return self.runner.run(queues.permits(self.core))

    def migrate(self) -> list[str]:
        """Bring the schema up to date; the names of the migrations that were applied."""
        return self.runner.run(
            Call("migrate", self.core.backend.migrate, repeatable=True, needs_schema=False)
        )

    def clock(self) -> int:
        """The database's clock, in microseconds since the epoch."""
        return self.runner.run(Call("clock", self.core.backend.clock, repeatable=True))

    def close(self) -> None:
        """Close the connections; calls after this raise DatabaseUnavailable."""
        self.core.hub.close()
        self.core.waker.close()
        self.runner.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
