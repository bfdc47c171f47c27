"""Looking without touching: stats, peek, explain, failures, trace."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from fairlead.cli import show
from fairlead.cli.session import Context, Failed, Session, make_table
from fairlead.values import COUNTERS, Message, State, Stats, moment

Count = Annotated[int, Parameter(name="-n")]


def now_of(session: Session) -> datetime:
    """The database's clock: the one that due times and leases are told by."""
    return moment(session.db.clock())


def stats(queue: str | None = None, /, *, session: Context) -> None:
    """Exact counts and totals: of one queue, or of all.

    Example: fairlead stats emails

    Args:
        queue: The queue; all of them otherwise.
    """
    if queue is not None:
        _one_queue(session, queue, session.queue(queue).stats())
        return
    found = session.db.stats()
    if session.json:
        each = {name: show.stats_facts(one) for name, one in found.queues.items()}
        session.emit({**show.stats_facts(found), "queues": each})
        return
    session.print_table(overview(found, now_of(session)))


def overview(found: Stats, now: datetime) -> Table:
    """One line per queue and their sum, narrow enough for a terminal."""
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
    # What never happened says nothing; the whole of it is in `stats QUEUE` and --json.
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
    """All states but those that few queues use and none has a message in."""
    return [name for name in show.GAUGES if name not in ("held", "done") or getattr(found, name)]


def _one_queue(session: Session, name: str, found: Stats) -> None:
    if session.json:
        session.emit({"queue": name, **show.stats_facts(found)})
        return
    oldest = show.age(found.oldest_ready, now_of(session)) if found.oldest_ready else ""
    now_rows = [(gauge, show.count(getattr(found, gauge), gauge)) for gauge in show.GAUGES]
    session.table([name, ">now"], now_rows)
    if oldest:
        session.say(f"oldest ready {oldest}")
    if any(found.versions):
        counted = ", ".join(f"{v}: {n:,}" for v, n in sorted(found.versions.items()))
        session.say(f"versions {counted}")
    session.say()
    session.table(["since its creation", ">"], [(name, getattr(found, name)) for name in COUNTERS])


def messages_table(session: Session, messages: list[Message], dead: bool = False) -> None:
    """Messages as peek and dead list print them."""
    now = now_of(session)
    rows: list[list[Any]] = []
    for message in messages:
        when = message.finished_at or message.lease_until or message.due_at
        what = message.error if dead else show.preview(message.body)
        rows.append(
            [
                str(message.id),
                show.state(message.state),
                message.channel,
                message.key,
                message.type,
                message.group,
                str(message.priority or ""),
                show.from_now(when, now),
                str(message.attempts or ""),
                show.progress(message.progressed, message.note),
                what,
                *([show.preview(message.body, 40)] if dead else []),
            ]
        )
    heads = [">id", "state", "channel", "key", "type", "group", ">priority", "when", ">attempts"]
    heads.append("progress")
    # Columns in which no message has anything say nothing.
    keep = [i for i in range(len(heads)) if any(str(row[i] or "") for row in rows)]
    tail = ["error", "body"] if dead else ["body"]
    picked = [[*(row[i] for i in keep), *row[len(heads) :]] for row in rows]
    session.table([*(heads[i] for i in keep), *tail], picked)


def peek(
    queue: str,
    /,
    *,
    n: Count = 20,
    state: State | None = None,
    channel: str | None = None,
    after: int = 0,
    session: Context,
) -> None:
    """Look at messages without leasing them, oldest id first.

    Example: fairlead peek emails --state scheduled -n 50

    Args:
        queue: The queue.
        n: At most this many.
        state: Only these.
        channel: Only this channel.
        after: The last id of the page before.
    """
    found = session.queue(queue).peek(n, state=state, channel=channel, after=after)
    if session.json:
        session.emit([show.message_facts(message, stored=True) for message in found])
    elif found:
        messages_table(session, found)
        if len(found) == n:
            session.note(f"more with --after {found[-1].id}")
    else:
        session.note("no messages")


def explain(
    queue: str, id: int | None = None, /, *, key: str | None = None, session: Context
) -> None:
    """Why is this message not running?

    Example: fairlead explain emails 42

    Args:
        queue: The queue.
        id: The message's id, or give --key.
        key: The message's key.
    """
    found = session.queue(queue).explain(id, key=key)
    text = in_commands(session, found.text, queue)
    if found.state == "held":
        text = _why_held(session, queue, found.id)
    if session.json:
        facts = {
            "id": found.id,
            "state": found.state,
            "reason": found.reason,
            "text": text,
            "position": found.position,
            "next_at": show.iso(found.next_at),
        }
        session.emit(facts)
    else:
        session.say(f"message {found.id} is {text}")


def in_commands(session: Session, text: str, queue: str) -> str:
    """The library tells what to call; here, what to type."""
    text = text.replace(
        "Redrive it with queue.redrive()",
        f"Redrive it: {session.command('dead', 'redrive', queue)}",
    )
    return text.replace(
        "resume it with queue.resume()", f"resume it: {session.command('queue', 'resume', queue)}"
    )


def _why_held(session: Session, queue: str, id: int) -> str:
    """A member waits for its group's start; a group's work, which is no member, for its end."""
    message = session.queue(queue).get(id=id)
    if message is None or message.group is None:
        return "held: it is the end or abort work of a group, and sent when that closes"
    start = session.command("group", "start", message.group)
    return f"held: its group {message.group!r} has not been started. Start it: {start}"


def failures(
    queue: str,
    /,
    *,
    n: Count = 20,
    id: int | None = None,
    key: str | None = None,
    session: Context,
) -> None:
    """The failure log of a queue, newest first.

    Example: fairlead failures emails --key welcome:7

    Args:
        queue: The queue.
        n: At most this many.
        id: Only of this message.
        key: Only of messages with this key.
    """
    found = session.queue(queue).failures(n, id=id, key=key)
    if session.json:
        session.emit([show.failure_facts(failure) for failure in found])
        return
    if not found:
        session.note("no failures")
        return
    rows = [
        [show.clock(f.at), str(f.message_id), f.key, str(f.attempt), f.error, f.reference]
        for f in found
    ]
    session.table(["at", ">message", "key", ">attempt", "error", "reference"], rows)
    if id is not None or key is not None:  # somebody wants to know exactly
        details: Any = found[0].details or {}
        trace: Any = details.get("traceback") if "traceback" in details else None
        if trace:
            session.out.print(f"\nThe last one:\n{trace}", soft_wrap=True)


def trace(key: str, /, *, session: Context) -> None:
    """The life of a key across all queues.

    Example: fairlead trace welcome:7

    Args:
        key: The key.
    """
    found = session.db.trace(key)
    if session.json:
        session.emit([show.step_facts(step) for step in found])
        return
    if not found:
        raise Failed(f"no message and no failure has the key {key!r}")
    rows = [
        [
            show.clock(step.at),
            step.queue,
            str(step.message_id),
            "sent" if step.kind == "message" else "failed",
            show.state(step.state) if step.kind == "message" else "",
            step.text,
        ]
        for step in found
    ]
    session.table(["at", "queue", ">message", "what", "now", "error"], rows)
