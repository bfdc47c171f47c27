"""``fairlead dead …``, ``cancel`` and ``reschedule``: messages that no worker holds."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from fairlead.cli import show
from fairlead.cli.insight import Count, messages_table
from fairlead.cli.parsing import Duration, Time
from fairlead.cli.queues import Yes
from fairlead.cli.session import Context, Failed

dead = App(name="dead", help="Dead messages: list them, give them a new life, or drop them.")


@dead.command(name="list")
def list_(queue: str, /, *, n: Count = 20, after: int = 0, session: Context) -> None:
    """Dead messages with their last error.

    Example: fairlead dead list emails -n 50

    Args:
        queue: The queue.
        n: At most this many.
        after: The last id of the page before.
    """
    found = session.queue(queue).peek(n, state="dead", after=after)
    if session.json:
        session.emit([show.message_facts(message, stored=True) for message in found])
    elif found:
        messages_table(session, found, dead=True)
        if len(found) == n:
            session.note(f"more with --after {found[-1].id}")
    else:
        session.note("no dead messages")


@dead.command
def redrive(
    queue: str,
    /,
    *,
    limit: int | None = None,
    to: str | None = None,
    delay: Duration = 0,
    session: Context,
) -> None:
    """Give dead messages a new life with fresh attempts, oldest first.

    Example: fairlead dead redrive emails --limit 100

    Args:
        queue: The queue.
        limit: At most this many; all otherwise.
        to: Move them to this queue.
        delay: Run them this much later.
    """
    number = session.queue(queue).redrive(limit=limit, to=to, delay=delay)
    session.done(
        f"{show.many(number, 'message')} redriven{f' to queue {to!r}' if to else ''}",
        queue=queue,
        redriven=number,
    )


@dead.command
def drop(queue: str, /, *, limit: int | None = None, yes: Yes = False, session: Context) -> None:
    """Delete dead messages, oldest first.

    Example: fairlead dead drop emails --limit 100 --yes

    Args:
        queue: The queue.
        limit: At most this many; all otherwise.
    """
    target = session.queue(queue)
    number = target.stats().dead
    number = number if limit is None else min(number, limit)
    if number:
        session.confirm(f"deleting {show.many(number, 'dead message')} of queue {queue!r}", yes)
    if number or yes:  # without a yes, not even what died since the count
        number = target.discard(state="dead", limit=limit)
    session.done(f"{show.many(number, 'dead message')} deleted", queue=queue, dropped=number)


Id = Annotated[int | None, Parameter(help="The message's id, or give --key.")]


def cancel(
    queue: str,
    id: Id = None,
    /,
    *,
    key: str | None = None,
    force: bool = False,
    session: Context,
) -> None:
    """Remove a waiting message.

    Example: fairlead cancel emails --key welcome:7

    Args:
        queue: The queue.
        key: The message's key.
        force: In any state, even under a worker, whose lease is then lost.
    """
    if not session.queue(queue).cancel(id=id, key=key, force=force):
        raise Failed(f"no such message is waiting in queue {queue!r}")
    session.done("cancelled", queue=queue, id=id, key=key, cancelled=True)


def reschedule(
    queue: str,
    id: Id = None,
    /,
    *,
    key: str | None = None,
    at: Time | None = None,
    delay: Duration | None = None,
    priority: int | None = None,
    session: Context,
) -> None:
    """Change when, or how urgently, a waiting message runs.

    Example: fairlead reschedule emails 42 --delay 0 --priority 9

    Args:
        queue: The queue.
        key: The message's key.
        at: Run it then.
        delay: Run it this much later than now.
        priority: Its new priority.
    """
    changed = session.queue(queue).reschedule(id=id, key=key, at=at, delay=delay, priority=priority)
    if not changed:
        raise Failed(f"no such message is waiting in queue {queue!r}")
    session.done("rescheduled", queue=queue, id=id, key=key, rescheduled=True)
