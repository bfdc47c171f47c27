"""The command line: its commands, the options of every command, and how errors end it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Group, Parameter, UnusedCliTokensError

import fairturn
from fairturn.cli.commands import channels, groups, leases, messages, queues, schedules, tasks
from fairturn.cli.commands.events import events
from fairturn.cli.commands.insight import explain, failures, peek, stats, trace
from fairturn.cli.commands.maintenance import doctor, maintain
from fairturn.cli.commands.send import send
from fairturn.cli.commands.wait import wait
from fairturn.cli.demo import demo
from fairturn.cli.errors import text_of
from fairturn.cli.parsing import STDIN
from fairturn.cli.programs.bench import bench
from fairturn.cli.programs.relay import relay
from fairturn.cli.programs.serve import serve
from fairturn.cli.programs.top import top
from fairturn.cli.programs.worker import worker
from fairturn.cli.session import Session
from fairturn.core.errors import FairturnError, UsageError

INTERRUPTED, BROKEN_PIPE = 130, 141  # the exit codes of a shell for these signals
_DRIVERS = ("sqlite3", "psycopg", "pymysql")

app = App(
    name="fairturn",
    help="Durable, fair, multi-tenant message queues in the database you already run.",
    version=fairturn.__version__,
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
)

# The groups of `fairturn --help`. Within a group, commands of one line are sorted by name.
_COMMANDS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "Messages": (
        (send,),
        (leases.receive,),
        (leases.ack, leases.lease),
        (wait, groups.group, schedules.schedule),
        (messages.cancel, messages.reschedule, messages.dead),
    ),
    "Tasks": ((worker, tasks.task),),
    "Servers": ((serve, relay),),
    "Inspect": ((stats, top, peek, explain, failures, trace, events),),
    "Queues": ((queues.queue, channels.channel),),
    "Maintenance": ((queues.migrate, maintain, doctor),),
    "Try it": ((demo, bench),),
}
for _place, (_name, _lines) in enumerate(_COMMANDS.items()):
    _group = Group(_name, sort_key=_place)
    for _key, _commands in enumerate(_lines):
        for _command in _commands:
            if isinstance(_command, App):
                _command.group, _command.sort_key = _group, _key
                app.command(_command)
            else:
                app.command(_command, group=_group, sort_key=_key)
_EVERYWHERE = Group("Options of every command", sort_key=99)
app["--help"].group = app["--version"].group = _EVERYWHERE
app.meta.group_parameters = _EVERYWHERE


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    db: Annotated[
        str | None,
        Parameter(
            metavar="URL",
            help="The database. Default $FAIRTURN_URL, else sqlite:///fairturn.db "
            "(demo: always a new file).",
        ),
    ] = None,
    schema: Annotated[
        str,
        Parameter(
            metavar="NAME",
            help="The schema or table prefix. Default fairturn.",
        ),
    ] = "fairturn",
    pooler: Annotated[
        bool,
        Parameter(help="Use no prepared statements: for PgBouncer.", negative=()),
    ] = False,
    json: Annotated[bool, Parameter(help="Print JSON instead of text.", negative=())] = False,
) -> int:
    """Read the global options, then run the command with a session."""
    environment = os.environ.get("FAIRTURN_URL") or None
    session = Session(db or environment, schema, json, pooler)
    session.from_environment = db is None and environment is not None
    if db == "":
        session.error("--db is empty: give the URL of a database. Is $FAIRTURN_URL set?")
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
        command = " ".join(["fairturn", *(error.command_chain or ())])
        text = str(error)
        if isinstance(error, UnusedCliTokensError):
            text = f"{command} takes no argument {' '.join(error.unused_tokens or ())!r}"
        session.error(text)
        session.note(f"see: {command} --help")
        return 2
    except FairturnError as error:
        commands, *_ = app.parse_commands(tokens)
        session.error(text_of(session, error, commands))
        return 2 if isinstance(error, UsageError) else 1
    except ModuleNotFoundError as error:
        if str(error).startswith("No module named"):
            raise
        session.error(str(error))  # the text is Fairturn's own, and says what to install
        return 1
    except Exception as error:
        if type(error).__module__.split(".")[0] not in _DRIVERS:
            raise
        session.error(f"the database says: {error}")
        return 1


def _prepare(arguments: Sequence[str]) -> list[str]:
    """Mark a lone - as stdin, so that it is not taken for an option. After -- nothing changes."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [STDIN if a == "-" and i < end else a for i, a in enumerate(arguments)]


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. A mistake of the user shows no traceback."""
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
        # The reader of the pipe has ended. Python must not try to flush to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
