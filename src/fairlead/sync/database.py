"""``fairlead.connect`` and the Database it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.connecting import Options, target
from fairlead.operations import check, insight, queues
from fairlead.operations.call import Call, Core
from fairlead.sync.queue import Permit, Queue
from fairlead.sync.running import OwnRunner
from fairlead.values import Duration, Maintained, Stats, Step


def connect(
    url: str,
    *,
    schema: str = "fairlead",
    pool_size: int = 10,
    timeout: float = 5.0,
    synchronous: str = "FULL",
    prepare: bool = True,
    clock: Callable[[], int] | None = None,
) -> Database:
    """Connect to a database: ``sqlite:///jobs.db``, ``sqlite://`` (in memory), ``postgresql://…``
    or ``mysql://…``. Nothing is opened before the first call."""
    return Database(url, Options(schema, pool_size, timeout, synchronous, prepare), clock)


class Database:
    """A connected Fairlead installation. Threads may share it."""

    def __init__(self, url: str, options: Options, clock: Callable[[], int] | None = None) -> None:
        self.target = target(url, options)
        self.core = Core(self.target.backend, clock)
        self.runner = OwnRunner(self.target, options)

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

    def permit(self, name: str = "", *, ttl: Duration = 30) -> Permit:
        """Register a live worker; extend it in time and its leases do not expire."""
        check.microseconds(ttl, "ttl")
        id = self.runner.run(queues.permit_create(self.core, name, ttl))
        return Permit(self.core, self.runner, id, ttl)

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
        self.runner.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
