"""``fairlead serve``: the SQS door, in one process or in several."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from fairlead.aio.database import AsyncDatabase, connect_async
from fairlead.cli.parsing import Duration
from fairlead.cli.session import Context, Session
from fairlead.cli.status import setup_logs
from fairlead.errors import FairleadError, InvalidArgument
from fairlead.worker.supervised import Link

if TYPE_CHECKING:
    from fairlead.server.config import Settings

log = logging.getLogger("fairlead.server")
NEEDS = ("uvicorn", "httptools", "uvloop")  # the `server` extra of pyproject.toml
SNIPPET = """\
import boto3  # pip install boto3

sqs = boto3.client(
    "sqs",
    endpoint_url="{url}",
    region_name="{region}",
    aws_access_key_id="any",
    aws_secret_access_key="any",
)
queue = sqs.create_queue(QueueName="hello")["QueueUrl"]
sqs.send_message(QueueUrl=queue, MessageBody="ahoy")
for message in sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=5)["Messages"]:
    print(message["Body"])
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
"""


@Parameter(name="*")
@dataclass
class Flags:
    """How to serve. Each is also a name in [server] of the file, and FAIRLEAD_SERVE_NAME."""

    listen: Annotated[str | None, Parameter(help="The address (127.0.0.1).")] = None
    port: Annotated[int | None, Parameter(help="The port (9324).")] = None
    processes: Annotated[int | None, Parameter(help="Serving processes (1).")] = None
    extended: Annotated[bool | None, Parameter(help="Beyond SQS: years of delay, priorities.")] = (
        None
    )
    account: Annotated[str | None, Parameter(help="Of unsigned requests (000000000000).")] = None
    region: Annotated[str | None, Parameter(help="Of unsigned requests (us-east-1).")] = None
    recreate_pause: Annotated[
        Duration | None, Parameter(help="Refuse a deleted queue's name so long (0).")
    ] = None
    url: Annotated[str | None, Parameter(help="How clients call us, behind a proxy.")] = None
    tls_cert: Annotated[str | None, Parameter(help="Serve HTTPS with this certificate.")] = None
    tls_key: Annotated[str | None, Parameter(help="And its private key.")] = None
    metrics_open: Annotated[bool | None, Parameter(help="/metrics not for this machine only.")] = (
        None
    )
    access_log: Annotated[
        bool | None, Parameter(negative="--no-access-log", help="A line for each request (yes).")
    ] = None
    log: Annotated[
        Literal["text", "json"] | None,
        Parameter(metavar="text|json", show_choices=False, help="Default: JSON when piped."),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        Parameter(metavar="LEVEL", show_choices=False, help="debug, info (usual), warning, error."),
    ] = None
    grace: Annotated[Duration | None, Parameter(help="To finish what is asked (20s).")] = None
    connections: Annotated[
        int | None, Parameter(help="Open connections in each process (10000).")
    ] = None
    header_bytes: Annotated[int | None, Parameter(help="A request's line and headers (65536).")] = (
        None
    )
    body_bytes: Annotated[int | None, Parameter(help="A request's body (4194304).")] = None
    header_seconds: Annotated[
        Duration | None, Parameter(help="For a request's headers to arrive (10s).")
    ] = None
    body_seconds: Annotated[
        Duration | None, Parameter(help="For its body, and for its answer (30s).")
    ] = None
    keep_alive: Annotated[
        Duration | None, Parameter(help="An idle connection is closed after (75s).")
    ] = None

    def given(self) -> dict[str, Any]:
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    def as_environment(self) -> dict[str, str]:
        """For our processes, which are not told by flags: a command line is for all to see."""
        return {f"FAIRLEAD_SERVE_{name.upper()}": str(v) for name, v in self.given().items()}


def serve(
    *,
    config: Annotated[
        str | None, Parameter(metavar="FILE", help="TOML: [server], [keys.ID], [queues.NAME].")
    ] = None,
    flags: Flags | None = None,
    declare: Annotated[bool, Parameter(negative="--no-declare", show=False)] = True,
    session: Context,
) -> int:
    """Be an SQS for any AWS SDK, over this database's queues, until a signal.

    Without access keys only this machine is served. Keys: [keys.ID] in the file.

    Example: fairlead serve --config fairlead.toml --processes 2
    """
    settings = _settings(config, flags or Flags(), session)
    if session.url == "sqlite://" and settings.processes > 1:
        raise InvalidArgument(
            "sqlite:// is the memory of one process: use a file (sqlite:///fairlead.db), or "
            "one process"
        )
    link = Link.from_environment()
    session.creates = True
    if link is not None:
        return _supervised(session, settings, declare, link)
    from fairlead.server import listening

    sockets = listening.listeners(settings)
    try:
        if settings.processes > 1:
            return _fleet(session, settings, config, flags or Flags(), sockets)
        return _alone(session, settings, sockets)
    finally:
        listening.close(sockets)


def _settings(config: str | None, flags: Flags, session: Session) -> Settings:
    try:
        import_module("fairlead.server.protocol")  # which needs what the extra has
        from fairlead.server.config import load
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in NEEDS:
            raise
        raise ModuleNotFoundError(
            f"the server needs {error.name}, which is not installed. Install it: "
            f"pip install {' '.join(NEEDS)}, or in a clone of Fairlead: "
            "pip install '.[cli,server]'",
            name=error.name,
        ) from None
    settings = load(config, os.environ, flags.given())
    json = settings.log == "json" if settings.log else session.json or not session.err.is_terminal

    def log_error(text: str) -> None:
        setup_logs(session, True, settings.log_level)
        log.error("%s", text)

    if json:
        session.log_error = log_error
    setup_logs(session, json, settings.log_level)
    return settings


def _connect(session: Session) -> AsyncDatabase:
    return connect_async(session.url, schema=session.schema, prepare=not session.pooler)


def _tell(session: Session, settings: Settings, url: str) -> None:
    """Where it is, and how to try it."""
    log.info("serving SQS on %s, database %s", url, session.shown)
    if settings.listen in ("0.0.0.0", "::"):
        how = "with TLS" if settings.tls_cert else "without TLS"
        log.info("listening on all addresses of this machine, %s", how)
    if not len(settings.keys):
        log.warning(
            "no access keys are configured: signatures are not verified, and only this machine is "
            "served"
        )
    if session.log_error is not None:  # JSON: for machines
        return
    session.say(f"SQS on {url}  (database {session.shown})", style="bold")
    if not len(settings.keys):
        session.say("Try it:\n")
        session.say(SNIPPET.format(url=url, region=settings.region))
    session.say("Ctrl-C finishes what is asked and ends; a second one leaves at once")
    session.say(f"Look inside: {session.command('queue', 'list')}")
    session.out.file.flush()


# --- in this process ------------------------------------------------------------------------------
def _alone(session: Session, settings: Settings, sockets: Sequence[socket.socket]) -> int:
    from fairlead.server import listening
    from fairlead.server.running import Serving, new_loop
    from fairlead.server.sqs.service import Sqs

    async def work() -> Serving:
        serving = Serving(settings, _connect(session), sockets, Sqs)
        try:
            await serving.prepare()
            _tell(session, settings, listening.address(settings, sockets))
            await serving.run_until_signalled()
        finally:
            if not serving.aborted:
                await serving.close()
        return serving

    with asyncio.Runner(loop_factory=new_loop) as runner:
        serving = runner.run(work())
        if serving.aborted:
            _leave()
    log.info("stopped")
    return 1 if serving.cut else 0


def _leave() -> None:
    """At once, whatever a thread of ours still waits for."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(1)


# --- in several processes -------------------------------------------------------------------------
def _supervised(session: Session, settings: Settings, declare: bool, link: Link) -> int:
    """One of the processes of a fleet."""
    from fairlead.server import listening
    from fairlead.server.running import Serving, new_loop
    from fairlead.server.sqs.service import Sqs

    sockets = listening.inherited() or []

    async def work() -> Serving:
        serving = Serving(settings, _connect(session), sockets, Sqs, declare=declare)
        try:
            try:
                await serving.prepare()
            except FairleadError:
                link.tell(hopeless=True)  # what is wrong is said, and stays wrong
                raise
            link.tell(hello={})
            await link.run(serving, serving.heard)
        finally:
            if not serving.aborted:
                await serving.close()
        return serving

    with asyncio.Runner(loop_factory=new_loop) as runner:
        serving = runner.run(work())
        if serving.aborted:
            _leave()
    return 1 if serving.cut else 0


def _fleet(
    session: Session,
    settings: Settings,
    config: str | None,
    flags: Flags,
    sockets: Sequence[socket.socket],
) -> int:
    from fairlead.server import listening
    from fairlead.server.config import CONFIG
    from fairlead.server.fleet import Fleet

    url = listening.address(settings, sockets)
    # A URL may have a password in it, and every process's arguments are for all to see.
    os.environ["FAIRLEAD_URL"] = session.url
    os.environ[listening.VARIABLE] = ",".join(str(one.fileno()) for one in sockets)
    if config is not None:
        os.environ[CONFIG] = config
    told = {**flags.as_environment(), "FAIRLEAD_SERVE_LOG": "json" if session.log_error else "text"}
    os.environ.update(told)
    started: list[int] = []

    def command(number: int) -> list[str]:
        words = [sys.executable, "-m", "fairlead", "--schema", session.schema]
        words += ["--pooler"] if session.pooler else []
        # Declared queues are set when the server starts, not whenever a process is replaced.
        first = not started
        started.append(number)
        return [*words, "serve", *([] if first else ["--no-declare"])]

    def hello(_: dict[str, Any]) -> None:
        if len(started) == 1:
            _tell(session, settings, url)

    fleet = Fleet(command, settings.processes, sockets, grace=settings.grace, hello=hello)
    code = asyncio.run(fleet.run())
    if fleet.stopping:
        log.info("stopped")
    return code
