"""``fairturn stats``, ``peek``, ``explain``, ``failures``, ``trace``: commands that only read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table

from fairturn.cli import show
from fairturn.cli.arguments import After, Context, IdOrKey, Key, Number, QueueName
from fairturn.cli.errors import CommandFailed
from fairturn.cli.session import Session, make_table
from fairturn.core.message import Message
from fairturn.core.values import COUNTERS, State, Stats


def stats(queue: str | None = None, /, *, session: Context) -> None:
    """Print exact counts of one queue, or of all queues.

    Example: fairturn stats emails

    Args:
        queue: The name of the queue. Default all queues.
    """
    if queue is not None:
        _one_queue(session, queue, session.queue(queue).stats())
        return
    found = session.db.stats()
    if session.json:
        each = {name: show.stats_facts(one) for name, one in found.queues.items()}
        session.emit({**show.stats_facts(found), "queues": each})
        return
    session.print_table(overview(found, session.now()))


def overview(found: Stats, now: datetime) -> Table:
    """Return a table with a line for each queue and their sum, narrow enough for a terminal."""
    lines = list(found.queues.items())
    if len(lines) > 1:
        lines.append(("all", found))
    gauges = gauges_to_show(found)
    totals: dict[str, Callable[[Stats], int]] = {
        "sent": lambda one: one.sent,
        "finished": lambda one: one.acked + one.completed,
        "failed": lambda one: one.failed,
        "recovered": lambda one: one.recovered,
    }
    # A total that is zero in all queues is left out; `stats QUEUE` and --json have all totals.
    totals = {name: of for name, of in totals.items() if of(found) or name in ("sent", "finished")}
    rows = [
        [
            name,
            *(show.count(getattr(one, gauge), gauge) for gauge in gauges),
            show.age(one.oldest_ready, now),
            *(of(one) for of in totals.values()),
        ]
        for name, one in lines
    ]
    heads = [*(f">{gauge}" for gauge in gauges), "oldest", *(f">{name}" for name in totals)]
    return make_table(["queue", *heads], rows)


def gauges_to_show(found: Stats) -> list[str]:
    """Return the states to show: held and done only if a message is in them."""
    return [name for name in show.GAUGES if name not in ("held", "done") or getattr(found, name)]


def _one_queue(session: Session, name: str, found: Stats) -> None:
    if session.json:
        session.emit({"queue": name, **show.stats_facts(found)})
        return
    counts = [(gauge, show.count(getattr(found, gauge), gauge)) for gauge in show.GAUGES]
    session.table([name, ">now"], counts)
    if found.oldest_ready:
        session.say(f"oldest ready {show.age(found.oldest_ready, session.now())}")
    if any(found.versions):
        counted = ", ".join(f"{v}: {n:,}" for v, n in sorted(found.versions.items()))
        session.say(f"versions {counted}")
    session.say()
    session.table(["since its creation", ">"], [(name, getattr(found, name)) for name in COUNTERS])


def list_messages(
    session: Session, found: Sequence[Message], n: int, *, dead: bool = False
) -> None:
    """List messages for peek and dead list."""
    now = session.now()
    columns: dict[str, Callable[[Message], Any]] = {
        ">id": lambda m: str(m.id),
        "state": lambda m: show.state(m.state),
        "channel": lambda m: m.channel,
        "key": lambda m: m.key,
        "type": lambda m: m.type,
        "group": lambda m: m.group,
        ">priority": lambda m: str(m.priority or ""),
        "when": lambda m: show.from_now(m.finished_at or m.lease_until or m.due_at, now),
        ">attempts": lambda m: str(m.attempts or ""),
        "progress": lambda m: show.progress(m.progressed, m.note),
        **({"error": lambda m: m.error} if dead else {}),
        "body": lambda m: show.preview(m.body, 40 if dead else 60),
    }
    session.listing(
        found,
        lambda message: show.message_facts(message, stored=True),
        columns,
        empty="no dead messages" if dead else "no messages",
        more=f"more with --after {found[-1].id}" if len(found) == n else "",
        drop_empty=True,
    )


def peek(
    queue: QueueName,
    /,
    *,
    n: Number = 20,
    state: State | None = None,
    channel: str | None = None,
    after: After = 0,
    session: Context,
) -> None:
    """Print messages without leasing them, in the order of their ids.

    Example: fairturn peek emails --state scheduled -n 50

    Args:
        state: Only messages in this state.
        channel: Only messages of this channel.
    """
    found = session.queue(queue).peek(n, state=state, channel=channel, after=after)
    list_messages(session, found, n)


def explain(queue: QueueName, id: IdOrKey = None, /, *, key: Key = None, session: Context) -> None:
    """Explain why a message is not running.

    Example: fairturn explain emails 42
    """
    found = session.queue(queue).explain(id, key=key)
    text = in_commands(session, found.text, queue)
    if found.state == "held":
        text = _why_held(session, queue, found.id)
    session.done(
        f"message {found.id} is {text}",
        id=found.id,
        state=found.state,
        reason=found.reason,
        text=text,
        position=found.position,
        next_at=show.iso(found.next_at),
    )


def in_commands(session: Session, text: str, queue: str) -> str:
    """Replace the Python calls in an explanation by commands."""
    text = text.replace(
        "Redrive it with queue.redrive()",
        f"Redrive it: {session.command('dead', 'redrive', queue)}",
    )
    return text.replace(
        "resume it with queue.resume()", f"resume it: {session.command('queue', 'resume', queue)}"
    )


def _why_held(session: Session, queue: str, id: int) -> str:
    """Explain a held message: a member of a group, or the end or abort message of one."""
    message = session.queue(queue).get(id=id)
    if message is None or message.group is None:
        return "held: it is the end or abort message of a group, and is sent when that closes"
    start = session.command("group", "start", message.group)
    return f"held: its group {message.group!r} has not been started. Start it: {start}"


def failures(
    queue: QueueName,
    /,
    *,
    n: Number = 20,
    id: int | None = None,
    key: str | None = None,
    session: Context,
) -> None:
    """Print the failure log of a queue, newest first.

    Example: fairturn failures emails --key welcome:7

    Args:
        id: Only failures of this message.
        key: Only failures of messages with this key.
    """
    found = session.queue(queue).failures(n, id=id, key=key)
    session.listing(
        found,
        show.facts,
        {
            "at": lambda one: show.clock(one.at),
            ">message": lambda one: str(one.message_id),
            "key": lambda one: one.key,
            ">attempt": lambda one: str(one.attempt),
            "error": lambda one: one.error,
            "reference": lambda one: one.reference,
        },
        empty="no failures",
    )
    # Of one message or key, the newest traceback is shown, too.
    if found and not session.json and (id is not None or key is not None):
        newest, *_ = found
        details: Any = newest.details or {}
        traceback = details.get("traceback")
        if traceback:
            session.out.print(f"\nThe last one:\n{traceback}", soft_wrap=True)


def trace(key: str, /, *, session: Context) -> None:
    """Print the history of a key across all queues.

    Example: fairturn trace welcome:7

    Args:
        key: The key.
    """
    found = session.db.trace(key)
    if not found and not session.json:
        raise CommandFailed(f"no message and no failure has the key {key!r}")
    session.listing(
        found,
        show.facts,
        {
            "at": lambda step: show.clock(step.at),
            "queue": lambda step: step.queue,
            ">message": lambda step: str(step.message_id),
            "what": lambda step: "sent" if step.kind == "message" else "failed",
            "now": lambda step: show.state(step.state) if step.kind == "message" else "",
            "error": lambda step: step.text,
        },
        empty="",
    )
