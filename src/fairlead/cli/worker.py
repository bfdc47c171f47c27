"""``fairlead worker``: run the tasks of an application, in one process or in several."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from fairlead.app import App, run_until_signalled
from fairlead.cli import loading
from fairlead.cli.parsing import Duration
from fairlead.cli.session import Context, Failed, Refused, Session, shown
from fairlead.cli.status import Screen, StatusLine, screen, setup_logs, summary
from fairlead.errors import FairleadError
from fairlead.relay.running import Relay
from fairlead.worker import health
from fairlead.worker.reloading import Sources
from fairlead.worker.runtime import Worker
from fairlead.worker.serving import Ready, Snapshots, serve
from fairlead.worker.supervised import Link
from fairlead.worker.supervisor import Supervisor

log = logging.getLogger("fairlead.worker")
TICK = 0.1  # seconds between two looks at what the worker is doing
EVERY = 1.0  # seconds between two status lines


@Parameter(name="*")
@dataclass
class Options:
    """How to work."""

    concurrency: Annotated[int, Parameter(help="Handlers at once, in each process (10).")] = 10
    queue: Annotated[
        list[str] | None,
        Parameter(metavar="NAME[=WEIGHT]", help="Only this queue; repeat. Default: all."),
    ] = None
    processes: Annotated[int, Parameter(help="Worker processes (1).")] = 1
    prefetch: Annotated[int, Parameter(help="Messages that may wait for a slot (1000).")] = 1000
    grace: Annotated[Duration, Parameter(help="To finish what runs when stopped (30s).")] = 30
    reserve: Annotated[
        list[str] | None,
        Parameter(metavar="PRIORITY=LIMIT", help="Slots that this priority may use; repeat."),
    ] = None
    metrics_port: Annotated[int | None, Parameter(help="Serve /metrics, /health, /ready.")] = None
    metrics_host: Annotated[str, Parameter(help="On this address (127.0.0.1).")] = "127.0.0.1"
    name: Annotated[str | None, Parameter(help="The worker's name. Default: host:pid.")] = None
    relay: Annotated[
        bool, Parameter(help="Also relay queues that have a destination (fairlead relay).")
    ] = False
    reload: Annotated[bool, Parameter(help="Restart when a .py file changes.")] = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Parameter(help="Log from here on (info).")
    ] = "info"
    log: Annotated[
        Literal["text", "json"] | None,
        Parameter(metavar="text|json", show_choices=False, help="Default: JSON when piped."),
    ] = None

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
        """The command of one of several processes, which has no use for the other options."""
        words = [sys.executable, "-m", "fairlead", "worker", app]
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
            raise Refused(f"{option} {text!r}: write {example}")
        if name in found:
            raise Refused(f"{option} names {name!r} twice")
        found[name] = int(number)
    return found


def _reserve(texts: Sequence[str] | None) -> dict[int, int] | None:
    pairs = _pairs(texts, "--reserve", "0=5 10=8: with 5 at work only priority 10 and above start")
    try:
        return None if pairs is None else {int(name): limit for name, limit in pairs.items()}
    except ValueError:
        raise Refused("--reserve takes PRIORITY=LIMIT, two whole numbers: 0=5") from None


def worker(app: loading.Name, /, *, options: Options | None = None, session: Context) -> int:
    """Run the tasks of an app until SIGTERM or Ctrl-C. It uses the app's own database, not --db.

    Example: fairlead worker shop:app --queue emails=3 --queue default --processes 2
    """
    options = options or Options()
    if options.processes < 1:
        raise Refused("--processes must be at least 1")
    json = options.log == "json" if options.log else session.json or not session.err.is_terminal

    def log_error(text: str) -> None:
        setup_logs(session, True, options.log_level)
        log.error("%s", text)

    if json:
        session.log_error = log_error  # a line of JSON among the others
    link = Link.from_environment()
    if link is not None:
        return _supervised(session, app, options, json, link)
    with _screen(session, json) as shown_on:
        if options.processes > 1 or options.reload:
            return _supervise(session, app, options, json, shown_on)
        return _alone(session, app, options, json, shown_on)


@contextlib.contextmanager
def _screen(session: Session, json: bool) -> Generator[Screen | None]:
    if json or not session.err.is_terminal:
        yield None
        return
    with screen(session) as found:
        yield found


# --- in this process ------------------------------------------------------------------------------
def _load(session: Session, name: str, options: Options) -> tuple[App, Worker]:
    app = loading.load(session, name)
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
    setup_logs(session, json, options.log_level)
    if shown_on is not None:
        shown_on.banner(_facts(name, app, worker, options))

    def snapshots() -> list[dict[str, Any]]:
        return [worker.snapshot()]

    async def work() -> None:
        follow = _follow(shown_on, worker, options)
        async with _serving(options, snapshots, lambda: health.ready(snapshots())):
            following = asyncio.create_task(follow)
            try:
                async with _relaying(app, options):
                    await run_until_signalled(worker)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                await app.close_async()

    asyncio.run(work())
    log.info("stopped: %s", summary(snapshots()))
    return 0


async def _follow(shown_on: Screen | None, worker: Worker, options: Options) -> None:
    """Say what the worker is doing: at once when that changes, else each second."""
    line, before, due = StatusLine(), "", 0.0
    clock = asyncio.get_running_loop().time
    while True:
        state = _state(worker)
        if state != before and state != "starting":
            _tell(state, worker, options)
        if shown_on is not None and (state != before or clock() >= due):
            shown_on.line(line.text(state, [worker.snapshot()], 1))
            due = clock() + EVERY
        before = state
        await asyncio.sleep(TICK)


def _state(worker: Worker) -> str:
    if worker.plan.stopping:
        return "stopping"
    return "working" if worker.ready else "starting"


def _tell(state: str, worker: Worker, options: Options) -> None:
    if state == "stopping":
        text = f"stopping: up to {options.grace:g} s for the handlers that run"
        log.info("%s; a second signal gives them back at once", text)


@contextlib.asynccontextmanager
async def _relaying(app: App, options: Options) -> AsyncGenerator[None]:
    """The relay meanwhile, if it is asked for; schedules are the worker's business."""
    if not options.relay:
        yield
        return
    async with app.connect_worker() as db, Relay(db, schedules=False):
        yield


@contextlib.asynccontextmanager
async def _serving(options: Options, snapshots: Snapshots, ready: Ready) -> AsyncGenerator[None]:
    """/metrics, /health and /ready meanwhile, if they are asked for."""
    async with contextlib.AsyncExitStack() as stack:
        if options.metrics_port is not None:
            host = options.metrics_host
            try:
                server = serve(host, options.metrics_port, snapshots, ready)
                port = await stack.enter_async_context(server)
            except (OSError, OverflowError) as error:
                where = f"{host}:{options.metrics_port}"
                why = getattr(error, "strerror", None) or error
                raise Failed(f"metrics cannot be served on {where}: {why}") from None
            log.info("metrics on http://%s:%d/metrics", host, port)
        yield


# --- in several processes -------------------------------------------------------------------------
def _supervised(session: Session, name: str, options: Options, json: bool, link: Link) -> int:
    """One of the processes of a supervisor."""

    async def work(app: App, worker: Worker) -> None:
        try:
            async with _relaying(app, options):
                await link.run(worker)
        finally:
            await app.close_async()

    try:
        app, worker = _load(session, name, options)
        setup_logs(session, json, options.log_level)
        link.tell(hello=_facts(name, app, worker, options))
        asyncio.run(work(app, worker))
    except (Refused, Failed, FairleadError, ModuleNotFoundError):
        link.tell(hopeless=True)  # what is wrong is said, and stays wrong
        raise
    return 0


def _supervise(
    session: Session, name: str, options: Options, json: bool, shown_on: Screen | None
) -> int:
    options.for_worker()  # mistakes in the options are told before anything starts
    setup_logs(session, json, options.log_level)
    if shown_on is not None:
        os.environ["PYTHONUNBUFFERED"] = "1"  # their lines come to us through a pipe
        if session.err.color_system is not None:
            os.environ["FORCE_COLOR"] = "1"
    if options.reload:
        # A file that is saved twice within a second may else be taken from its old bytecode.
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    greeted: list[bool] = []

    def hello(facts: dict[str, Any]) -> None:
        if shown_on is not None and not greeted:
            shown_on.banner({**facts, "processes": options.processes})
        greeted.append(True)

    supervisor = Supervisor(
        lambda number: options.for_process(name, number, json),
        options.processes,
        grace=options.grace,
        changed=Sources(Path.cwd()).changed if options.reload else None,
        hello=hello,
        output=None if shown_on is None else shown_on.output,
    )

    async def work() -> int:
        async with _serving(options, supervisor.snapshots, supervisor.ready):
            following = asyncio.create_task(_watch(shown_on, supervisor, options))
            try:
                return await supervisor.run()
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    code = asyncio.run(work())
    if supervisor.stopping:
        log.info("stopped: %s", summary(supervisor.snapshots()))
    return code


async def _watch(shown_on: Screen | None, supervisor: Supervisor, options: Options) -> None:
    if shown_on is None:
        return
    line = StatusLine()
    while True:
        state = "stopping" if supervisor.stopping else "working"
        if state == "working" and not supervisor.ready()[0]:
            state = "starting"
        shown_on.line(line.text(state, supervisor.snapshots(), options.processes))
        await asyncio.sleep(EVERY)
