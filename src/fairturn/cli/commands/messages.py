"""``fairturn dead …``, ``cancel`` and ``reschedule``: messages that no worker holds."""

from __future__ import annotations

from cyclopts import App

from fairturn.cli import show
from fairturn.cli.arguments import (
    After,
    At,
    Context,
    DeadLimit,
    Delay,
    IdOrKey,
    Key,
    Number,
    QueueName,
    Yes,
)
from fairturn.cli.commands.insight import list_messages
from fairturn.cli.errors import CommandFailed
from fairturn.cli.parsing import Duration

dead = App(name="dead", help="List dead messages, give them new attempts, or delete them.")


@dead.command(name="list")
def list_(queue: QueueName, /, *, n: Number = 20, after: After = 0, session: Context) -> None:
    """List dead messages with their last error.

    Example: fairturn dead list emails -n 50
    """
    found = session.queue(queue).peek(n, state="dead", after=after)
    list_messages(session, found, n, dead=True)


@dead.command
def redrive(
    queue: QueueName,
    /,
    *,
    limit: DeadLimit = None,
    to: str | None = None,
    delay: Duration = 0,
    session: Context,
) -> None:
    """Give dead messages fresh attempts, oldest first.

    Example: fairturn dead redrive emails --limit 100

    Args:
        to: Move them to this queue. Default they stay in their queue.
        delay: They are due this long after now. Default now.
    """
    number = session.queue(queue).redrive(limit=limit, to=to, delay=delay)
    session.done(
        f"{show.many(number, 'message')} redriven{f' to queue {to!r}' if to else ''}",
        queue=queue,
        redriven=number,
    )


@dead.command
def drop(
    queue: QueueName, /, *, limit: DeadLimit = None, yes: Yes = False, session: Context
) -> None:
    """Delete dead messages, oldest first.

    Example: fairturn dead drop emails --limit 100 --yes
    """
    target = session.queue(queue)
    number = target.stats().dead
    number = number if limit is None else min(number, limit)
    if number:
        session.confirm(f"deleting {show.many(number, 'dead message')} of queue {queue!r}", yes)
    if number or yes:  # unconfirmed, a message that died after the count must stay
        number = target.discard(state="dead", limit=limit)
    session.done(f"{show.many(number, 'dead message')} deleted", queue=queue, dropped=number)


def cancel(
    queue: QueueName,
    id: IdOrKey = None,
    /,
    *,
    key: Key = None,
    force: bool = False,
    session: Context,
) -> None:
    """Remove a waiting message.

    Example: fairturn cancel emails --key welcome:7

    Args:
        force: Remove it in any state. If a worker holds it, that lease is lost.
    """
    if not session.queue(queue).cancel(id=id, key=key, force=force):
        raise CommandFailed(f"no such message is waiting in queue {queue!r}")
    session.done("cancelled", queue=queue, id=id, key=key, cancelled=True)


def reschedule(
    queue: QueueName,
    id: IdOrKey = None,
    /,
    *,
    key: Key = None,
    at: At = None,
    delay: Delay = None,
    priority: int | None = None,
    session: Context,
) -> None:
    """Change the due time or the priority of a waiting message.

    Example: fairturn reschedule emails 42 --delay 0 --priority 9

    Args:
        priority: Its new priority.
    """
    changed = session.queue(queue).reschedule(id=id, key=key, at=at, delay=delay, priority=priority)
    if not changed:
        raise CommandFailed(f"no such message is waiting in queue {queue!r}")
    session.done("rescheduled", queue=queue, id=id, key=key, rescheduled=True)
