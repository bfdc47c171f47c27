"""``fairlead relay …``: messages wait here until they are due, and go on to another broker."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.text import Text

from fairlead.aio.database import connect_async
from fairlead.cli import show
from fairlead.cli.insight import now_of
from fairlead.cli.parsing import Duration
from fairlead.cli.relay_dynamodb import dynamodb
from fairlead.cli.session import Context, Failed, Refused, Session
from fairlead.cli.status import setup_logs
from fairlead.errors import QueueNotFound
from fairlead.relay import addresses
from fairlead.relay.destination import DestinationError
from fairlead.relay.presence import relays
from fairlead.relay.route import TROUBLE
from fairlead.relay.running import Relay
from fairlead.values import moment

log = logging.getLogger("fairlead.relay")
relay = App(name="relay", help="Hand due messages over to SQS, RabbitMQ or another Fairlead.")
relay.command(dynamodb)


@Parameter(name="*")
@dataclass
class Options:
    """How to relay."""

    queue: Annotated[
        list[str] | None,
        Parameter(metavar="NAME", help="Only this queue; repeat. Default: all with an address."),
    ] = None
    lease: Annotated[
        Duration, Parameter(help="If we die, others have our messages after that (30s).")
    ] = 30
    ahead: Annotated[
        Duration | None,
        Parameter(help="Hand over at most so early (SQS, Fairlead: 15m, RabbitMQ: 0)."),
    ] = None
    schedules: Annotated[
        bool, Parameter(negative="--no-schedules", help="Also send what schedules have due (yes).")
    ] = True
    log: Annotated[
        Literal["text", "json"] | None,
        Parameter(metavar="text|json", show_choices=False, help="Default: JSON when piped."),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Parameter(metavar="LEVEL", show_choices=False, help="debug, info (usual), warning, error."),
    ] = "info"


@relay.default
@relay.command
def run(*, options: Options | None = None, session: Context) -> int:
    """Hand over what is due, until SIGTERM or Ctrl-C. Any number may run at once.

    Example: fairlead relay run --queue orders
    """
    options = options or Options()
    if options.lease < 1:
        raise Refused("--lease must be at least 1s: a hand-over takes its time")
    json = options.log == "json" if options.log else session.json or not session.err.is_terminal
    setup_logs(session, json, options.log_level)
    # Of a lost connection we say enough ourselves.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    logging.getLogger("botocore").setLevel(logging.WARNING)
    routed = _routed(session)
    missing = sorted(set(options.queue or ()) - set(routed))
    if missing:
        session.queue(missing[0]).settings()  # is there such a queue?
        how = session.command("relay", "set", missing[0], "ADDRESS")
        raise Refused(f"queue {missing[0]!r} has no destination. Give it one: {how}")
    if not routed:
        how = session.command("relay", "set", "QUEUE", "ADDRESS")
        log.warning("no queue has a destination yet. Give one its own, at any time: %s", how)
    asyncio.run(_until_signalled(session, options))
    return 0


async def _until_signalled(session: Session, options: Options) -> None:
    """The first signal lets what is on its way arrive; the second leaves at once."""
    loop = asyncio.get_running_loop()
    db = connect_async(session.url, schema=session.schema, prepare=not session.pooler)
    found = Relay(
        db,
        queues=options.queue,
        lease=options.lease,
        ahead=options.ahead,
        schedules=options.schedules,
    )
    signals: list[int] = []

    def told() -> None:
        signals.append(1)
        if len(signals) > 1:
            os._exit(1)  # what we hold comes back when its leases end
        log.info("stopping: what is on its way arrives first; a second signal leaves at once")
        found.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    try:
        await found.run()
    finally:
        await db.close()
    done = found.totals()
    text = "stopped: %d handed over, %d turned away for later, %d dead"
    log.info(text, done.handed, done.later, done.dead)


# --- where they go --------------------------------------------------------------------------------
@relay.command(name="set")
def set_(queue: str, destination: str, /, *, session: Context) -> None:
    """Give a queue its destination; the queue is made if there is none.

    Example: fairlead relay set orders sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/orders

    Args:
        queue: The queue whose messages go there.
        destination: sqs:https://…, amqp://…, or a database's URL with #queue at its end. ${NAME}
            is taken from the environment of the relay.
    """
    session.creates = True
    try:
        addresses.check(destination)
        addresses.check_other(destination, queue, session.db.target.shown)
    except DestinationError as error:
        raise Refused(str(error)) from None
    target = session.queue(queue)
    # A broker may be away for a week: no message is given up for that.
    made = target.create(max_attempts=0, meta={"destination": destination})
    if not made:
        settings = target.settings()
        target.set(meta={**settings.meta, "destination": destination})
        target.remember(TROUBLE, None, keep=1)  # that was another destination's
        if settings.max_attempts:
            more = session.command("queue", "set", queue, "--max-attempts", 0)
            session.note(
                f"a message that {settings.max_attempts} relays died with in the middle of its "
                f"hand-over is dead. So that none ever is: {more}"
            )
    shown = addresses.shown(destination)
    run = session.command("relay")
    text = f"queue {queue!r}{' was made, and' if made else ''} goes to {shown}. Relay it: {run}"
    session.done(text, queue=queue, destination=shown, made=made)


@relay.command
def unset(queue: str, /, *, session: Context) -> None:
    """Keep a queue's messages here again.

    Example: fairlead relay unset orders
    """
    target = session.queue(queue)
    meta = dict(target.settings().meta)
    if meta.pop("destination", None) is None:
        raise Failed(f"queue {queue!r} has no destination")
    target.set(meta=meta)
    session.done(f"queue {queue!r} keeps its messages", queue=queue)


def _routed(session: Session) -> dict[str, str]:
    """Queues with a destination."""
    found: dict[str, str] = {}
    for name in session.db.queues():
        try:
            where = addresses.address_of(session.queue(name).settings().meta)
        except QueueNotFound:
            continue  # dropped meanwhile
        if where is not None:
            found[name] = where
    return found


@relay.command
def status(*, session: Context) -> None:
    """Which relays run, what waits for which destination, and which of them are down.

    Example: fairlead relay status --json
    """
    rows = [_facts(session, name, where) for name, where in _routed(session).items()]
    running = relays(session.db.permits())
    if session.json:
        session.emit({"relays": running, "queues": rows})
        return
    if not rows:
        how = session.command("relay", "set", "QUEUE", "ADDRESS")
        session.note(f"no queue has a destination yet. Give one its own: {how}")
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
                "" if row["oldest_seconds"] is None else show.span(row["oldest_seconds"]),
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
    now = now_of(session)
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
