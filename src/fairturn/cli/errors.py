"""The errors of commands, and the text that the command line shows for every error."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fairturn.core import errors

if TYPE_CHECKING:
    from fairturn.cli.session import Session

# In these commands an unknown queue may be a new one; in all others it is a typing mistake.
_CREATABLE = (
    ("send",),
    ("receive",),
    ("group", "send"),
    ("queue", "set"),
    ("channel", "policy"),
    ("schedule", "add"),
    ("relay", "set"),
)
_KEYWORD = re.compile(r"\b([a-z_]+)=(?!\w)")


class CommandError(errors.UsageError):
    """The command must be changed, or was not confirmed. Exit code 2."""


class CommandFailed(errors.FairturnError):
    """The command is correct, but could not be carried out. Exit code 1."""


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return a hint for an unknown name: the most similar known one, or ``otherwise``."""
    nearest = next(iter(difflib.get_close_matches(name, list(names), 1)), None)
    return otherwise if nearest is None else f"Did you mean {nearest!r}?"


def text_of(session: Session, error: errors.FairturnError, command: tuple[str, ...] = ()) -> str:
    """Return the text of an error, with commands in its hint instead of Python calls."""
    match error:
        case errors.QueueNotFound():
            hint = _queue_hint(session, error.queue, command)
        case errors.ScheduleNotFound():
            see = f"See them all: {session.command('schedule', 'list')}"
            hint = did_you_mean(error.name, [one.name for one in session.db.schedules()], see)
        case errors.DuplicateKey():
            hint = "Keep it with --on-conflict ignore, or overwrite it with --on-conflict replace"
        case errors.SchemaOutdated() if error.remedy == "migrate":
            return f"{error.problem}\nrun: {session.command('migrate')}"
        case errors.DatabaseUnavailable() if "unsupported startup parameter" in str(error):
            return f"{error}\nThis is a pooler: add --pooler"
        case errors.MessageLeased():
            hint = "Let it finish, or remove it with --force"
        case errors.BodyTooLarge():
            hint = "Raise it with: fairturn queue set QUEUE --max-body SIZE"
        case errors.ChannelFull():
            policy = session.command("channel", "policy", error.queue, error.channel)
            hint = f"Send later, or raise it: {policy} --max-size N"
        case errors.InvalidArgument():
            return _KEYWORD.sub(_option, str(error))
        case _:
            return str(error)
    return f"{error.problem}. {hint}"


def _queue_hint(session: Session, name: str, command: tuple[str, ...]) -> str:
    if command in _CREATABLE:
        otherwise = f"Create it: {session.command('queue', 'create', name)}"
    else:
        otherwise = f"See them all: {session.command('queue', 'list')}"
    try:
        return did_you_mean(name, session.db.queues(), otherwise)
    except Exception:  # the first error is the one to show
        return otherwise


def _option(match: re.Match[str]) -> str:
    """Write ``max_size=`` as --max-size, and ``id=`` as the argument ID."""
    name = match[1]
    blank = " " if match.string[match.end() :].startswith('"') else ""
    return "ID" if name == "id" else f"--{name.replace('_', '-')}{blank}"
