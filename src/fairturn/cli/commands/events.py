"""``fairturn events``: print events as they happen."""

from __future__ import annotations

import contextlib
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from fairturn.cli import show
from fairturn.cli.arguments import Context
from fairturn.cli.session import Session, clean
from fairturn.core.errors import DatabaseError
from fairturn.core.values import Event, EventKind
from fairturn.doctor.examination import all_settings

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
    """Print the events of queues with --events, one line each, until Ctrl-C.

    The last line on stderr is the cursor: --after goes on from there.

    Example: fairturn events --queue emails --kind dead closed --json

    Args:
        queue: Only events of this queue.
        kind: Only events of these kinds.
        after: Begin after this cursor. Default now; with --no-follow start.
        follow: Go on until Ctrl-C (default), or end after the existing events.
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
                told = found.cursor  # after it is printed: an event that was not comes again
            told = found.cursor
    except (DatabaseError, BrokenPipeError):
        session.note(f"cursor: {told}")
        raise
    session.note(f"cursor: {told}")


def _check_switched_on(session: Session, queue: str | None) -> None:
    """Say so if no event can come, because the queues write none."""
    if queue is not None:
        if not session.queue(queue).settings().events:
            on = session.command("queue", "set", queue, "--events")
            session.note(f"queue {queue!r} writes no events. Switch them on: {on}")
        return
    queues = all_settings(session.db)
    if not any(settings.events for settings in queues):
        name = queues[0].name if len(queues) == 1 else "QUEUE"
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
