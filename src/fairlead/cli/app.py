"""The command line: its commands, its global options, and how it fails."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Group, Parameter, UnusedCliTokensError

import fairlead
from fairlead import errors
from fairlead.cli import channels, groups, leases, messages, queues, schedules, show, tasks
from fairlead.cli.bench import bench
from fairlead.cli.care import doctor, maintain
from fairlead.cli.demo import demo
from fairlead.cli.events import events
from fairlead.cli.insight import explain, failures, peek, stats, trace
from fairlead.cli.parsing import STDIN
from fairlead.cli.relay import relay
from fairlead.cli.sending import send
from fairlead.cli.serving import serve
from fairlead.cli.session import Failed, Refused, Session
from fairlead.cli.top import top
from fairlead.cli.waiting import wait
from fairlead.cli.worker import worker

INTERRUPTED, BROKEN_PIPE = 130, 141  # as a shell tells the signals
_DRIVERS = ("sqlite3", "psycopg", "pymysql")
# Where an unknown queue may be one that is yet to be created; elsewhere it is a spelling mistake.
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

app = App(
    name="fairlead",
    help="Durable, fair, multi-tenant message queues in the database you already run.",
    version=fairlead.__version__,
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
)

_WORK = Group("Messages", sort_key=1)
_TASKS = Group("Tasks", sort_key=2)
_SERVE = Group("Servers", sort_key=3)
_LOOK = Group("Insight", sort_key=4)
_QUEUES = Group("Queues", sort_key=5)
_CARE = Group("Care", sort_key=6)
_TRY = Group("Try", sort_key=7)

_COMMANDS: tuple[tuple[Group, tuple[Any, ...]], ...] = (
    (_WORK, (send,)),
    (_WORK, (leases.receive,)),
    (_WORK, (leases.ack, leases.lease)),
    (_WORK, (wait, groups.group, schedules.schedule)),
    (_WORK, (messages.cancel, messages.reschedule, messages.dead)),
    (_TASKS, (worker, tasks.task)),
    (_SERVE, (serve, relay)),
    (_LOOK, (stats, top, peek, explain, failures, trace, events)),
    (_QUEUES, (queues.queue, channels.channel)),
    (_CARE, (queues.migrate, maintain, doctor)),
    (_TRY, (demo, bench)),
)
for _key, (_group, _commands) in enumerate(_COMMANDS):
    for _command in _commands:
        if isinstance(_command, App):
            _command.group, _command.sort_key = _group, _key
            app.command(_command)
        else:
            app.command(_command, group=_group, sort_key=_key)
_EVERYWHERE = Group("Everywhere", sort_key=99)
app["--help"].group = app["--version"].group = _EVERYWHERE
app.meta.group_parameters = _EVERYWHERE


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    db: Annotated[
        str | None,
        Parameter(
            metavar="URL",
            help="The database. Default: $FAIRLEAD_URL, else sqlite:///fairlead.db "
            "(demo: always a new file).",
        ),
    ] = None,
    schema: Annotated[
        str, Parameter(metavar="NAME", help="The installation's schema, or table prefix.")
    ] = "fairlead",
    pooler: Annotated[
        bool, Parameter(help="Through PgBouncer: no prepared statements.", negative=())
    ] = False,
    json: Annotated[bool, Parameter(help="Answer in JSON.", negative=())] = False,
) -> int:
    """Read the global options, then run the command with a session."""
    environment = os.environ.get("FAIRLEAD_URL") or None
    session = Session(db or environment, schema, json, pooler)
    session.from_environment = db is None and environment is not None
    if db == "":
        session.error("--db is empty: give the URL of a database. Is $FAIRLEAD_URL set?")
        return 2
    try:
        return _run_command(session, tokens)
    finally:
        session.close()


def _run_command(session: Session, tokens: Sequence[str]) -> int:
    try:
        command, bound, ignored = app.parse_args(tokens, exit_on_error=False, print_error=False)
        extra: dict[str, Any] = {"session": session} if "session" in ignored else {}
        code = command(*bound.args, **bound.kwargs, **extra)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CycloptsError as error:
        command = " ".join(["fairlead", *(error.command_chain or ())])
        session.error(_spare(error, command) or str(error))
        session.note(f"see: {command} --help")
        return 2
    except Refused as error:
        session.error(str(error))
        return 2
    except Failed as error:
        session.error(str(error))
        return 1
    except errors.FairleadError as error:
        session.error(in_commands(session, error, app.parse_commands(tokens)[0]))
        return 2 if isinstance(error, errors.UsageError) else 1
    except ModuleNotFoundError as error:
        if str(error).startswith("No module named"):
            raise
        session.error(str(error))  # a driver: the text, which is ours, says what to install
        return 1
    except Exception as error:
        if type(error).__module__.split(".")[0] not in _DRIVERS:
            raise
        session.error(f"the database says: {error}")
        return 1


def _spare(error: CycloptsError, command: str) -> str | None:
    """The words of a command that it has no use for, said plainly."""
    if not isinstance(error, UnusedCliTokensError):
        return None
    words = " ".join(error.unused_tokens or ())
    return f"{command} takes no argument {words!r}"


def in_commands(
    session: Session, error: errors.FairleadError, command: tuple[str, ...] = ()
) -> str:
    """An error's text with the library's calls as commands."""
    match error:
        case errors.QueueNotFound():
            name = error.queue
            near = _near(session, name)
            if near:
                return f"no queue is called {name!r}. Did you mean {near!r}?"
            if command in _CREATABLE:
                return (
                    f"no queue is called {name!r}. "
                    f"Create it: {session.command('queue', 'create', name)}"
                )
            return f"no queue is called {name!r}. See them all: {session.command('queue', 'list')}"
        case errors.ScheduleNotFound():
            text = f"no schedule is called {error.name!r}."
            near = show.near(error.name, [one.name for one in session.db.schedules()])
            if near:
                return f"{text} Did you mean {near!r}?"
            return f"{text} See them all: {session.command('schedule', 'list')}"
        case errors.DuplicateKey():
            keys = ", ".join(repr(key) for key in error.keys[:5])
            return (
                f"queue {error.queue!r} already has a message with key {keys}; nothing was sent. "
                "Keep it with --on-conflict ignore, or overwrite it with --on-conflict replace"
            )
        case errors.SchemaOutdated():
            text = str(error).split(": run `fairlead migrate`")[0]
            return f"{text}\nrun: {session.command('migrate')}"
        case errors.DatabaseUnavailable() if "unsupported startup parameter" in str(error):
            return f"{error}\nThis is a pooler: add --pooler"
        case errors.MessageLeased():
            text = str(error).split(": a worker")[0]
            return f"{text}: a worker is busy with it. Let it finish, or remove it with --force"
        case errors.BodyTooLarge():
            return (
                f"the body has {error.size:,} bytes and the queue takes at most {error.limit:,}; "
                "nothing was sent. Raise it with: fairlead queue set QUEUE --max-body SIZE"
            )
        case errors.ChannelFull():
            text = str(error).split(" Send later")[0]
            more = session.command("channel", "policy", error.queue, error.channel)
            return f"{text} Send later, or raise it: {more} --max-size N"
        case errors.InvalidArgument():
            return _KEYWORD.sub(_option, str(error))
        case _:
            return str(error)


def _option(keyword: re.Match[str]) -> str:
    """``max_size=`` is --max-size here, and ``id=`` the word ID."""
    name = keyword[1]
    blank = " " if keyword.string[keyword.end() :].startswith('"') else ""
    return "ID" if name == "id" else f"--{name.replace('_', '-')}{blank}"


def _near(session: Session, name: str) -> str | None:
    try:
        return show.near(name, session.db.queues())
    except Exception:  # the first error is the one to tell
        return None


def _prepare(arguments: Sequence[str]) -> list[str]:
    """A lone - is stdin, not a broken option; after -- everything is as it is."""
    arguments = list(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [STDIN if a == "-" and i < end else a for i, a in enumerate(arguments)]


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit code. Nothing a person did wrong ends in a traceback."""
    try:
        code = app.meta(
            _prepare(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CycloptsError as error:  # in a global option
        Session().error(str(error))
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away, which is its right. Python must not try to flush to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
