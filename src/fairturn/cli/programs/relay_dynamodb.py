"""``fairturn relay dynamodb …``: hand the jobs in shoryuken-waiter's tables over to SQS."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from fairturn.cli import show
from fairturn.cli.arguments import Context, LogFormat, LogLevel
from fairturn.cli.parsing import Duration
from fairturn.cli.programs import logs
from fairturn.relay.sqs.clients import ATTEMPTS, CONNECT_SECONDS, READ_SECONDS

if TYPE_CHECKING:
    from fairturn.relay.dynamodb import DynamoStore

logger = logging.getLogger("fairturn.relay")
dynamodb = App(name="dynamodb", help="Hand jobs with long delays over from DynamoDB to SQS.")

_CONNECTIONS = 50
Queues = Annotated[
    str, Parameter(help="The queues with tables. Default all tables with the layout.")
]


@Parameter(name="*")
@dataclass
class Where:
    """The DynamoDB and the SQS. boto3 finds the credentials.

    Args:
        region: The region of AWS ($AWS_REGION).
        endpoint_url: The URL of a DynamoDB other than AWS's.
        sqs_endpoint_url: The URL of an SQS other than AWS's.
    """

    region: str | None = None
    endpoint_url: Annotated[str | None, Parameter(metavar="URL")] = None
    sqs_endpoint_url: Annotated[str | None, Parameter(metavar="URL")] = None


@dynamodb.command(name="create-table")
def create_table(queue: str, /, *, where: Where | None = None, session: Context) -> None:
    """Create the table of a queue, with the layout of shoryuken-waiter.

    Example: fairturn relay dynamodb create-table orders

    Args:
        queue: The name of the SQS queue, which is also the name of its table.
    """
    with _store(where) as store:
        created = store.create_table(queue)
    done = "created" if created else "is there already, with the right layout"
    session.done(f"table {queue!r} {done}", queue=queue, created=created)


@dynamodb.command
def status(*queues: Queues, where: Where | None = None, session: Context) -> None:
    """Print how many jobs wait in the tables.

    It reads the tables, and DynamoDB charges for that.

    Example: fairturn relay dynamodb status orders
    """
    with _store(where) as store:
        for queue in queues:
            store.check_table(queue)
        found = {queue: store.summary(queue) for queue in queues or store.tables()}
    now = datetime.now(UTC)
    session.listing(
        list(found),
        lambda queue: {"queue": queue, **show.facts(found[queue])},
        {
            "queue": lambda queue: queue,
            ">waiting": lambda queue: found[queue].waiting,
            ">within 15 min": lambda queue: found[queue].soon,
            ">overdue": lambda queue: found[queue].overdue,
            "first due": lambda queue: show.from_now(found[queue].oldest, now),
        },
        empty="no table here has the layout of shoryuken-waiter. Create one: fairturn relay "
        "dynamodb create-table QUEUE; or check the region",
    )


@dynamodb.command
def run(
    *queues: Queues,
    every: Duration = 300,
    log: LogFormat | None = None,
    log_level: LogLevel = "info",
    where: Where | None = None,
    session: Context,
) -> None:
    """Hand the jobs that are due within 15 minutes over to SQS, again and again, until a signal.

    Any number of these may run at the same time. SQS waits for the rest of each delay.

    Example: fairturn relay dynamodb run orders --every 1m

    Args:
        every: The time between two polls, at most 14 minutes. Default 5m.
    """
    stop = threading.Event()
    logs.setup(session, logs.is_json(session, log), log_level)
    with _store(where) as store, _signals(stop):
        from fairturn.relay.dynamodb.run import check_period  # needs boto3

        check_period(every)
        named = ", ".join(queues) or "all tables with the layout of shoryuken-waiter"
        logger.info("%s: every %s; Ctrl-C finishes the current batch", named, show.span(every))
        store.run(queues, every, stop)
    logger.info("stopped")


@contextmanager
def _store(where: Where | None) -> Generator[DynamoStore]:
    where = where or Where()
    try:
        from boto3.session import Session as Boto  # pyright: ignore[reportMissingTypeStubs]
        from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("boto3", "botocore"):
            raise
        raise ModuleNotFoundError(
            "DynamoDB needs boto3, which is not installed: pip install boto3", name=error.name
        ) from error
    from fairturn.relay.destination import DestinationError
    from fairturn.relay.dynamodb import DynamoStore, errors
    from fairturn.relay.sqs.errors import explained

    config: Any = Config(  # a call must end before its claim does
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        max_pool_connections=_CONNECTIONS,
    )
    session: Any = Boto(region_name=where.region)
    endpoints = {"dynamodb": where.endpoint_url, "sqs": where.sqs_endpoint_url}
    clients: list[Any] = []
    try:
        for name, url in endpoints.items():
            clients.append(session.client(name, endpoint_url=url, config=config))
        yield DynamoStore(*clients)
    except (*errors.ERRORS, ValueError) as error:
        if isinstance(error, ValueError) and clients:
            raise  # the error is not about the URL of an endpoint
        raise DestinationError(explained(error, "AWS")) from error
    finally:
        for client in clients:
            client.close()


@contextmanager
def _signals(stop: threading.Event) -> Generator[None]:
    """Let the first signal end it after the current batch, and the second one immediately."""

    def heard(number: int, _: Any) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()

    before = {number: signal.signal(number, heard) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
