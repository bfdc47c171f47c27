"""``fairturn serve``: the SQS door, in one process or in several."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from fairturn.cli.arguments import Context, LogFormat, LogLevel
from fairturn.cli.parsing import Duration
from fairturn.cli.programs import logs
from fairturn.cli.session import Session
from fairturn.core.errors import FairturnError, InvalidArgument
from fairturn.supervision.link import Link

if TYPE_CHECKING:
    from fairturn.server.config import Settings

log = logging.getLogger("fairturn.server")
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
    """The options of the server; None means that it was not given. Each is also a name in [server]
    of the file, and a variable FAIRTURN_SERVE_NAME.

    Args:
        listen: The address to listen on (127.0.0.1).
        port: The port to listen on (9324).
        processes: The number of server processes (1).
        extended: Allow years of delay, priorities and more.
        account: Account of unsigned requests (000000000000).
        region: Region of unsigned requests (us-east-1).
        recreate_pause: How long a deleted name is refused (0).
        url: The URL that clients use, behind a proxy.
        tls_cert: Serve HTTPS with this certificate.
        tls_key: The private key of the certificate.
        metrics_open: Show /metrics to other machines, too.
        access_log: Log a line for each request (yes).
        grace: Time for requests after a signal (20s).
        connections: The most connections per process (10000).
        header_bytes: The largest headers (65536).
        body_bytes: The largest body of a request (4194304).
        header_seconds: Time for the headers to arrive (10s).
        body_seconds: Time for the body, and the answer (30s).
        keep_alive: How long a connection may be idle (75s).
    """

    listen: str | None = None
    port: int | None = None
    processes: int | None = None
    extended: bool | None = None
    account: str | None = None
    region: str | None = None
    recreate_pause: Duration | None = None
    url: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    metrics_open: bool | None = None
    access_log: Annotated[bool | None, Parameter(negative="--no-access-log")] = None
    log: LogFormat | None = None
    log_level: LogLevel | None = None
    grace: Duration | None = None
    connections: int | None = None
    header_bytes: int | None = None
    body_bytes: int | None = None
    header_seconds: Duration | None = None
    body_seconds: Duration | None = None
    keep_alive: Duration | None = None

    def given(self) -> dict[str, Any]:
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    def as_environment(self) -> dict[str, str]:
        """Return the options as variables for the processes: every user can read a command line."""
        return {f"FAIRTURN_SERVE_{name.upper()}": str(v) for name, v in self.given().items()}


def serve(
    *,
    config: Annotated[str | None, Parameter(metavar="FILE")] = None,
    flags: Flags | None = None,
    declare: Annotated[bool, Parameter(negative="--no-declare", show=False)] = True,
    session: Context,
) -> int:
    """Serve the queues of this database as an SQS server for any AWS SDK.

    Without access keys ([keys.ID] of the file) only this machine is served.

    Example: fairturn serve --config fairturn.toml --processes 2

    Args:
        config: TOML: [server], [keys.ID], [queues.NAME].
    """
    settings = _settings(config, flags or Flags(), session)
    if session.url == "sqlite://" and settings.processes > 1:
        raise InvalidArgument(
            "sqlite:// is in the memory of one process: use a file (sqlite:///fairturn.db), or "
            "one process"
        )
    from fairturn.server import listen_sockets

    link = Link.from_environment()
    session.creates = True
    if link is not None:
        return _serve(session, settings, listen_sockets.inherited() or [], link, declare)
    sockets = listen_sockets.listeners(settings)
    try:
        if settings.processes > 1:
            return _fleet(session, settings, config, flags or Flags(), sockets)
        return _serve(session, settings, sockets)
    finally:
        listen_sockets.close(sockets)


def _settings(config: str | None, flags: Flags, session: Session) -> Settings:
    try:
        import_module("fairturn.server.http.protocol")  # needs the packages of the extra
        from fairturn.server.config import load
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in NEEDS:
            raise
        raise ModuleNotFoundError(
            f"the server needs {error.name}, which is not installed. Install it: "
            f"pip install {' '.join(NEEDS)}, or in a clone of Fairturn: "
            "pip install '.[cli,server]'",
            name=error.name,
        ) from None
    settings = load(config, os.environ, flags.given())
    json = logs.is_json(session, settings.log)
    if json:
        logs.log_errors(session, log, settings.log_level)
    logs.setup(session, json, settings.log_level)
    return settings


def _tell(session: Session, settings: Settings, url: str) -> None:
    """Print the address, and how to try it."""
    log.info("serving SQS on %s, database %s", url, session.shown)
    if settings.listen in ("0.0.0.0", "::"):
        how = "with TLS" if settings.tls_cert else "without TLS"
        log.info("listening on all addresses of this machine, %s", how)
    if not len(settings.keys):
        log.warning(
            "no access keys are configured: signatures are not verified, and only this machine is "
            "served"
        )
    if session.log_error is not None:  # the log is JSON
        return
    session.say(f"SQS on {url}  (database {session.shown})", style="bold")
    if not len(settings.keys):
        session.say("Try it:\n")
        session.say(SNIPPET.format(url=url, region=settings.region))
    session.say("Ctrl-C finishes the open requests and ends; a second one ends immediately")
    session.say(f"See the queues: {session.command('queue', 'list')}")
    session.out.file.flush()


def _serve(
    session: Session,
    settings: Settings,
    sockets: Sequence[socket.socket],
    link: Link | None = None,
    declare: bool = True,
) -> int:
    """Serve in this process until a signal, or until the supervisor stops it."""
    from fairturn.server import listen_sockets
    from fairturn.server.process import Serving, new_loop
    from fairturn.server.sqs.service import Sqs

    async def work() -> Serving:
        serving = Serving(settings, session.connect_async(), sockets, Sqs, declare=declare)
        try:
            try:
                await serving.prepare()
            except FairturnError:
                if link is not None:
                    link.tell(hopeless=True)  # a new process would fail in the same way
                raise
            if link is None:
                _tell(session, settings, listen_sockets.address(settings, sockets))
                await serving.run_until_signalled()
            else:
                link.tell(hello={})
                await link.run(serving, serving.heard)
        finally:
            if not serving.aborted:
                await serving.close()
        return serving

    with asyncio.Runner(loop_factory=new_loop) as runner:
        serving = runner.run(work())
        if serving.aborted:  # end now, even if a thread still waits for something
            logging.shutdown()
            sys.stdout.flush()
            os._exit(1)
    if link is None:
        log.info("stopped")
    return 1 if serving.cut else 0


# --- in several processes -------------------------------------------------------------------------
def _fleet(
    session: Session,
    settings: Settings,
    config: str | None,
    flags: Flags,
    sockets: Sequence[socket.socket],
) -> int:
    from fairturn.server import listen_sockets
    from fairturn.server.config import CONFIG
    from fairturn.server.fleet import Fleet

    url = listen_sockets.address(settings, sockets)
    # A URL may contain a password, and every user can read the arguments of a process.
    os.environ["FAIRTURN_URL"] = session.url
    os.environ[listen_sockets.VARIABLE] = ",".join(str(one.fileno()) for one in sockets)
    if config is not None:
        os.environ[CONFIG] = config
    os.environ.update(flags.as_environment())
    os.environ["FAIRTURN_SERVE_LOG"] = "json" if session.log_error else "text"
    started: list[int] = []

    def command(number: int) -> list[str]:
        words = [sys.executable, "-m", "fairturn", "--schema", session.schema]
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
