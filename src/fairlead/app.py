"""The application: its tasks, its schedules, and the database they live in."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from fairlead.aio.database import AsyncDatabase, connect_async
from fairlead.errors import InvalidArgument
from fairlead.schedules import Missed, Overlap
from fairlead.sync.database import Database, connect
from fairlead.tasks.context import AsyncContext, Context
from fairlead.tasks.databases import Databases
from fairlead.tasks.importing import importing
from fairlead.tasks.middleware import Middleware, entered, overriding
from fairlead.tasks.schedules import Declared
from fairlead.tasks.task import Executor, FromArguments, Sending, Task, TaskOptions
from fairlead.tasks.verdicts import RetryRule
from fairlead.values import Duration, Moment, OnConflict, Send
from fairlead.worker.runtime import Worker

log = logging.getLogger("fairlead.app")
P = ParamSpec("P")
R = TypeVar("R")


class Decorator:
    """What ``app.task(…)`` gives: put it on a function."""

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
    """Tasks and the database they are sent through. Nothing is opened before the first call.

    The options are those of ``fairlead.connect``. With a ``name``, schedules that this application
    has declared and declares no longer are removed when a worker starts. ``telemetry`` is for
    OpenTelemetry: by default it is used in a program that has set it up, True insists on it, False
    refuses it."""

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
                "an App needs a database that its workers share: sqlite:///jobs.db is a file. "
                "For tests there is fairlead.testing"
            )
        self.url = url
        self.name = name or "app"
        self._named = name is not None
        self.tasks: dict[str, Task[..., Any]] = {}
        self._middleware: list[Middleware] = list(middleware)
        self._telemetry = telemetry
        self._observing = threading.Lock()
        if telemetry:
            self._observe()
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
            raise InvalidArgument(f"a task has no option {min(unknown)!r}; there are {known}")
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
        """What hangs onto sending and handling; append to it before a worker is made."""
        # A program may set up OpenTelemetry long after it has made its App, so look each time.
        if self._telemetry is None and _observed():
            with self._observing:
                if self._telemetry is None:
                    self._observe()
        return self._middleware

    def _observe(self) -> None:
        try:
            from fairlead.telemetry import Telemetry  # here: it needs a package that few have
        except ImportError as error:
            raise InvalidArgument(
                "telemetry=True needs the OpenTelemetry API: install opentelemetry-api, or "
                f"Fairlead with its extra [otel] ({error})"
            ) from error
        if not any(isinstance(one, Telemetry) for one in self._middleware):
            self._middleware.insert(0, Telemetry())  # around all others
        self._telemetry = True

    def around_send(
        self, task: Task[..., Any], queue: str, count: int
    ) -> AbstractContextManager[Any]:
        """What the middleware puts around a call that sends."""
        hooks = overriding(self.middleware, "around_send")
        return entered(hooks, task, queue, count) if hooks else nullcontext()

    def sending(self, task: Task[..., Any], *messages: Send) -> None:
        """Let the middleware see messages before they are sent."""
        hooks = overriding(self.middleware, "sending")
        if hooks:
            for message in messages:
                for hook in hooks:
                    hook(task, message)

    # --- schedules -----------------------------------------------------------------------------
    def cron(
        self,
        cron: str,
        task: Task[..., Any] | Sending[...],
        *,
        args: Mapping[str, Any] | None = None,
        timezone: str = "UTC",
        name: str | None = None,
        missed: Missed = "once",
        overlap: Overlap = "skip",
    ) -> None:
        """Send ``task`` at the times of a cron expression, with these arguments, each time once
        however many workers run. The workers store it when they start."""
        self._declare(task, args, name, {"cron": cron, "timezone": timezone}, missed, overlap)

    def every(
        self,
        interval: Duration,
        task: Task[..., Any] | Sending[...],
        *,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
        missed: Missed = "once",
        overlap: Overlap = "skip",
    ) -> None:
        """Send ``task`` every so many seconds."""
        self._declare(task, args, name, {"every": interval}, missed, overlap)

    def at(
        self,
        moment: Moment,
        task: Task[..., Any] | Sending[...],
        *,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        """Send ``task`` once, at that moment, however far away."""
        self._declare(task, args, name, {"at": moment}, "once", "skip")

    def _declare(
        self,
        task: Task[..., Any] | Sending[...],
        args: Mapping[str, Any] | None,
        name: str | None,
        when: Mapping[str, Any],
        missed: Missed,
        overlap: Overlap,
    ) -> None:
        declared = Declared.of(task, args or {}, name, when, missed, overlap)
        if declared.name in self._declared:
            raise InvalidArgument(
                f"two schedules are called {declared.name!r}: give one of them name=…"
            )
        self._declared[declared.name] = declared

    async def declare(self, db: AsyncDatabase) -> None:
        """Store what the code declares. An app with a name of its own also removes what it declared
        before and does no longer; without one, that might be another app's."""
        for declared in self._declared.values():
            await declared.store(db, self.name)
        for stored in await db.schedules() if self._named else []:
            if stored.owner == self.name and stored.name not in self._declared:
                await db.schedule(stored.name).remove()
                log.warning("schedule %s is no longer in app %s: removed", stored.name, self.name)

    # --- the database --------------------------------------------------------------------------
    @property
    def db(self) -> Database:
        """The application's Database, for everything that is not a task."""
        return self.databases.sync

    @property
    def async_db(self) -> AsyncDatabase:
        """The same for ``await``; one for each event loop."""
        return self.databases.of_this_loop

    @property
    def connection(self) -> tuple[str, dict[str, Any]]:
        """The URL and the options with which it connects."""
        return self.url, self._options

    def connect_worker(self) -> AsyncDatabase:
        """A Database of a worker's own."""
        return self.databases.connect_async()

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self.databases.close()

    async def close_async(self) -> None:
        """Close the connections of this event loop, too."""
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
        """A worker in this program: ``async with app.worker():``.

        ``queues`` are names, or names with weights; all by default. ``reserve`` keeps slots for
        urgent messages: ``{0: 5, 10: 8}`` starts what has a priority below 10 only while fewer than
        5 run."""
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
        """Work until SIGTERM or SIGINT; a second signal gives everything back at once."""
        if importing.get() or getattr(multiprocessing.current_process(), "_inheriting", False):
            raise InvalidArgument(
                "app.run() was called while the module was being imported, not run: put it under "
                'if __name__ == "__main__":'
            )
        worker = self.worker(**options)
        worker.witnessed = True
        asyncio.run(run_until_signalled(worker))


async def run_until_signalled(worker: Worker) -> None:
    """Run a worker; the first signal stops it, the second aborts."""
    loop = asyncio.get_running_loop()

    def told() -> None:
        (worker.abort if worker.plan.stopping else worker.stop)()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    try:
        await worker.run()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _observed() -> bool:
    """Has this program set up OpenTelemetry? One that has not even imported it has not, and asking
    costs nothing. The providers of the API itself do nothing; the SDK's and others' do."""
    for module, getter in (("trace", "get_tracer_provider"), ("metrics", "get_meter_provider")):
        found = getattr(sys.modules.get(f"opentelemetry.{module}"), getter, None)
        if found is not None and not type(found()).__module__.startswith(
            ("opentelemetry.trace", "opentelemetry.metrics")
        ):
            return True
    return False
