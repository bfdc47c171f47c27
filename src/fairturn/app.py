"""The application: its tasks, its schedules and its database."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from fairturn.aio.database import AsyncDatabase, connect_async
from fairturn.core.errors import InvalidArgument
from fairturn.core.schedules import Missed, Overlap
from fairturn.core.sends import OnConflict
from fairturn.core.values import Duration, Moment
from fairturn.sync.database import Database, connect
from fairturn.tasks.context import AsyncContext, Context
from fairturn.tasks.databases import Databases
from fairturn.tasks.import_guard import importing
from fairturn.tasks.middleware import Middleware
from fairturn.tasks.schedules import Declared
from fairturn.tasks.task import Executor, FromArguments, Sending, Task, TaskOptions
from fairturn.tasks.verdicts import RetryRule
from fairturn.worker.runtime import Worker

log = logging.getLogger("fairturn.app")
P = ParamSpec("P")
R = TypeVar("R")


class Decorator:
    """Returned by ``app.task(…)``: decorates a function."""

    def __init__(self, app: App, name: str | None, options: TaskOptions) -> None:
        self._app = app
        self._name = name
        self._options = options

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[AsyncContext, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Task[..., Any]:
        return self._app.add(Task(self._app, function, self._name, self._options))


class App:
    """Tasks and their database. The first call opens the first connection.

    The options are those of ``fairturn.connect``. With a ``name``, schedules that this application
    declared before and no longer declares are removed when a worker starts. ``telemetry`` is for
    OpenTelemetry: by default it is used if the program has set it up; True requires it, False turns
    it off."""

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        middleware: Sequence[Middleware] = (),
        telemetry: bool | None = None,
        **options: Any,
    ) -> None:
        if url == "sqlite://":
            raise InvalidArgument(
                "an App needs a database that its workers can share, such as the file "
                "sqlite:///jobs.db; for tests use fairturn.testing"
            )
        self.url = url
        self.name = name or "app"
        self._named = name is not None
        self.tasks: dict[str, Task[..., Any]] = {}
        self._middleware: list[Middleware] = list(middleware)
        self._telemetry = telemetry
        self._telemetry_lock = threading.Lock()
        if telemetry:
            self._add_telemetry()
        self._declared: dict[str, Declared] = {}
        self._options = options
        self.databases = Databases(
            lambda: connect(self.url, **self._options),
            lambda: connect_async(self.url, **self._options),
        )

    def __repr__(self) -> str:
        return f"<App {self.name!r} with {len(self.tasks)} tasks>"

    # --- tasks ---------------------------------------------------------------------------------
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[AsyncContext, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        channel: FromArguments = None,
        key: FromArguments = None,
        on_conflict: OnConflict = "error",
        priority: int = 0,
        retry: RetryRule | Literal[False] = None,
        timeout: Duration | None = None,
        lease: Duration | None = None,
        expires: Duration | None = None,
        debounce: Duration | None = None,
        max_wait: Duration | None = None,
        executor: Executor | None = None,
        result: bool = False,
        on_give_up: Callable[..., Any] | None = None,
    ) -> Decorator: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **options: Any,
    ) -> Any:
        """Make a function a task: ``@app.task`` or ``@app.task(queue="emails", …)``.

        ``channel`` and ``key`` are strings, or functions of the call's arguments. ``retry`` is a
        Backoff, or one per type of exception (None: no retry), or False. ``executor="process"`` is
        for work that keeps a CPU busy. ``result=True`` keeps what the function returns."""
        unknown = options.keys() - {field.name for field in fields(TaskOptions)}
        if unknown:
            known = ", ".join(["name", *(field.name for field in fields(TaskOptions))])
            raise InvalidArgument(f"a task has no option {min(unknown)!r}; its options are {known}")
        decorator = Decorator(self, name, TaskOptions(**options))
        return decorator if function is None else decorator(function)

    def add(self, task: Task[P, R]) -> Task[P, R]:
        if task.name in self.tasks:
            raise InvalidArgument(
                f"two tasks are called {task.name!r}: give one of them a name of its own, "
                f"@app.task(name=…)"
            )
        self.tasks[task.name] = task
        return task

    @property
    def middleware(self) -> list[Middleware]:
        """The application's middlewares; append to the list before a worker is created."""
        # A program may set up OpenTelemetry long after it has created its App: check each time.
        if self._telemetry is None and _is_telemetry_set_up():
            with self._telemetry_lock:
                if self._telemetry is None:
                    self._add_telemetry()
        return self._middleware

    def _add_telemetry(self) -> None:
        try:
            from fairturn.observe.tracing import Telemetry  # here: it needs an optional package
        except ImportError as error:
            raise InvalidArgument(
                "telemetry=True needs the OpenTelemetry API: install opentelemetry-api, or "
                f"Fairturn with its extra [otel] ({error})"
            ) from error
        if not any(isinstance(one, Telemetry) for one in self._middleware):
            self._middleware.insert(0, Telemetry())  # around all others
        self._telemetry = True

    # --- schedules -----------------------------------------------------------------------------
    def cron(
        self,
        cron: str,
        task: Sending[...],
        *,
        args: Mapping[str, Any] | None = None,
        timezone: str = "UTC",
        name: str | None = None,
        missed: Missed = "once",
        overlap: Overlap = "skip",
    ) -> None:
        """Send ``task`` with these arguments at the times of a cron expression: once each time,
        however many workers run. Workers store the schedule when they start."""
        when = {"cron": cron, "timezone": timezone}
        self._declare(Declared.of(task, args, name, when, missed, overlap))

    def every(
        self,
        interval: Duration,
        task: Sending[...],
        *,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
        missed: Missed = "once",
        overlap: Overlap = "skip",
    ) -> None:
        """Send ``task`` every so many seconds."""
        self._declare(Declared.of(task, args, name, {"every": interval}, missed, overlap))

    def at(
        self,
        moment: Moment,
        task: Sending[...],
        *,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        """Send ``task`` once, at that moment, even if it is years away."""
        self._declare(Declared.of(task, args, name, {"at": moment}, "once", "skip"))

    def _declare(self, declared: Declared) -> None:
        if declared.name in self._declared:
            raise InvalidArgument(
                f"two schedules are called {declared.name!r}: give one of them name=…"
            )
        self._declared[declared.name] = declared

    async def declare(self, db: AsyncDatabase) -> None:
        """Store the declared schedules. An app with a name of its own also removes schedules that
        it no longer declares; without a name these could belong to another app."""
        for declared in self._declared.values():
            await declared.store(db, self.name)
        for stored in await db.schedules() if self._named else []:
            if stored.owner == self.name and stored.name not in self._declared:
                await db.schedule(stored.name).remove()
                text = "removed schedule %s: app %s no longer declares it"
                log.warning(text, stored.name, self.name)

    # --- the database --------------------------------------------------------------------------
    @property
    def db(self) -> Database:
        """The application's Database, for everything except tasks."""
        return self.databases.sync

    @property
    def async_db(self) -> AsyncDatabase:
        """The application's AsyncDatabase; there is one for each event loop."""
        return self.databases.of_this_loop

    @property
    def connection(self) -> tuple[str, dict[str, Any]]:
        """The URL and the options of ``connect``."""
        return self.url, self._options

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self.databases.close()

    async def close_async(self) -> None:
        """Close the connections, also those of this event loop."""
        await self.databases.close_async()

    # --- workers -------------------------------------------------------------------------------
    def worker(
        self,
        *,
        concurrency: int = 10,
        queues: Mapping[str, int] | Sequence[str] | None = None,
        prefetch: int = 1000,
        reserve: Mapping[int, int] | None = None,
        grace: Duration = 30,
        name: str | None = None,
    ) -> Worker:
        """Return a worker for this program: ``async with app.worker():``.

        ``queues`` are names, or names with weights; all by default. ``reserve`` keeps slots for
        urgent messages: ``{0: 5, 10: 8}`` starts messages of a priority below 10 only while fewer
        than 5 run."""
        return Worker(
            self,
            concurrency=concurrency,
            queues=queues,
            prefetch=prefetch,
            reserve=reserve,
            grace=grace,
            name=name,
        )

    def run(self, **options: Any) -> None:
        """Work until SIGTERM or SIGINT; a second signal releases all messages immediately."""
        if importing.get() or getattr(multiprocessing.current_process(), "_inheriting", False):
            raise InvalidArgument(
                "app.run() was called while the module was imported: put it under "
                'if __name__ == "__main__":'
            )
        worker = self.worker(**options)
        worker.witnessed = True
        asyncio.run(run_until_signalled(worker))


async def run_until_signalled(worker: Worker) -> None:
    """Run a worker. The first signal stops it, the second aborts it."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (worker.abort if worker.plan.stopping else worker.stop)()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        await worker.run()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _is_telemetry_set_up() -> bool:
    """Whether this program has set up OpenTelemetry. If it is not imported, it is not set up, and
    this check costs little. The API's own providers do nothing; others, such as the SDK's, do."""
    for module, getter in (("trace", "get_tracer_provider"), ("metrics", "get_meter_provider")):
        found = getattr(sys.modules.get(f"opentelemetry.{module}"), getter, None)
        if found is not None and not type(found()).__module__.startswith(
            ("opentelemetry.trace", "opentelemetry.metrics")
        ):
            return True
    return False
