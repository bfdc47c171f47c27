"""``fairturn receive`` and ``fairturn lease …``: work on messages from the command line.

A lease is the pair (message id, token). Whoever has both may finish the delivery; an old pair
changes nothing and says that the lease is lost.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.text import Text

from fairturn import internal
from fairturn.cli import parsing, show
from fairturn.cli.arguments import At, Context, Delay, Id, Number, QueueName, Reference, Token
from fairturn.cli.errors import CommandError
from fairturn.cli.parsing import Duration, Fraction
from fairturn.cli.session import Session, clean
from fairturn.operations.receives import KEEP
from fairturn.sync.leased import LeasedMessage

lease = App(name="lease", help="Finish, extend or give back a delivery that receive printed.")


def receive(
    queue: QueueName,
    /,
    *,
    n: Number = 1,
    lease: Duration | None = None,
    wait: Duration = 0,
    ack: bool = False,
    version: int | None = None,
    types: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    min_priority: int | None = None,
    session: Context,
) -> None:
    """Lease messages and print them.

    Example: fairturn receive emails -n 10 --wait 20s --ack --json

    Args:
        lease: How long the leases last. Default as the queue says.
        wait: Wait up to this long for the first message.
        ack: Ack the messages once they are printed.
        version: Only messages of this version.
        types: Only messages of these types.
        min_priority: Only messages of this priority and higher.
    """
    target = session.queue(queue)
    messages = target.receive(
        n, lease=lease, wait=wait, version=version, types=types, min_priority=min_priority
    )
    for message in messages:
        if session.json:
            session.emit_line(show.message_facts(message))
        else:
            _print_message(session, message)
    sys.stdout.flush()  # before the ack: if the reader of the pipe has ended, no message is lost
    if ack and messages:
        lost = target.ack(messages).lost
        for message in lost:
            session.note(f"message {message.id} was printed, but its lease had already expired")
    if session.json:
        return
    if not messages:
        retry = messages.retry_after
        later = "" if retry is None else f"; something may be ready in {show.span(retry)}"
        session.note(f"nothing to receive{later}")
    elif not ack:
        first = messages[0]
        until = show.clock(min(m.lease_until for m in messages if m.lease_until is not None))
        session.note(
            f"leased until {until}. When the work is done: "
            f"{session.command('lease', 'ack', queue, first.id, first.token)}"
        )


def _print_message(session: Session, message: LeasedMessage) -> None:
    names = ("channel", "key", "type", "group", "priority", "version")
    values = ((name, getattr(message, name)) for name in names)
    parts = [f"{name} {value}" for name, value in values if value]
    if message.attempts > 1 or message.recovered:
        parts.append(f"attempt {message.attempts}{', recovered' if message.recovered else ''}")
    line = Text.assemble(
        ("message ", "dim"), (str(message.id), "bold"),
        (" token ", "dim"), (str(message.token), "bold"),
    )  # fmt: skip
    if parts:
        line.append(clean("  " + ", ".join(parts)), style="dim")
    session.say(line)
    session.say(show.full(message.body))
    if message.headers:
        session.say(f"headers: {show.full(message.headers)}", style="dim")
    if message.memo is not None:
        session.say(f"memo: {show.full(message.memo)}", style="dim")


# --- the verbs ----------------------------------------------------------------------------------
def _lease(session: Session, queue: str, id: int, token: int) -> LeasedMessage:
    """The lease with nothing of the message but its id and token: all a verb needs. It may be a
    member of a group: the verb has to look whether a group is complete."""
    target = session.queue(queue)
    internal.expect_groups(target)
    return target.lease(id, token)


def _report(
    session: Session, done: str, queue: str, id: int, token: int, then: str = "", **more: Any
) -> None:
    """Print what a verb did; ``then`` is only for people, ``more`` only for --json."""
    facts = {"queue": queue, "id": id, "token": token, "done": done, **more}
    session.done(f"message {id}: {done}{then}", **facts)


@lease.command
def ack(queue: QueueName, id: Id, token: Token, /, *, session: Context) -> None:
    """Remove the message: its work is done.

    Example: fairturn lease ack emails 42 4095054203123458
    """
    _lease(session, queue, id, token).ack()
    _report(session, "acked", queue, id, token)


@lease.command
def complete(
    queue: QueueName,
    id: Id,
    token: Token,
    result: str | None = None,
    /,
    *,
    session: Context,
) -> None:
    """Keep the message with its result: its work is done.

    Example: fairturn lease complete emails 42 4095054203123458 '{"sent": true}'

    Args:
        result: The result: JSON if it parses as JSON, else a string.
    """
    value = None if result is None else parsing.body(result)
    _lease(session, queue, id, token).complete(value)
    _report(session, "completed", queue, id, token)


@lease.command
def fail(
    queue: QueueName,
    id: Id,
    token: Token,
    error: str = "failed",
    /,
    *,
    delay: Duration | None = None,
    reference: Reference = None,
    session: Context,
) -> None:
    """Report a failure: the message is retried, or dead if no attempts are left.

    Example: fairturn lease fail emails 42 4095054203123458 "mailbox full" --delay 10m

    Args:
        error: What went wrong.
        delay: Retry it after this time. Default the queue's backoff.
    """
    _lease(session, queue, id, token).fail(error, delay=delay, reference=reference)
    then, facts = _after_failure(session, queue, id)
    _report(session, "failed", queue, id, token, then=f"; {then}", **facts)


def _after_failure(session: Session, queue: str, id: int) -> tuple[str, dict[str, Any]]:
    """Return the present state of a message that failed, as text and as facts."""
    target = session.queue(queue)
    found = target.get(id=id)
    if found is None:
        dead_letter = target.settings().dead_letter
        moved = (
            session.queue(dead_letter).get(id=id) if dead_letter in session.db.queues() else None
        )
        if moved is None:
            return "it is gone", {"state": None}
        return f"no attempts are left: it is dead and was moved to queue {dead_letter!r}", {
            "state": "dead",
            "dead_letter": dead_letter,
        }
    facts: dict[str, Any] = {"state": found.state, "attempts": found.attempts}
    if found.state == "dead":
        look = session.command("dead", "list", queue)
        return f"no attempts are left: it is dead. See: {look}", facts
    if found.state == "leased":
        return "it was delivered again already", facts
    facts["retry_at"] = show.iso(found.due_at)
    if found.state == "scheduled":
        wait = show.from_now(found.due_at, session.now())
        return f"it is retried {wait}, at {show.clock(found.due_at)}", facts
    return "it is ready for its retry now", facts


@lease.command
def kill(
    queue: QueueName,
    id: Id,
    token: Token,
    error: str = "killed",
    /,
    *,
    reference: Reference = None,
    session: Context,
) -> None:
    """Make the message dead immediately: it can never succeed.

    Example: fairturn lease kill emails 42 4095054203123458 "no such user"

    Args:
        error: Why it can never succeed.
    """
    _lease(session, queue, id, token).kill(error, reference=reference)
    _report(session, "killed", queue, id, token)


@lease.command
def defer(
    queue: QueueName,
    id: Id,
    token: Token,
    /,
    *,
    delay: Delay = None,
    at: At = None,
    memo: str | None = None,
    session: Context,
) -> None:
    """Run the message again later; this is not a failure.

    Example: fairturn lease defer emails 42 4095054203123458 --delay 1h --memo '{"page": 7}'

    Args:
        memo: A value to store for the next delivery: JSON if it parses, else a string.
    """
    saved = KEEP if memo is None else parsing.body(memo)
    _lease(session, queue, id, token).defer(delay, at=at, memo=saved)
    _report(session, "deferred", queue, id, token)


@lease.command
def extend(
    queue: QueueName,
    id: Id,
    token: Token,
    lease: Duration | None = None,
    /,
    *,
    session: Context,
) -> None:
    """Move the end of the lease: the work takes longer.

    Example: fairturn lease extend emails 42 4095054203123458 5m

    Args:
        lease: The lease ends this long after now. Default the queue's lease.
    """
    message = _lease(session, queue, id, token)
    message.extend(lease)
    until = message.lease_until
    done = f"leased until {show.clock(until)}"
    _report(session, done, queue, id, token, lease_until=show.iso(until))


@lease.command
def progress(
    queue: QueueName,
    id: Id,
    token: Token,
    value: Fraction | None = None,
    /,
    *,
    note: str | None = None,
    session: Context,
) -> None:
    """Report how far the work is; wait --partial, peek and top show it.

    Example: fairturn lease progress emails 42 4095054203123458 40% --note "reading page 7"

    Args:
        value: The progress: 0.4, or 40%.
        note: What the worker is doing.
    """
    if value is None and note is None:
        raise CommandError("give the progress, such as 40%, or a --note")
    _lease(session, queue, id, token).progress(value, note=note)
    done = show.progress(value, note)
    _report(session, done, queue, id, token, progress=value, note=note)


@lease.command
def release(queue: QueueName, id: Id, token: Token, /, *, session: Context) -> None:
    """Give the message back without having worked on it; the attempt does not count.

    Example: fairturn lease release emails 42 4095054203123458
    """
    _lease(session, queue, id, token).release()
    _report(session, "released", queue, id, token)
