"""``fairlead wait``: until a message is finished. Its exit code tells how it ended."""

from __future__ import annotations

import time
from typing import Any

from fairlead.cli import show
from fairlead.cli.parsing import Duration
from fairlead.cli.session import Context, Session
from fairlead.errors import WaitTimeout
from fairlead.sync.queue import Queue
from fairlead.values import Outcome

DONE, DEAD, GONE, TIMED_OUT = 0, 1, 3, 4  # 2 is a command that has to be changed
CODES = {"done": DONE, "dead": DEAD, "gone": GONE}


class Clock:
    """What is left of a time-out; None: no end."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        return None if self._end is None else max(self._end - time.monotonic(), 0)


def wait(
    queue: str,
    id: int | None = None,
    /,
    *,
    key: str | None = None,
    timeout: Duration | None = None,
    partial: bool = False,
    session: Context,
) -> int:
    """Wait until a message is finished. Exit code: 0 done, 1 dead, 3 gone, 4 timed out.

    Example: fairlead wait emails 42 --timeout 5m --partial

    Args:
        queue: The queue.
        id: The message's id, or give --key.
        key: The message's key.
        timeout: Wait no longer than this; without it there is no end.
        partial: Also print its progress, a line for each change.
    """
    target, clock = session.queue(queue), Clock(timeout)
    outcome = None
    try:
        while outcome is None or not outcome.finished:
            if outcome is not None:
                _tell(session, queue, outcome)
                id, key = outcome.id, None  # the same message, whoever gets its key next
            outcome = target.wait(id=id, key=key, timeout=clock.left(), partial=partial)
    except WaitTimeout:
        return _too_long(session, target, id, key)
    _tell(session, queue, outcome)
    return CODES[outcome.state]


def _tell(session: Session, queue: str, outcome: Outcome) -> None:
    if session.json:
        session.emit_line({"queue": queue, **show.outcome_facts(outcome)})
        return
    who = "the message" if outcome.id is None else f"message {outcome.id}"
    match outcome.state:
        case "done":
            session.say(f"{who} is done")
            if outcome.result is not None:
                session.say(show.full(outcome.result))
        case "dead":
            session.say(f"{who} is dead: {outcome.error or 'no error was given'}")
            if outcome.id is not None:
                session.note(f"why: {session.command('failures', queue, '--id', outcome.id)}")
        case "gone":
            session.say(f"{who} is gone: acked, cancelled, expired, or never there")
        case state:
            session.say(f"{who} is {state}: {show.progress(outcome.progress, outcome.note)}")


def _too_long(session: Session, target: Queue, id: int | None, key: str | None) -> int:
    """Say how far it is; it may have ended just now, and then the next wait tells."""
    found = target.get(id=id, key=key)
    facts: dict[str, Any] = {"queue": target.name, "id": id, "key": key, "timed_out": True}
    text = "it"
    if found is not None:
        far = show.progress(found.progressed, found.note)
        facts |= {"id": found.id, "state": found.state}
        facts |= {"progress": found.progressed, "note": found.note}
        text = f"message {found.id}, which is {found.state}{', ' + far if far else ''},"
    if session.json:
        session.emit_line(facts)
    session.error(f"{text} is not finished yet: wait again, or longer with --timeout")
    return TIMED_OUT
