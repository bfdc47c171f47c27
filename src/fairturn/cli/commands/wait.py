"""``fairturn wait``: wait until a message is finished. The exit code is its outcome."""

from __future__ import annotations

import time
from typing import Any

from fairturn.cli import show
from fairturn.cli.arguments import Context, IdOrKey, Key, QueueName, Timeout
from fairturn.cli.session import Session
from fairturn.core.errors import WaitTimeout
from fairturn.core.values import Outcome
from fairturn.sync.queue import Queue

DONE, DEAD, GONE, TIMED_OUT = 0, 1, 3, 4  # 2 means that the command must be changed
CODES = {"done": DONE, "dead": DEAD, "gone": GONE}


def wait(
    queue: QueueName,
    id: IdOrKey = None,
    /,
    *,
    key: Key = None,
    timeout: Timeout = None,
    partial: bool = False,
    session: Context,
) -> int:
    """Wait until a message is finished, and print its result or error.

    Exit code: 0 done, 1 dead, 3 gone, 4 timed out.

    Example: fairturn wait emails 42 --timeout 5m --partial

    Args:
        partial: Also print its progress, one line for each change.
    """
    target, outcome = session.queue(queue), None
    end = None if timeout is None else time.monotonic() + timeout
    try:
        while outcome is None or not outcome.finished:
            if outcome is not None:
                _tell(session, queue, outcome)
                id, key = outcome.id, None  # its key may belong to another message by now
            left = None if end is None else max(end - time.monotonic(), 0)
            outcome = target.wait(id=id, key=key, timeout=left, partial=partial)
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
            session.say(f"{who} is gone: acked, cancelled, expired, or never sent")
        case state:
            session.say(f"{who} is {state}: {show.progress(outcome.progress, outcome.note)}")


def _too_long(session: Session, target: Queue, id: int | None, key: str | None) -> int:
    """Print the present state of a message that is not finished in time."""
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
