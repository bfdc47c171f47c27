"""``fairturn worker``: run the tasks of an app, in one process or in several."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from cyclopts import Parameter

from fairturn.app import App, run_until_signalled
from fairturn.cli import app_lookup
from fairturn.cli.arguments import AppName, Context, LogFormat, LogLevel
from fairturn.cli.errors import CommandError, CommandFailed
from fairturn.cli.parsing import Duration
from fairturn.cli.programs import logs
from fairturn.cli.programs.worker_status import Screen, StatusLine, screen, summary
from fairturn.cli.session import Session, shown
from fairturn.core.errors import FairturnError
from fairturn.observe.worker_metrics import ready
from fairturn.relay.runner import Relay
from fairturn.supervision.link import Link
from fairturn.supervision.reload import Sources
from fairturn.supervision.supervisor import Supervisor
from fairturn.worker.http_pages import serve
from fairturn.worker.runtime import Worker

log = logging.getLogger("fairturn.worker")
T = TypeVar("T")
TICK = 0.1  # seconds between two checks of the worker's state
EVERY = 1.0  # seconds between two status lines


@Parameter(name="*")
@dataclass
class Options:
    """The options of a worker.

    Args:
        concurrency: Handlers at the same time, in each process (10).
        queue: Only this queue; repeat it for several (all).
        processes: The number of worker processes (1).
        prefetch: Messages that may wait for a slot (1000).
        grace: Time for running handlers after a signal (30s).
        reserve: The slots that this priority may use; repeat it.
        metrics_port: Serve /metrics, /health and /ready on this port.
        metrics_host: The address for --metrics-port (127.0.0.1).
        name: The name of the worker (host:pid).
        relay: Also run the relay, as fairturn relay does.
        reload: Restart when a .py file changes.
    """

    concurrency: int = 10
    queue: Annotated[list[str] | None, Parameter(metavar="NAME[=WEIGHT]")] = None
    processes: int = 1
    prefetch: int = 1000
    grace: Duration = 30
    reserve: Annotated[list[str] | None, Parameter(metavar="PRIORITY=LIMIT")] = None
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    name: str | None = None
    relay: bool = False
    reload: bool = False
    log: LogFormat | None = None
    log_level: LogLevel = "info"

    def for_worker(self) -> dict[str, Any]:
        return {
            "concurrency": self.concurrency,
            "queues": _pairs(self.queue, "--queue", "emails or emails=3", default=1),
            "prefetch": self.prefetch,
            "reserve": _reserve(self.reserve),
            "grace": self.grace,
            "name": self.name,
        }

    def for_process(self, app: str, number: int, json: bool) -> list[str]:
        """Return the command of one of several processes, with the options that it needs."""
        words = [sys.executable, "-m", "fairturn", "worker", app]
        words += ["--concurrency", str(self.concurrency), "--prefetch", str(self.prefetch)]
        words += ["--grace", str(self.grace), "--log-level", self.log_level]
        for name, values in (("--queue", self.queue), ("--reserve", self.reserve)):
            words += [f"{name}={value}" for value in values or ()]
        if self.relay:
            words.append("--relay")
        if self.name is not None:
            words.append(f"--name={self.name}" + (f"-{number}" if self.processes > 1 else ""))
        return [*words, "--log", "json" if json else "text"]


def _pairs(
    texts: Sequence[str] | None, option: str, example: str, default: int | None = None
) -> dict[str, int] | None:
    if not texts:
        return None
    found: dict[str, int] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        if not equals and default is not None:
            name, number = text, str(default)
        if not name or not number.isdecimal():
            raise CommandError(f"{option} {text!r}: write {example}")
        if name in found:
            raise CommandError(f"{option} names {name!r} twice")
        found[name] = int(number)
    return found


def _reserve(texts: Sequence[str] | None) -> dict[int, int] | None:
    pairs = _pairs(texts, "--reserve", "0=5 10=8: while 5 run, only priority 10 and above start")
    try:
        return None if pairs is None else {int(name): limit for name, limit in pairs.items()}
    except ValueError:
        raise CommandError("--reserve takes PRIORITY=LIMIT, two whole numbers: 0=5") from None


def worker(app: AppName, /, *, options: Options | None = None, session: Context) -> int:
    """Run the tasks of an app until SIGTERM or Ctrl-C.

    It uses the app's own database, not --db.

    Example: fairturn worker shop:app --queue emails=3 --queue default --processes 2
    """
    options = options or Options()
    if options.processes < 1:
        raise CommandError("--processes must be at least 1")
    json = logs.is_json(session, options.log)
    if json:
        logs.log_errors(session, log, options.log_level)
    link = Link.from_environment()
    if link is not None:
        return _supervised(session, app, options, json, link)
    with screen(session) if not json else contextlib.nullcontext() as shown_on:
        if options.processes > 1 or options.reload:
            return _supervise(session, app, options, json, shown_on)
        return _alone(session, app, options, json, shown_on)


# --- what is shown meanwhile ----------------------------------------------------------------------
class Watched(Protocol):
    """A worker or a supervisor, as the status line and the metrics need it."""

    @property
    def stopping(self) -> bool: ...
    def ready(self) -> tuple[bool, str]: ...
    def snapshots(self) -> list[dict[str, Any]]: ...


async def _run(
    work: Callable[[], Coroutine[Any, Any, T]],
    watched: Watched,
    working: Callable[[], bool],
    options: Options,
    shown_on: Screen | None,
) -> T:
    """Do the work; meanwhile serve the metrics and show the status line."""
    async with _serving(options, watched):
        following = asyncio.create_task(_follow(watched, working, options, shown_on))
        try:
            return await work()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def _follow(
    watched: Watched, working: Callable[[], bool], options: Options, shown_on: Screen | None
) -> None:
    """Show the state: immediately when it changes, else each second."""
    line, before, due = StatusLine(), "", 0.0
    clock = asyncio.get_running_loop().time
    while True:
        state = "stopping" if watched.stopping else "working" if working() else "starting"
        if state == "stopping" != before and isinstance(watched, One):  # a supervisor logs it, too
            text = f"stopping: up to {options.grace:g} s for the running handlers"
            log.info("%s; a second signal releases their messages immediately", text)
        if shown_on is not None and (state != before or clock() >= due):
            shown_on.line(line.text(state, watched.snapshots(), options.processes))
            due = clock() + EVERY
        before = state
        await asyncio.sleep(TICK)


@contextlib.asynccontextmanager
async def _serving(options: Options, watched: Watched) -> AsyncGenerator[None]:
    """Serve /metrics, /health and /ready meanwhile, if --metrics-port is given."""
    if options.metrics_port is None:
        yield
        return
    host, port = options.metrics_host, options.metrics_port
    async with contextlib.AsyncExitStack() as stack:
        try:
            server = serve(host, port, watched.snapshots, watched.ready)
            port = await stack.enter_async_context(server)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise CommandFailed(f"metrics cannot be served on {host}:{port}: {why}") from None
        log.info("metrics on http://%s:%d/metrics", host, port)
        yield


async def _work(app: App, options: Options, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the worker, and with --relay the relay beside it; then close the app."""
    try:
        if options.relay:
            # The worker runs the schedules.
            async with app.databases.connect_async() as db, Relay(db, schedules=False):
                await run()
        else:
            await run()
    finally:
        await app.close_async()


# --- in this process ------------------------------------------------------------------------------
class One:
    """The worker of this process, as a Watched."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def stopping(self) -> bool:
        return self._worker.plan.stopping

    def ready(self) -> tuple[bool, str]:
        return ready(self.snapshots())

    def snapshots(self) -> list[dict[str, Any]]:
        return [self._worker.snapshot()]


def _load(session: Session, name: str, options: Options) -> tuple[App, Worker]:
    app = app_lookup.load(session, name)
    worker = app.worker(**options.for_worker())
    worker.witnessed = True
    return app, worker


def _facts(name: str, app: App, worker: Worker, options: Options) -> dict[str, Any]:
    return {
        "app": name,
        "database": shown(app.url),
        "queues": {queue: state.weight for queue, state in worker.plan.queues.items()},
        "tasks": sorted({task.name for tasks in worker.tasks.values() for task in tasks.values()}),
        "concurrency": options.concurrency,
        "processes": options.processes,
    }


def _alone(
    session: Session, name: str, options: Options, json: bool, shown_on: Screen | None
) -> int:
    app, worker = _load(session, name, options)
    logs.setup(session, json, options.log_level)
    if shown_on is not None:
        shown_on.banner(_facts(name, app, worker, options))

    one = One(worker)
    work = partial(_work, app, options, partial(run_until_signalled, worker))
    asyncio.run(_run(work, one, lambda: worker.ready, options, shown_on))
    log.info("stopped: %s", summary(one.snapshots()))
    return 0


# --- in several processes -------------------------------------------------------------------------
def _supervised(session: Session, name: str, options: Options, json: bool, link: Link) -> int:
    """Run one of the processes of a supervisor."""
    try:
        app, worker = _load(session, name, options)
        logs.setup(session, json, options.log_level)
        link.tell(hello=_facts(name, app, worker, options))
        asyncio.run(_work(app, options, partial(link.run, worker)))
    except (FairturnError, ModuleNotFoundError):
        link.tell(hopeless=True)  # a new process would fail in the same way
        raise
    return 0


def _supervise(
    session: Session, name: str, options: Options, json: bool, shown_on: Screen | None
) -> int:
    options.for_worker()  # reports mistakes in the options before a process starts
    logs.setup(session, json, options.log_level)
    if shown_on is not None:
        os.environ["PYTHONUNBUFFERED"] = "1"  # the processes print into a pipe
        if session.err.color_system is not None:
            os.environ["FORCE_COLOR"] = "1"
    if options.reload:
        # Otherwise a file that is saved twice within a second may be read from its old bytecode.
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    greeted = False

    def hello(facts: dict[str, Any]) -> None:
        nonlocal greeted
        if shown_on is not None and not greeted:
            shown_on.banner({**facts, "processes": options.processes})
        greeted = True

    supervisor = Supervisor(
        lambda number: options.for_process(name, number, json),
        options.processes,
        grace=options.grace,
        changed=Sources(Path.cwd()).changed if options.reload else None,
        hello=hello,
        output=None if shown_on is None else shown_on.output,
    )

    def all_ready() -> bool:
        ready, _ = supervisor.ready()
        return ready

    work = _run(supervisor.run, supervisor, all_ready, options, shown_on)
    code = asyncio.run(work)
    if supervisor.stopping:
        log.info("stopped: %s", summary(supervisor.snapshots()))
    return code
