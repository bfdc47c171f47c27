"""What a worker needs of its App."""

from __future__ import annotations

from typing import Any, Protocol

from fairlead.aio.database import AsyncDatabase
from fairlead.sync.database import Database
from fairlead.tasks.middleware import Middleware
from fairlead.tasks.task import Task


class Home(Protocol):
    tasks: dict[str, Task[..., Any]]

    @property
    def middleware(self) -> list[Middleware]: ...

    @property
    def db(self) -> Database: ...

    @property
    def async_db(self) -> AsyncDatabase: ...

    def connect_worker(self) -> AsyncDatabase:
        """A Database of the worker's own, for the running event loop."""
        ...

    async def declare(self, db: AsyncDatabase) -> None:
        """Store the schedules that the code declares."""
        ...
