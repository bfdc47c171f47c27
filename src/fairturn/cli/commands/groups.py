"""``fairturn group …``: messages that belong together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NoReturn

from cyclopts import App, Parameter
from rich.text import Text

from fairturn.cli import parsing, show
from fairturn.cli.arguments import (
    AsBytes,
    AsLines,
    BodyFile,
    BodyText,
    Context,
    GroupName,
    ListLimit,
    Timeout,
    Yes,
)
from fairturn.cli.commands.send import Body, Options, note_held, ship
from fairturn.cli.commands.wait import DEAD, DONE, GONE, TIMED_OUT
from fairturn.cli.errors import CommandError, CommandFailed, did_you_mean
from fairturn.cli.session import Session
from fairturn.core.errors import WaitTimeout
from fairturn.core.values import GroupStatus
from fairturn.operations.groups import OnDead

group = App(name="group", help="Send, start, inspect and cancel groups of messages.")
_STYLES = {"open": "magenta", "running": "yellow", "ended": "green"}


@group.command(name="list")
def list_(*, limit: ListLimit = 1000, session: Context) -> None:
    """List the open groups by name.

    Example: fairturn group list
    """
    found, now = session.db.groups(limit), session.now()
    columns: dict[str, Callable[[GroupStatus], Any]] = {
        "group": lambda one: one.name,
        "queue": lambda one: one.queue,
        "state": lambda one: Text(one.state, style=_STYLES.get(one.state, "red")),
    }
    for name in ("held", "waiting", "leased", "sent", "done", "dead"):
        columns[f">{name}"] = lambda one, name=name: show.count(getattr(one, name), name)
    columns["age"] = lambda one: show.age(one.created_at, now)
    more = f"the first {limit:,}; see more with --limit" if len(found) == limit else ""
    session.listing(found, show.group_facts, columns, empty="no groups are open", more=more)


@group.command
def status(name: GroupName, /, *, session: Context) -> None:
    """Print the state of a group, or its outcome.

    A closed group is kept for a day.

    Example: fairturn group status import-7
    """
    found = session.db.group(name).status()
    if found is None:
        _unknown(session, name)
    session.sheet(
        show.group_facts(found),
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
    if found.state == "open" and not session.json:
        session.note(f"start its members: {session.command('group', 'start', found.name)}")


def _unknown(session: Session, name: str) -> NoReturn:
    look = f"It was never made, or closed a day ago. Open ones: {session.command('group', 'list')}"
    hint = did_you_mean(name, [one.name for one in session.db.groups()], look)
    raise CommandFailed(f"no group is called {name!r}", hint)


def _not_open(session: Session, name: str) -> NoReturn:
    found = session.db.group(name).status()
    if found is None:
        _unknown(session, name)
    raise CommandFailed(
        f"group {name!r} is closed: it {show.HOW[found.state]} at {show.clock(found.closed_at)}",
        f"Its name is free: {session.command('group', 'send', name, 'BODY', '--queue', 'QUEUE')} "
        "makes a new one",
    )


@group.command
def start(name: GroupName, /, *, session: Context) -> None:
    """Start a group: its held members can be delivered.

    Send the members first: an empty group ends immediately.

    Example: fairturn group start import-7
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
def cancel(name: GroupName, /, *, yes: Yes = False, session: Context) -> None:
    """Delete the unfinished members of a group, leased ones too, and send its abort message.

    Example: fairturn group cancel import-7 --yes
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
def wait(name: GroupName, /, *, timeout: Timeout = None, session: Context) -> int:
    """Wait until a group closes.

    Exit code: 0 ended, 1 cancelled or aborted, 3 unknown, 4 timed out.

    Example: fairturn group wait import-7 --timeout 1h
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
    counts = f"{found.sent:,} sent, {found.done:,} done, {found.dead:,} dead"
    session.done(f"group {name!r} {show.HOW[found.state]}: {counts}", **show.group_facts(found))
    return DONE if found.state == "ended" else DEAD


@group.command
def send(
    name: GroupName,
    body: BodyText = None,
    /,
    *,
    queue: str | None = None,
    end: Annotated[str | None, Parameter(metavar="JSON")] = None,
    abort: Annotated[str | None, Parameter(metavar="JSON")] = None,
    on_dead: OnDead = "ignore",
    file: BodyFile = None,
    bytes: AsBytes = False,
    lines: AsLines = False,
    options: Options | None = None,
    session: Context,
) -> None:
    """Send a member of a group; the first member creates the group.

    Example: fairturn group send import-7 '{"page": 1}' --queue pages --end '{"print": 7}'

    Args:
        queue: The queue of a new group; an open group has one.
        end: Body of a message for when all members are finished.
        abort: Body of a message for when it is cancelled.
        on_dead: abort: a dead member cancels the group.
    """
    found = session.db.group(name).status()
    if found is not None and found.closed:
        found = None
    if queue is None:
        if found is None:
            raise CommandError(f"no group {name!r} is open", "Give --queue to create it there")
        queue = found.queue
    if found is not None and (end is not None or abort is not None or on_dead != "ignore"):
        session.note(f"group {name!r} is open already: its end, abort and on-dead stay as they are")
    handle = session.db.group(
        name,
        queue,
        end=None if end is None else parsing.body(end),
        abort=None if abort is None else parsing.body(abort),
        on_dead=on_dead,
    )
    ship(session, queue, handle.send_many, Body(body, file, bytes, lines), options or Options())
    note_held(session, name)
