"""``fairlead group …``: messages that belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NoReturn

from cyclopts import App, Parameter
from rich.text import Text

from fairlead.cli import parsing, show
from fairlead.cli.insight import now_of
from fairlead.cli.parsing import Duration
from fairlead.cli.queues import Yes
from fairlead.cli.sending import Body, Options, ship
from fairlead.cli.session import Context, Failed, Refused, Session
from fairlead.cli.waiting import DEAD, DONE, GONE, TIMED_OUT
from fairlead.errors import WaitTimeout
from fairlead.operations.groups import OnDead
from fairlead.values import GroupStatus

group = App(name="group", help="Messages that belong together: held, started, counted, cancelled.")
_STYLES = {"open": "magenta", "running": "yellow", "ended": "green"}


@group.command(name="list")
def list_(*, limit: int = 1000, session: Context) -> None:
    """The groups that are open, by name.

    Example: fairlead group list

    Args:
        limit: At most this many.
    """
    found = session.db.groups(limit)
    if session.json:
        session.emit([show.group_facts(one) for one in found])
        return
    if not found:
        session.note("no groups are open")
        return
    now = now_of(session)
    rows: list[list[Any]] = [
        [
            one.name,
            one.queue,
            Text(one.state, style=_STYLES.get(one.state, "red")),
            *(show.count(getattr(one, gauge), gauge) for gauge in ("held", "waiting", "leased")),
            *(show.count(getattr(one, total), total) for total in ("sent", "done", "dead")),
            show.age(one.created_at, now),
        ]
        for one in found
    ]
    counts = [">held", ">waiting", ">leased", ">sent", ">done", ">dead"]
    session.table(["group", "queue", "state", *counts, "age"], rows)
    if len(found) == limit:
        session.note(f"the first {limit:,}; see more with --limit")


@group.command
def status(name: str, /, *, session: Context) -> None:
    """How far a group is, or how it ended. Closed groups are kept for a day.

    Example: fairlead group status import-7

    Args:
        name: The group.
    """
    found = session.db.group(name).status()
    if found is None:
        _unknown(session, name)
    _tell(session, found)


def _tell(session: Session, found: GroupStatus) -> None:
    if session.json:
        session.emit(show.group_facts(found))
        return
    session.table(
        [found.name, found.state],
        [
            ("queue", found.queue),
            ("held", found.held),
            ("waiting", found.waiting),
            ("leased", found.leased),
            ("sent so far", found.sent),
            ("done", found.done),
            ("dead", found.dead),
            ("created", show.clock(found.created_at)),
            ("started", show.clock(found.started_at)),
            ("closed", show.clock(found.closed_at)),
        ],
    )
    if found.state == "open":
        session.note(f"let its members run: {session.command('group', 'start', found.name)}")


def _unknown(session: Session, name: str) -> NoReturn:
    near = show.near(name, [one.name for one in session.db.groups()])
    if near:
        raise Failed(f"no group is called {name!r}. Did you mean {near!r}?")
    look = session.command("group", "list")
    raise Failed(f"no group is called {name!r}: never made, or closed a day ago. Open ones: {look}")


def _not_open(session: Session, name: str) -> NoReturn:
    found = session.db.group(name).status()
    if found is None:
        _unknown(session, name)
    raise Failed(
        f"group {name!r} is closed: it {show.HOW[found.state]} at {show.clock(found.closed_at)}. "
        f"Its name is free: {session.command('group', 'send', name, 'BODY', '--queue', 'QUEUE')} "
        "makes a new one"
    )


@group.command
def start(name: str, /, *, session: Context) -> None:
    """Let the members of a group run. Send them first: an empty one ends at once.

    Example: fairlead group start import-7

    Args:
        name: The group.
    """
    handle = session.db.group(name)
    started = handle.start()
    found = handle.status()
    if not started and (found is None or found.closed):
        _not_open(session, name)
    text = f"group {name!r} {'is started' if started else 'was started already'}"
    if found is not None and not found.closed:
        text += f": {show.unfinished(found)}"
    elif found is not None:
        text += f" and {show.HOW[found.state]}: it had no unfinished members"
    session.done(text, group=name, started=started)


@group.command
def cancel(name: str, /, *, yes: Yes = False, session: Context) -> None:
    """Delete a group's unfinished members, leased ones too, and send its abort work.

    Example: fairlead group cancel import-7 --yes

    Args:
        name: The group.
    """
    handle = session.db.group(name)
    found = handle.status()
    if found is None or found.closed:
        _not_open(session, name)
    number = found.held + found.waiting + found.leased
    if number:
        members = show.many(number, "unfinished member")
        session.confirm(f"cancelling group {name!r} with {members}", yes)
    if not handle.cancel():
        _not_open(session, name)
    session.done(f"group {name!r} is cancelled", group=name, cancelled=True)


@group.command
def wait(name: str, /, *, timeout: Duration | None = None, session: Context) -> int:
    """Wait until a group closes. Exit: 0 ended, 1 cancelled or aborted, 3 unknown, 4 timed out.

    Example: fairlead group wait import-7 --timeout 1h

    Args:
        name: The group.
        timeout: Wait no longer than this; without it there is no end.
    """
    handle = session.db.group(name)
    found = handle.status()
    if found is not None and found.state == "open" and timeout != 0:
        session.note(f"it is not started yet: {session.command('group', 'start', name)}")
    try:
        found = handle.wait(timeout)
    except WaitTimeout:
        found = handle.status()
        if session.json and found is not None:
            session.emit({**show.group_facts(found), "timed_out": True})
        how = "is not finished yet" if found is None else show.unfinished(found)
        session.error(f"group {name!r}: {how}. Wait again, or longer with --timeout")
        return TIMED_OUT
    if found is None:
        if session.json:
            session.emit({"group": name, "state": None})
        session.error(f"no group is called {name!r}: never made, or closed a day ago")
        return GONE
    if session.json:
        session.emit(show.group_facts(found))
    else:
        counts = f"{found.sent:,} sent, {found.done:,} done, {found.dead:,} dead"
        session.say(f"group {name!r} {show.HOW[found.state]}: {counts}")
    return DONE if found.state == "ended" else DEAD


@group.command
def send(
    name: str,
    body: str | None = None,
    /,
    *,
    queue: str | None = None,
    end: Annotated[str | None, Parameter(metavar="JSON")] = None,
    abort: Annotated[str | None, Parameter(metavar="JSON")] = None,
    on_dead: OnDead = "ignore",
    file: Path | None = None,
    bytes: bool = False,
    lines: bool = False,
    options: Options | None = None,
    session: Context,
) -> None:
    """Send a member of a group; the first makes the group. It is held until the start.

    Example: fairlead group send import-7 '{"page": 1}' --queue pages --end '{"print": 7}'

    Args:
        name: The group.
        body: The body, or - to read it from stdin.
        queue: The queue; of an open group it may be left out.
        end: A body to send there when all members are finished.
        abort: A body to send there when the group is cancelled.
        on_dead: abort: cancel the group when a member dies.
        file: Read the body from this file.
        bytes: Send the body's bytes as they are, not as JSON.
        lines: Send one member per line of stdin (or --file), in batches.
    """
    found = session.db.group(name).status()
    is_open = found is not None and not found.closed
    if queue is None:
        if found is None or found.closed:
            raise Refused(f"no group {name!r} is open: --queue says in which queue to make it")
        queue = found.queue
    if is_open and (end is not None or abort is not None or on_dead != "ignore"):
        session.note(f"group {name!r} is open already: its end, abort and on-dead stay as they are")
    handle = session.db.group(
        name,
        queue,
        end=None if end is None else parsing.body(end),
        abort=None if abort is None else parsing.body(abort),
        on_dead=on_dead,
    )
    ship(session, queue, handle.send_many, Body(body, file, bytes, lines), options or Options())
    if found is None or found.state != "running":
        session.note(f"held until: {session.command('group', 'start', name)}")
