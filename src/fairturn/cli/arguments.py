"""Arguments and options that several commands have: each has one type and one help text.

What only one command has is described in that command's docstring."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from fairturn.cli.parsing import Duration, Time
from fairturn.cli.session import Session

# The session of a command; it is not parsed from the command line.
Context = Annotated[Session, Parameter(parse=False)]

QueueName = Annotated[str, Parameter(help="The name of the queue.")]
GroupName = Annotated[str, Parameter(help="The name of the group.")]
ScheduleName = Annotated[str, Parameter(help="The name of the schedule.")]
AppName = Annotated[
    str, Parameter(metavar="APP", help="The app: MODULE:ATTRIBUTE, such as shop:app.")
]

# --- one message ----------------------------------------------------------------------------------
Id = Annotated[int, Parameter(help="The id of the message.")]
IdOrKey = Annotated[int | None, Parameter(help="The id of the message; or give --key.")]
Key = Annotated[str | None, Parameter(help="The key of the message, instead of its id.")]
Token = Annotated[int, Parameter(help="The token of the lease, which receive printed.")]
Reference = Annotated[str | None, Parameter(help="Where to read more: a trace id, a URL.")]
Delay = Annotated[Duration | None, Parameter(help="It is due this long after now: 30s, 5m.")]
At = Annotated[Time | None, Parameter(help="It is due at this time: 2030-01-31T09:00, or +5m.")]
BodyText = Annotated[str | None, Parameter(help="The body, or - to read it from stdin.")]
BodyFile = Annotated[Path | None, Parameter(help="Read the body from this file.")]
AsBytes = Annotated[bool, Parameter(help="Send the body unchanged, not as JSON.")]
AsLines = Annotated[bool, Parameter(help="Send each line of stdin (or --file).")]

# --- many messages --------------------------------------------------------------------------------
Number = Annotated[int, Parameter(name="-n", help="How many, at most.")]
After = Annotated[int, Parameter(help="Only ids after this one: the last id of the page before.")]
ListLimit = Annotated[int, Parameter(help="How many, at most. Default 1000.")]
DeadLimit = Annotated[int | None, Parameter(help="How many, at most. Default all.")]

# --- how a command runs ---------------------------------------------------------------------------
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], help="Do not ask for confirmation.")]
Timeout = Annotated[Duration | None, Parameter(help="Wait at most this long. Default for ever.")]
LogFormat = Annotated[
    Literal["text", "json"],
    Parameter(
        metavar="text|json",
        show_choices=False,
        help="The format of the log (json when piped).",
    ),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    Parameter(
        metavar="LEVEL",
        show_choices=False,
        help="debug, info (the default), warning, error.",
    ),
]
