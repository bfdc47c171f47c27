"""``fairlead schedule …``: messages that are sent at set times."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.text import Text

from fairlead.cli import parsing, show
from fairlead.cli.insight import now_of
from fairlead.cli.parsing import Duration, Time
from fairlead.cli.sending import Body, one_source, read_body
from fairlead.cli.session import Context, Refused, Session
from fairlead.errors import ScheduleNotFound
from fairlead.schedules import Missed, Overlap, ScheduleStatus

schedule = App(name="schedule", help="Messages that are sent by cron, at intervals, or once.")


@Parameter(name="*")
@dataclass
class Message:
    """What each of its messages is like; the names are those of ``set``."""

    channel: Annotated[str, Parameter(help="Of its messages.")] = ""
    priority: Annotated[int, Parameter(help="Of its messages.")] = 0
    version: Annotated[int, Parameter(help="Of its messages.")] = 0
    type: Annotated[str | None, Parameter(help="Of its messages.")] = None
    header: Annotated[
        list[str] | None,
        Parameter(name=["--header", "-H"], metavar="NAME=VALUE", help="Repeat for several."),
    ] = None
    lease: Annotated[Duration | None, Parameter(help="Of its messages.")] = None
    max_attempts: Annotated[int | None, Parameter(help="Of its messages.")] = None
    expires: Annotated[Duration | None, Parameter(help="Of its messages.")] = None

    def options(self) -> dict[str, Any]:
        given = asdict(self)
        try:
            headers = dict(parsing.header(item) for item in given.pop("header") or ())
        except ValueError as error:
            raise Refused(str(error)) from None
        return {**given, "headers": headers or None}


def facts(status: ScheduleStatus) -> dict[str, Any]:
    """A schedule as a JSON document."""
    found = {
        name: show.iso(value) if isinstance(value, datetime) else value
        for name, value in asdict(status).items()
    }
    body = show.payload("body", found.pop("body"))
    return {"schedule": found.pop("name"), **found, **body, "finished": status.finished}


def state(status: ScheduleStatus) -> Text:
    if status.paused:
        return Text("paused", style="yellow")
    if status.error is not None:
        return Text(status.error, style="red")
    return Text("finished", style="dim") if status.finished else Text("")


@schedule.command(name="list")
def list_(*, session: Context) -> None:
    """All schedules, by name.

    Example: fairlead schedule list
    """
    found = session.db.schedules()
    if session.json:
        session.emit([facts(one) for one in found])
        return
    if not found:
        add = session.command("schedule", "add", "NAME", "BODY", "--queue", "QUEUE")
        session.note(f"no schedules yet. Add one: {add} --every 5m")
        return
    now = now_of(session)
    rows: list[list[Any]] = [
        [
            one.name,
            one.queue,
            one.spec,
            show.from_now(one.next_at, now),
            show.from_now(one.last_at, now),
            state(one),
        ]
        for one in found
    ]
    session.table(["schedule", "queue", "when", "next", "last", "state"], rows)


@schedule.command(name="show")
def show_(name: str, /, *, session: Context) -> None:
    """What a schedule sends, and when.

    Example: fairlead schedule show nightly

    Args:
        name: The schedule.
    """
    found = session.db.schedule(name).get()
    if found is None:
        raise ScheduleNotFound(name)
    if session.json:
        session.emit(facts(found))
        return
    own = {
        "channel": found.channel,
        "priority": found.priority,
        "version": found.version,
        "type": found.type,
        "headers": show.full(dict(found.headers)) if found.headers else None,
        "lease": None if found.lease is None else show.span(found.lease),
        "max attempts": found.max_attempts,
        "expires": None if found.expires is None else show.span(found.expires),
    }
    session.table(
        [found.name, state(found).plain],
        [
            ("when", found.spec),
            ("next", show.clock(found.next_at)),
            ("last", show.clock(found.last_at)),
            ("missed ticks", found.missed),
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
    name: str,
    body: str | None = None,
    /,
    *,
    queue: str,
    cron: str | None = None,
    timezone: str = "UTC",
    every: Duration | None = None,
    at: Time | None = None,
    missed: Missed = "once",
    overlap: Overlap = "skip",
    file: Path | None = None,
    bytes: bool = False,
    message: Message | None = None,
    session: Context,
) -> None:
    """Add a schedule, or change it: with --cron, --every or --at.

    Example: fairlead schedule add nightly '{"report": 7}' --queue reports --cron "0 3 * * *"

    Args:
        name: The schedule.
        body: What to send, or - to read it from stdin; nothing is null.
        queue: Where to send it.
        cron: Minute, hour, day, month, weekday; or @daily and the like.
        timezone: Of --cron: Europe/Rome.
        every: Send it this often, counted from now.
        at: Send it once, then.
        missed: What was missed while nothing ran: skip, once, backfill.
        overlap: skip: not while the last one is unfinished; allow.
        file: Read the body from this file.
        bytes: Send the body's bytes as they are, not as JSON.
    """
    source = Body(body, file, bytes, lines=False)
    one_source(source)
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
        **(message or Message()).options(),
    )
    found = handle.get()
    if found is None:
        raise ScheduleNotFound(name)  # somebody has removed it already
    if session.json:
        session.emit({**facts(found), "created": created})
        return
    when = show.clock(found.next_at) or ("when it is resumed" if found.paused else "never again")
    session.say(f"schedule {name!r} {'added' if created else 'set'}: {found.spec}; next {when}")


@schedule.command
def pause(name: str, /, *, session: Context) -> None:
    """Send nothing more until it is resumed.

    Example: fairlead schedule pause nightly

    Args:
        name: The schedule.
    """
    session.db.schedule(name).pause()
    session.done(f"schedule {name!r} is paused", schedule=name, paused=True)


@schedule.command
def resume(name: str, /, *, session: Context) -> None:
    """End a pause; what came meanwhile is not made up for.

    Example: fairlead schedule resume nightly

    Args:
        name: The schedule.
    """
    handle = session.db.schedule(name)
    handle.resume()
    found = handle.get()
    next_at = None if found is None else found.next_at
    text = f"schedule {name!r} goes on; next {show.clock(next_at) or 'never again'}"
    session.done(text, schedule=name, paused=False, next_at=show.iso(next_at))


@schedule.command
def remove(name: str, /, *, session: Context) -> None:
    """Remove a schedule; what it has sent stays.

    Example: fairlead schedule remove nightly

    Args:
        name: The schedule.
    """
    handle = session.db.schedule(name)
    found = handle.get()
    if found is None or not handle.remove():
        raise ScheduleNotFound(name)
    session.done(f"schedule {name!r} removed: {found.spec}", schedule=name, removed=True)


@schedule.command
def trigger(name: str, /, *, session: Context) -> None:
    """Send a schedule's message now; its ticks go on as before.

    Example: fairlead schedule trigger nightly

    Args:
        name: The schedule.
    """
    sent = session.db.schedule(name).trigger()
    words = {
        "sent": f"sent {sent.id}",
        "replaced": f"replaced {sent.id}",
        "refused": f"{sent.id} is being worked on and --overlap is skip: nothing was sent",
    }
    session.done(words[sent.outcome], schedule=name, id=sent.id, outcome=sent.outcome)


@schedule.command(name="next")
def next_(
    name: str,
    /,
    *,
    n: Annotated[int, Parameter(name=["-n", "--number"])] = 5,
    session: Context,
) -> None:
    """The coming ticks, in the schedule's own time zone.

    Example: fairlead schedule next nightly -n 10

    Args:
        name: The schedule.
        n: How many.
    """
    handle = session.db.schedule(name)
    ticks = handle.upcoming(n)
    if session.json:
        session.emit([tick.isoformat() for tick in ticks])
        return
    now = now_of(session)
    for tick in ticks:
        session.say(f"{tick:%Y-%m-%d %H:%M:%S %Z}  {show.from_now(tick, now)}")
    if not ticks:
        found = handle.get()
        _tell_why(session, name, found is not None and found.paused)


def _tell_why(session: Session, name: str, paused: bool) -> None:
    if paused:
        session.note(f"it is paused: {session.command('schedule', 'resume', name)}")
    else:
        session.note("its only time has come and gone")
