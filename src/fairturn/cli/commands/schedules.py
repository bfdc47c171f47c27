"""``fairturn schedule …``: messages that are sent at set times."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.text import Text

from fairturn.cli import show
from fairturn.cli.arguments import (
    AsBytes,
    BodyFile,
    BodyText,
    Context,
    Number,
    ScheduleName,
)
from fairturn.cli.commands.send import Body, read_body
from fairturn.cli.options import given, with_options
from fairturn.cli.parsing import Duration, Time
from fairturn.core.errors import ScheduleNotFound
from fairturn.core.schedules import Missed, Overlap, ScheduleStatus
from fairturn.core.sends import SCHEDULED, SEND_OPTIONS

schedule = App(name="schedule", help="Send messages by cron, at an interval, or once.")


@with_options(SEND_OPTIONS[name] for name in SCHEDULED)
class Options:
    """The options of a schedule's messages."""


def facts(status: ScheduleStatus) -> dict[str, Any]:
    """Return a schedule as a JSON document."""
    found = show.facts(status)
    return {"schedule": found.pop("name"), **found, "finished": status.finished}


def state(status: ScheduleStatus) -> Text:
    if status.paused:
        return Text("paused", style="yellow")
    if status.error is not None:
        return Text(status.error, style="red")
    return Text("finished", style="dim") if status.finished else Text("")


@schedule.command(name="list")
def list_(*, session: Context) -> None:
    """List all schedules by name.

    Example: fairturn schedule list
    """
    now = session.now()
    add = session.command("schedule", "add", "NAME", "BODY", "--queue", "QUEUE")
    session.listing(
        session.db.schedules(),
        facts,
        {
            "schedule": lambda one: one.name,
            "queue": lambda one: one.queue,
            "when": lambda one: one.spec,
            "next": lambda one: show.from_now(one.next_at, now),
            "last": lambda one: show.from_now(one.last_at, now),
            "state": state,
        },
        empty=f"no schedules yet. Add one: {add} --every 5m",
    )


@schedule.command(name="show")
def show_(name: ScheduleName, /, *, session: Context) -> None:
    """Print all about one schedule.

    Example: fairturn schedule show nightly
    """
    found = session.db.schedule(name).get()
    if found is None:
        raise ScheduleNotFound(name)
    own = {
        "channel": found.channel,
        "priority": found.priority,
        "version": found.version,
        "type": found.type,
        "headers": show.full(dict(found.headers)) if found.headers else None,
        "lease": show.span(found.lease),
        "max attempts": found.max_attempts,
        "expires": show.span(found.expires),
    }
    session.sheet(
        facts(found),
        [found.name, state(found).plain],
        [
            ("when", found.spec),
            ("next", show.clock(found.next_at)),
            ("last", show.clock(found.last_at)),
            ("missed due times", found.missed),
            ("overlap", found.overlap),
            ("queue", found.queue),
            ("body", show.preview(found.body)),
            *((what, str(value)) for what, value in own.items() if value),
            ("declared by", found.owner),
            ("created", show.clock(found.created_at)),
            ("changed", show.clock(found.updated_at)),
        ],
    )


@schedule.command
def add(
    name: ScheduleName,
    body: BodyText = None,
    /,
    *,
    queue: str,
    cron: str | None = None,
    timezone: str = "UTC",
    every: Duration | None = None,
    at: Time | None = None,
    missed: Missed = "once",
    overlap: Overlap = "skip",
    file: BodyFile = None,
    bytes: AsBytes = False,
    options: Options | None = None,
    session: Context,
) -> None:
    """Add or change a schedule, with --cron, --every or --at.

    Without a body, its messages have the body null.

    Example: fairturn schedule add nightly '{"report": 7}' --queue reports --cron "0 3 * * *"

    Args:
        queue: The queue to which it sends.
        cron: Minute, hour, day, month, weekday; or @daily.
        timezone: The time zone of --cron. Default UTC.
        every: Send at this interval, counted from now.
        at: Send once: 2030-01-31T09:00, or +5m.
        missed: How missed due times are made up for. Default once.
        overlap: Whether to send while the last message is unfinished. Default skip.
    """
    source = Body(body, file, bytes)
    content = None if body is None and file is None else read_body(source)
    handle = session.db.schedule(name)
    created = handle.set(
        queue,
        content,
        cron=cron,
        every=every,
        at=at,
        timezone=timezone,
        missed=missed,
        overlap=overlap,
        **given(options or Options()),
    )
    found = handle.get()
    if found is None:
        raise ScheduleNotFound(name)  # it was removed meanwhile
    when = show.clock(found.next_at) or ("when it is resumed" if found.paused else "never again")
    text = f"schedule {name!r} {'added' if created else 'set'}: {found.spec}; next {when}"
    session.done(text, **facts(found), created=created)


@schedule.command
def pause(name: ScheduleName, /, *, session: Context) -> None:
    """Send no more messages of a schedule until it is resumed.

    Example: fairturn schedule pause nightly
    """
    session.db.schedule(name).pause()
    session.done(f"schedule {name!r} is paused", schedule=name, paused=True)


@schedule.command
def resume(name: ScheduleName, /, *, session: Context) -> None:
    """End the pause of a schedule; due times in the pause are not made up for.

    Example: fairturn schedule resume nightly
    """
    handle = session.db.schedule(name)
    handle.resume()
    found = handle.get()
    next_at = None if found is None else found.next_at
    text = f"schedule {name!r} goes on; next {show.clock(next_at) or 'never again'}"
    session.done(text, schedule=name, paused=False, next_at=show.iso(next_at))


@schedule.command
def remove(name: ScheduleName, /, *, session: Context) -> None:
    """Remove a schedule; the messages that it has sent stay.

    Example: fairturn schedule remove nightly
    """
    handle = session.db.schedule(name)
    found = handle.get()
    if found is None or not handle.remove():
        raise ScheduleNotFound(name)
    session.done(f"schedule {name!r} removed: {found.spec}", schedule=name, removed=True)


@schedule.command
def trigger(name: ScheduleName, /, *, session: Context) -> None:
    """Send the message of a schedule now; its due times do not change.

    Example: fairturn schedule trigger nightly
    """
    sent = session.db.schedule(name).trigger()
    text = f"{sent.outcome} {sent.id}"
    if sent.outcome == "refused":
        text = f"{sent.id} is leased and --overlap is skip: nothing was sent"
    session.done(text, schedule=name, id=sent.id, outcome=sent.outcome)


@schedule.command(name="next")
def next_(
    name: ScheduleName,
    /,
    *,
    n: Annotated[Number, Parameter(name=["-n", "--number"])] = 5,
    session: Context,
) -> None:
    """Print the next due times, in the time zone of the schedule.

    Example: fairturn schedule next nightly -n 10
    """
    handle = session.db.schedule(name)
    times = handle.upcoming(n)
    if session.json:
        session.emit([time.isoformat() for time in times])
        return
    now = session.now()
    for time in times:
        session.say(f"{time:%Y-%m-%d %H:%M:%S %Z}  {show.from_now(time, now)}")
    if times:
        return
    found = handle.get()
    if found is not None and found.paused:
        session.note(f"it is paused. Resume it: {session.command('schedule', 'resume', name)}")
    else:
        session.note("its only due time is over")
