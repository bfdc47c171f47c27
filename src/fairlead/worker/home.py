"""What a worker needs of its App, beyond what a task does."""

from __future__ import annotations

from typing import Any, Protocol

from fairlead.aio.database import AsyncDatabase
from fairlead.tasks import task
from fairlead.tasks.middleware import Middleware


class Home(task.Home, Protocol):
    tasks: dict[str, task.Task[..., Any]]

    @property
    def middleware(self) -> list[Middleware]: ...

    @property
    def connection(self) -> tuple[str, dict[str, Any]]:
        """The URL and the options of ``connect``."""
        ...

    def connect_worker(self) -> AsyncDatabase:
        """A Database of the worker's own, for the running event loop."""
        ...

    async def declare(self, db: AsyncDatabase) -> None:
        """Store the schedules that the code declares."""
        ...
