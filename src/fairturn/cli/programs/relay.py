"""``fairturn relay …``: hand due messages over to another broker."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.text import Text

from fairturn.cli import show
from fairturn.cli.arguments import Context, LogFormat, LogLevel, QueueName
from fairturn.cli.errors import CommandError, CommandFailed
from fairturn.cli.parsing import Duration
from fairturn.cli.programs import logs
from fairturn.cli.programs.relay_dynamodb import dynamodb
from fairturn.cli.session import Session
from fairturn.core.errors import QueueNotFound
from fairturn.core.values import moment
from fairturn.relay import addresses
from fairturn.relay.destination import DestinationError
from fairturn.relay.registration import relays
from fairturn.relay.route import TROUBLE
from fairturn.relay.runner import Relay

log = logging.getLogger("fairturn.relay")
relay = App(name="relay", help="Hand due messages over to SQS, RabbitMQ or another Fairturn.")
relay.command(dynamodb)


@Parameter(name="*")
@dataclass
class Options:
    """The options of a relay.

    Args:
        queue: Only this queue; repeat it for several (all with a destination).
        lease: How long messages stay with a relay that has died (30s).
        ahead: How long before the due time to hand over (SQS, Fairturn 15m; RabbitMQ 0).
        schedules: Also run schedules and maintenance (yes).
    """

    queue: Annotated[list[str] | None, Parameter(metavar="NAME")] = None
    lease: Duration = 30
    ahead: Duration | None = None
    schedules: Annotated[bool, Parameter(negative="--no-schedules")] = True
    log: LogFormat | None = None
    log_level: LogLevel = "info"


@relay.default
@relay.command
def run(*, options: Options | None = None, session: Context) -> int:
    """Hand over the due messages until SIGTERM or Ctrl-C.

    Any number of relays may run at the same time.

    Example: fairturn relay run --queue orders
    """
    options = options or Options()
    if options.lease < 1:
        raise CommandError("--lease must be at least 1s: a hand-over needs some time")
    logs.setup(session, logs.is_json(session, options.log), options.log_level)
    # The relay itself logs lost connections.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    logging.getLogger("botocore").setLevel(logging.WARNING)
    routed = _routed(session)
    missing = sorted(set(options.queue or ()) - set(routed))
    if missing:
        queue, *_ = missing
        session.queue(queue).settings()  # raises QueueNotFound
        how = session.command("relay", "set", queue, "ADDRESS")
        raise CommandError(f"queue {queue!r} has no destination", f"Give it one: {how}")
    if not routed:
        how = session.command("relay", "set", "QUEUE", "ADDRESS")
        log.warning("no queue has a destination yet. Set one, at any time: %s", how)
    asyncio.run(_until_signalled(session, options))
    return 0


async def _until_signalled(session: Session, options: Options) -> None:
    """Run a relay. The first signal stops it after the messages that are on their way; the second
    ends it immediately."""
    loop = asyncio.get_running_loop()
    db = session.connect_async()
    found = Relay(
        db,
        queues=options.queue,
        lease=options.lease,
        ahead=options.ahead,
        schedules=options.schedules,
    )
    stopping = False

    def on_signal() -> None:
        nonlocal stopping
        if stopping:
            os._exit(1)  # the leased messages are ready again when their leases end
        log.info("stopping after the messages on their way; a second signal ends immediately")
        stopping = True
        found.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        await found.run()
    finally:
        await db.close()
    done = found.totals()
    text = "stopped: %d handed over, %d turned away for later, %d dead"
    log.info(text, done.handed, done.later, done.dead)


# --- destinations ---------------------------------------------------------------------------------
@relay.command(name="set")
def set_(queue: QueueName, destination: str, /, *, session: Context) -> None:
    """Set the destination of a queue; a queue that does not exist is created.

    Example: fairturn relay set orders sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/orders

    Args:
        destination: sqs:https://…, amqp://…, or the URL of a database with #queue at its end.
            ${NAME} is a variable in the environment of the relay.
    """
    session.creates = True
    try:
        addresses.check(destination)
        addresses.check_other(destination, queue, session.db.target.shown)
    except DestinationError as error:
        raise CommandError(str(error)) from None
    target = session.queue(queue)
    # A broker may be down for a week: no message must become dead because of that.
    made = target.create(max_attempts=0, meta={"destination": destination})
    if not made:
        settings = target.settings()
        target.set(meta={**settings.meta, "destination": destination})
        target.remember(TROUBLE, None, keep=1)  # it was about the old destination
        if settings.max_attempts:
            more = session.command("queue", "set", queue, "--max-attempts", 0)
            session.note(
                f"a message is dead if {settings.max_attempts} relays die while they hand it over. "
                f"To retry for ever: {more}"
            )
    shown = addresses.shown(destination)
    run = session.command("relay")
    text = f"queue {queue!r}{' was made, and' if made else ''} goes to {shown}. Relay it: {run}"
    session.done(text, queue=queue, destination=shown, made=made)


@relay.command
def unset(queue: QueueName, /, *, session: Context) -> None:
    """Remove the destination of a queue: its messages stay here.

    Example: fairturn relay unset orders
    """
    target = session.queue(queue)
    meta = dict(target.settings().meta)
    if meta.pop("destination", None) is None:
        raise CommandFailed(f"queue {queue!r} has no destination")
    target.set(meta=meta)
    session.done(f"queue {queue!r} keeps its messages", queue=queue)


def _routed(session: Session) -> dict[str, str]:
    """Return the destinations of all queues that have one."""
    found: dict[str, str] = {}
    for name in session.db.queues():
        try:
            where = addresses.address_of(session.queue(name).settings().meta)
        except QueueNotFound:
            continue  # it was dropped meanwhile
        if where is not None:
            found[name] = where
    return found


@relay.command
def status(*, session: Context) -> None:
    """Print the running relays, and the counts and troubles of each destination.

    Example: fairturn relay status --json
    """
    rows = [_facts(session, name, where) for name, where in _routed(session).items()]
    running = relays(session.db.permits())
    if session.json:
        session.emit({"relays": running, "queues": rows})
        return
    if not rows:
        how = session.command("relay", "set", "QUEUE", "ADDRESS")
        session.note(f"no queue has a destination yet. Set one: {how}")
        return
    session.table(
        ["queue", "destination", ">ready", ">later", ">on its way", ">dead", "oldest", "trouble"],
        [
            [
                row["queue"],
                row["destination"],
                row["ready"],
                row["later"],
                row["on_its_way"],
                show.count(row["dead"], "dead"),
                show.span(row["oldest_seconds"]),
                Text(_trouble(row), style="red"),
            ]
            for row in rows
        ],
    )
    if running:
        session.note(f"{show.many(len(running), 'relay')} running: {', '.join(running)}")
    else:
        session.note(f"no relay is running. Start one: {session.command('relay')}")


def _trouble(row: dict[str, Any]) -> str:
    return f"for {show.span(row['trouble_seconds'])}: {row['trouble']}" if row["trouble"] else ""


def _facts(session: Session, name: str, where: str) -> dict[str, Any]:
    queue = session.queue(name)
    stats = queue.stats()
    trouble = queue.recall(TROUBLE)
    oldest = stats.oldest_ready
    now = session.now()
    age = None if oldest is None else max(0.0, (now - oldest).total_seconds())
    since = None if not trouble else max(0.0, (now - moment(trouble["since"])).total_seconds())
    return {
        "queue": name,
        "destination": addresses.shown(where),
        "ready": stats.ready,
        "later": stats.scheduled,
        "on_its_way": stats.leased,
        "dead": stats.dead,
        "oldest_seconds": age,
        "trouble": trouble["reason"] if trouble else None,
        "trouble_seconds": since,
    }
