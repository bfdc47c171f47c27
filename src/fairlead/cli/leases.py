"""``fairlead receive`` and ``fairlead lease …``: work on messages from the command line.

A lease is the pair (message id, delivery number). Whoever has both may finish the delivery; an old
pair changes nothing and says that the lease is lost.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.text import Text

from fairlead.cli import parsing, show
from fairlead.cli.insight import now_of
from fairlead.cli.parsing import Duration, Fraction, Time
from fairlead.cli.session import Context, Refused, Session, clean
from fairlead.operations.receiving import KEEP
from fairlead.sync.leased import LeasedMessage

lease = App(
    name="lease",
    help="Finish, extend or give back a delivery: the id and the delivery that receive printed.",
)


def receive(
    queue: str,
    /,
    *,
    n: Annotated[int, Parameter(name="-n")] = 1,
    lease: Duration | None = None,
    wait: Duration = 0,
    ack: bool = False,
    version: int | None = None,
    types: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    min_priority: int | None = None,
    session: Context,
) -> None:
    """Lease messages and print them; with --ack also finish them.

    Example: fairlead receive emails -n 10 --wait 20s --ack --json

    Args:
        queue: The queue.
        n: At most this many.
        lease: How long they are yours; the queue's lease otherwise.
        wait: Wait this long for the first.
        ack: Ack them once they are printed.
        version: Only this version.
        types: Only these types.
        min_priority: Only this priority and higher.
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
    sys.stdout.flush()  # before the ack: a reader that went away must not cost messages
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
            f"{session.command('lease', 'ack', queue, first.id, first.deliveries)}"
        )


def _print_message(session: Session, message: LeasedMessage) -> None:
    parts: list[str] = []
    for name, value in (
        ("channel", message.channel),
        ("key", message.key),
        ("type", message.type),
        ("group", message.group),
        ("priority", message.priority),
        ("version", message.version),
    ):
        if value:
            parts.append(f"{name} {value}")
    if message.attempts > 1 or message.recovered:
        parts.append(f"attempt {message.attempts}{', recovered' if message.recovered else ''}")
    line = Text.assemble(
        ("message ", "dim"), (str(message.id), "bold"),
        (" delivery ", "dim"), (str(message.deliveries), "bold"),
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
def _lease(session: Session, queue: str, id: int, delivery: int) -> LeasedMessage:
    """The lease with nothing of the message but its id and delivery: all a verb needs. It may be a
    member of a group: the verb has to look whether a group is complete."""
    target = session.queue(queue)
    target.core.grouped = True
    return target.lease(id, delivery)


def _told(session: Session, done: str, queue: str, id: int, delivery: int, **more: Any) -> None:
    facts = {"queue": queue, "id": id, "delivery": delivery, "done": done, **more}
    session.done(f"message {id}: {done}", **facts)


@lease.command
def ack(queue: str, id: int, delivery: int, /, *, session: Context) -> None:
    """The work is done: remove the message.

    Example: fairlead lease ack emails 42 1

    Args:
        queue: The queue.
        id: The message's id.
        delivery: The delivery's number, as receive printed it.
    """
    _lease(session, queue, id, delivery).ack()
    _told(session, "acked", queue, id, delivery)


@lease.command
def complete(
    queue: str, id: int, delivery: int, result: str | None = None, /, *, session: Context
) -> None:
    """The work is done: keep the message with its result.

    Example: fairlead lease complete emails 42 1 '{"sent": true}'

    Args:
        queue: The queue.
        id: The message's id.
        delivery: The delivery's number, as receive printed it.
        result: JSON if it parses, else a string.
    """
    value = None if result is None else parsing.body(result)
    _lease(session, queue, id, delivery).complete(value)
    _told(session, "completed", queue, id, delivery)


@lease.command
def fail(
    queue: str,
    id: int,
    delivery: int,
    error: str = "failed",
    /,
    *,
    delay: Duration | None = None,
    reference: str | None = None,
    session: Context,
) -> None:
    """It went wrong: log it and retry, or bury it when no attempts are left.

    Example: fairlead lease fail emails 42 1 "mailbox full" --delay 10m

    Args:
        queue: The queue.
        id: The message's id.
        delivery: The delivery's number, as receive printed it.
        error: What went wrong.
        delay: Retry after this; the queue's back-off otherwise.
        reference: Where to read more: a trace id, a URL.
    """
    _lease(session, queue, id, delivery).fail(error, delay=delay, reference=reference)
    then, facts = _after_failure(session, queue, id, delivery)
    if not session.json:
        session.say(f"message {id}: failed; {then}")
        return
    _told(session, "failed", queue, id, delivery, **facts)


def _after_failure(
    session: Session, queue: str, id: int, delivery: int
) -> tuple[str, dict[str, Any]]:
    """What became of a message that failed: for a person, and as facts."""
    target = session.queue(queue)
    found = target.get(id=id)
    if found is None:
        graves = target.settings().dead_letter
        moved = session.queue(graves).get(id=id) if graves in session.db.queues() else None
        if moved is None:
            return "it is gone", {"state": None}
        return f"no attempts are left: it is dead and was moved to queue {graves!r}", {
            "state": "dead",
            "dead_letter": graves,
        }
    facts: dict[str, Any] = {"state": found.state, "attempts": found.attempts}
    if found.state == "dead":
        look = session.command("dead", "list", queue)
        return f"no attempts are left: it is dead. See: {look}", facts
    if found.deliveries > delivery:
        return "it was given out again already", facts
    facts["retry_at"] = show.iso(found.due_at)
    if found.state == "scheduled":
        wait = show.from_now(found.due_at, now_of(session))
        return f"it is retried {wait}, at {show.clock(found.due_at)}", facts
    return "it is ready to be retried at once", facts


@lease.command
def kill(
    queue: str,
    id: int,
    delivery: int,
    error: str = "killed",
    /,
    *,
    reference: str | None = None,
    session: Context,
) -> None:
    """It will never work: bury it as dead at once.

    Example: fairlead lease kill emails 42 1 "no such user"

    Args:
        queue: The queue.
        id: The message's id.
        delivery: The delivery's number, as receive printed it.
        error: What is wrong with it.
        reference: Where to read more: a trace id, a URL.
    """
    _lease(session, queue, id, delivery).kill(error, reference=reference)
    _told(session, "killed", queue, id, delivery)


@lease.command
def defer(
    queue: str,
    id: int,
    delivery: int,
    /,
    *,
    delay: Duration | None = None,
    at: Time | None = None,
    memo: str | None = None,
    session: Context,
) -> None:
    """Not now: run it again later. Not a failure.

    Example: fairlead lease defer emails 42 1 --delay 1h --memo '{"page": 7}'

    Args:
        queue: The queue.
        id: The message's id.
        delivery: The delivery's number, as receive printed it.
        delay: Run it again after this.
        at: Run it again then.
        memo: Work to save with it; JSON if it parses.
    """
    saved = KEEP if memo is None else parsing.body(memo)
    _lease(session, queue, id, delivery).defer(delay, at=at, memo=saved)
    _told(session, "deferred", queue, id, delivery)


@lease.command
def extend(
    queue: str, id: int, delivery: int, lease: Duration | None = None, /, *, session: Context
) -> None:
    """Still busy: the lease ends later.

    Example: fairlead lease extend emails 42 1 5m

    Args:
        queue: The queue.
        id: The message's id.
        delivery: The delivery's number, as receive printed it.
        lease: From now on; the queue's lease otherwise.
    """
    message = _lease(session, queue, id, delivery)
    message.extend(lease)
    until = message.lease_until
    done = f"leased until {show.clock(until)}"
    _told(session, done, queue, id, delivery, lease_until=show.iso(until))


@lease.command
def progress(
    queue: str,
    id: int,
    delivery: int,
    value: Fraction | None = None,
    /,
    *,
    note: str | None = None,
    session: Context,
) -> None:
    """Say how far it is, and what it is doing; wait --partial, peek and top show it.

    Example: fairlead lease progress emails 42 1 40% --note "reading page 7"

    Args:
        queue: The queue.
        id: The message's id.
        delivery: The delivery's number, as receive printed it.
        value: 0.4, or 40%.
        note: What it is doing.
    """
    if value is None and note is None:
        raise Refused("say how far it is, such as 40%, or what it is doing with --note")
    _lease(session, queue, id, delivery).progress(value, note=note)
    far = {"progress": value, "note": note}
    _told(session, show.progress(value, note), queue, id, delivery, **far)


@lease.command
def release(queue: str, id: int, delivery: int, /, *, session: Context) -> None:
    """Give it back unworked: ready at once, and the attempt does not count.

    Example: fairlead lease release emails 42 1

    Args:
        queue: The queue.
        id: The message's id.
        delivery: The delivery's number, as receive printed it.
    """
    _lease(session, queue, id, delivery).release()
    _told(session, "released", queue, id, delivery)
