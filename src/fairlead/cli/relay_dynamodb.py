"""``fairlead relay dynamodb …``: the tables of shoryuken-waiter, drained safely."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from fairlead.cli import show
from fairlead.cli.parsing import Duration
from fairlead.cli.session import Context
from fairlead.cli.status import setup_logs
from fairlead.relay import sqs_client

if TYPE_CHECKING:
    from fairlead.relay.dynamodb import DynamoStore

logger = logging.getLogger("fairlead.relay")
dynamodb = App(
    name="dynamodb", help="Delays beyond 15 minutes without a database: DynamoDB to SQS."
)

_CONNECTIONS = 50


@Parameter(name="*")
@dataclass
class Where:
    """Which DynamoDB and which SQS. Credentials are found as boto3 finds them."""

    region: Annotated[str | None, Parameter(help="Of AWS ($AWS_REGION).")] = None
    endpoint_url: Annotated[
        str | None, Parameter(metavar="URL", help="Of a DynamoDB that is not AWS's.")
    ] = None
    sqs_endpoint_url: Annotated[
        str | None, Parameter(metavar="URL", help="Of an SQS that is not AWS's.")
    ] = None


@dynamodb.command(name="create-table")
def create_table(queue: str, /, *, where: Where | None = None, session: Context) -> None:
    """Create the table for a queue, with shoryuken-waiter's layout.

    Example: fairlead relay dynamodb create-table orders

    Args:
        queue: The queue of SQS: its table has the same name.
    """
    with _store(where) as store:
        created = store.create_table(queue)
    done = "created" if created else "is there already, with the right layout"
    session.done(f"table {queue!r} {done}", queue=queue, created=created)


@dynamodb.command
def status(*queues: str, where: Where | None = None, session: Context) -> None:
    """What waits in the tables. It reads them, which DynamoDB charges for.

    Example: fairlead relay dynamodb status orders

    Args:
        queues: Their tables; none named: all that have the layout.
    """
    with _store(where) as store:
        for queue in queues:
            store.check_table(queue)
        found = {queue: store.summary(queue) for queue in queues or store.tables()}
    if session.json:
        session.emit(
            [
                {"queue": queue, **asdict(one), "oldest": show.iso(one.oldest)}
                for queue, one in found.items()
            ]
        )
        return
    if not found:
        session.note(
            "no table here has the layout of shoryuken-waiter. Create one: fairlead relay dynamodb "
            "create-table QUEUE; or look at the region"
        )
        return
    now = datetime.now(UTC)
    rows: list[list[Any]] = [
        [queue, one.waiting, one.soon, one.overdue, show.from_now(one.oldest, now)]
        for queue, one in found.items()
    ]
    session.table(["queue", ">waiting", ">within 15 min", ">overdue", "first due"], rows)


@dynamodb.command
def run(
    *queues: str,
    every: Duration = 300,
    log: Annotated[
        Literal["text", "json"] | None,
        Parameter(metavar="text|json", show_choices=False, help="Default: JSON when piped."),
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Parameter(metavar="LEVEL", show_choices=False, help="debug, info (usual), warning, error."),
    ] = "info",
    where: Where | None = None,
    session: Context,
) -> None:
    """Hand over what is due within 15 minutes to SQS, time and again, until a signal.

    Any number of these may run. SQS waits for the rest of each delay.

    Example: fairlead relay dynamodb run orders --every 1m

    Args:
        queues: Their tables; none named: all that have the layout.
        every: Between two polls, at most 14 minutes (300).
    """
    stop = threading.Event()
    json = log == "json" if log else session.json or not session.err.is_terminal
    setup_logs(session, json, log_level)
    with _store(where) as store, _signals(stop):
        from fairlead.relay.dynamo_run import check_period  # which needs boto3

        check_period(every)
        named = ", ".join(queues) or "all tables with the layout of shoryuken-waiter"
        logger.info("%s: every %s; Ctrl-C finishes the batch in hand", named, show.span(every))
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
            "DynamoDB needs boto3: install Fairlead with its extra sqs", name=error.name
        ) from error
    from fairlead.relay import dynamo_errors
    from fairlead.relay.destination import DestinationError
    from fairlead.relay.dynamodb import DynamoStore

    config: Any = Config(  # a call ends before the claims do under which it is made
        connect_timeout=sqs_client.CONNECT_SECONDS,
        read_timeout=sqs_client.READ_SECONDS,
        retries={"total_max_attempts": sqs_client.ATTEMPTS, "mode": "standard"},
        max_pool_connections=_CONNECTIONS,
    )
    session: Any = Boto(region_name=where.region)
    endpoints = {"dynamodb": where.endpoint_url, "sqs": where.sqs_endpoint_url}
    clients: list[Any] = []
    try:
        for name, url in endpoints.items():
            clients.append(session.client(name, endpoint_url=url, config=config))
        yield DynamoStore(*clients)
    except (*dynamo_errors.ERRORS, ValueError) as error:
        if isinstance(error, ValueError) and clients:
            raise  # not about an endpoint's URL
        raise DestinationError(dynamo_errors.explained(error, "AWS")) from error
    finally:
        for client in clients:
            client.close()


@contextmanager
def _signals(stop: threading.Event) -> Generator[None]:
    """SIGTERM and Ctrl-C end it after the batch in hand; a second one at once."""

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
