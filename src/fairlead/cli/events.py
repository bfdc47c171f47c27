"""``fairlead events``: what happens, a line each."""

from __future__ import annotations

import contextlib
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from fairlead.cli import show
from fairlead.cli.session import Context, Session, clean
from fairlead.doctor.patient import all_settings
from fairlead.errors import DatabaseError
from fairlead.values import Event, EventKind

START, NOW = "start", "now"
_STYLES = {"created": "green", "leased": "yellow", "deferred": "cyan", "done": "dim", "dead": "red"}


def events(
    *,
    queue: str | None = None,
    kind: Annotated[list[EventKind] | None, Parameter(consume_multiple=True)] = None,
    after: Annotated[str | None, Parameter(metavar="CURSOR|start|now")] = None,
    follow: Annotated[bool, Parameter(negative="--no-follow")] = True,
    session: Context,
) -> None:
    """What happens in queues whose events are switched on, a line each. Ctrl-C ends.

    The last line on stderr is the cursor: --after goes on from there.

    Example: fairlead events --queue emails --kind dead closed --json

    Args:
        queue: Only of this queue.
        kind: Only these kinds.
        after: Go on after this cursor. Default: now, or with --no-follow the start.
        follow: Go on until Ctrl-C (the default), or end after what is there already.
    """
    if after is None:
        after = NOW if follow else START
    _check_switched_on(session, queue)
    words: dict[str, str | None] = {START: "", NOW: None}
    found = session.db.events(
        queue, kinds=kind, after=words.get(after, after), timeout=None if follow else 0
    )
    told = found.cursor
    try:
        with contextlib.suppress(KeyboardInterrupt):
            for event in found:
                _tell(session, event)
                told = found.cursor  # not before it is printed: what was not comes again
            told = found.cursor
    except (DatabaseError, BrokenPipeError):
        session.note(f"cursor: {told}")
        raise
    session.note(f"cursor: {told}")


def _check_switched_on(session: Session, queue: str | None) -> None:
    """Nothing to see is worth a word: nobody has switched events on."""
    if queue is not None:
        if not session.queue(queue).settings().events:
            on = session.command("queue", "set", queue, "--events")
            session.note(f"queue {queue!r} writes no events. Switch them on: {on}")
        return
    known = all_settings(session.db)
    if not any(settings.events for settings in known):
        name = known[0].name if len(known) == 1 else "QUEUE"
        on = session.command("queue", "set", name, "--events")
        session.note(f"no queue writes events. Switch them on: {on}")


def _tell(session: Session, event: Event) -> None:
    if session.json:
        session.emit_line(show.event_facts(event))
        return
    line = Text(f"{event.at.astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3], style="dim")
    line.append(f"  {event.kind:8}", style=_STYLES.get(event.kind, ""))
    line.append(f"  {clean(event.queue)}")
    if event.id is not None:
        line.append(f"  {event.id}", style="bold")
    for name, value in (("key", event.key), ("channel", event.channel)):
        if value:
            line.append(f"  {name} {clean(value)}")
    if event.delay:
        line.append(f"  in {show.span(event.delay)}")
    if event.data:
        line.append(f"  {clean(show.full(dict(event.data)))}", style="dim")
    session.say(line)
    session.out.file.flush()
