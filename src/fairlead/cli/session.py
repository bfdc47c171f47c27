"""One run of the command line: which database, and how to speak to the person or the pipe."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.sync.database import Database, connect
from fairlead.sync.queue import Queue

DEFAULT_URL = "sqlite:///fairlead.db"
_PIPED_WIDTH = 4096  # a pipe has no width: nothing is cut or wrapped there
_PASSWORD = re.compile(r"^([a-z0-9+]+://[^/:@]*):(.*)@([^@]*)$", re.IGNORECASE)
_QUERY = re.compile(r"([?&](?:password|passwd|sslpassword|passfile)=)([^&]*)", re.IGNORECASE)


class Refused(Exception):
    """The person (or the lack of one) did not confirm; or the input makes no sense. Exit 2."""


class Failed(Exception):
    """The command did what it could and the answer is no. Exit 1."""


def secrets(url: str) -> list[str]:
    """Everything in a URL that must never be shown."""
    match = _PASSWORD.match(url)
    found = [match[2]] if match else []
    if match and "@" in match[2]:  # an unescaped @: some take what follows it for the host
        found.append(match[2].split("@", 1)[1] + "@")
    found += [m[2] for m in _QUERY.finditer(url)]
    return [s for text in found for s in {text, unquote(text)} if s]


def shown(url: str) -> str:
    """A URL without its secrets."""
    url = _PASSWORD.sub(r"\1:***@\3", url)
    return _QUERY.sub(r"\1***", url)


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite URL; None for another database, or one in memory."""
    if not url.startswith("sqlite:///"):
        return None
    path = unquote(url.removeprefix("sqlite:///").split("?", 1)[0])
    return Path(path) if path not in ("", ":memory:") else None


def clean(text: str) -> str:
    """A text that cannot move the cursor, colour the terminal or ring its bell."""
    text = text.replace("\t", " ")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # as from print(): one place decides what that means


def _console(stderr: bool = False) -> Console:
    console = _Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    return console


def _program() -> str:
    """How to call us again: by name, or by the path of a venv that is not on PATH."""
    own = Path(sys.argv[0])
    if shutil.which("fairlead") is None and own.exists():
        if own.name == "fairlead":
            return shlex.quote(os.path.relpath(own))
        if own.name == "__main__.py" and own.parent.name == "fairlead":
            return f"{shlex.quote(os.path.relpath(sys.executable))} -m fairlead"
    return "fairlead"


class Session:
    """Given to every command by the launcher. The database is opened on first use."""

    def __init__(
        self,
        url: str | None = None,
        schema: str = "fairlead",
        json: bool = False,
        pooler: bool = False,
    ) -> None:
        self.url = url or DEFAULT_URL
        self.given = url  # None: neither --db nor $FAIRLEAD_URL
        self.from_environment = False
        self.creates = False  # may this command make a SQLite file that is not there?
        self.schema = schema
        self.json = json
        self.pooler = pooler
        self.out = _console()
        self.err = _console(stderr=True)
        self.log_error: Callable[[str], None] | None = None  # where errors go instead of stderr
        self._db: Database | None = None

    def use(self, url: str) -> None:
        """Go on with another database, as if it had been given with --db."""
        self.close()
        self.url = self.given = url
        self.from_environment = False
        self._db = None
        self.creates = True

    @property
    def db(self) -> Database:
        if self._db is None:
            if not self.creates:
                self._refuse_a_missing_file()
            self._db = connect(self.url, schema=self.schema, prepare=not self.pooler)
        return self._db

    def _refuse_a_missing_file(self) -> None:
        """SQLite would make a new file out of every spelling mistake."""
        file = sqlite_file(self.url)
        if file is None or file.exists():
            return
        create = self.command("queue", "create", "NAME")
        if self.given is None:
            raise Refused(
                f"there is no {file} here, and no other database was named. Name yours with --db "
                f"or $FAIRLEAD_URL, or create this one with its first queue: {create}"
            )
        whose = "$FAIRLEAD_URL" if self.from_environment else "--db"
        raise Refused(
            f"the database {file} of {whose} does not exist. Correct the path, or create it with "
            f"its first queue: {create}"
        )

    def queue(self, name: str) -> Queue:
        return self.db.queue(name)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    @property
    def shown(self) -> str:
        return shown(self.url)

    def scrub(self, text: str) -> str:
        """Take this database's secrets out of a text, whoever wrote it."""
        for secret in secrets(self.url):
            text = text.replace(secret, "***")
        return text

    def command(self, *words: str | int) -> str:
        """A command of ours to try next, with this session's database, ready to paste."""
        parts = [_program(), *(shlex.quote(str(word)) for word in words)]
        if self.given is not None and not self.from_environment:
            # A password belongs neither on the screen nor into a shell's history.
            hidden = self.shown != self.url
            parts += ["--db", '"$FAIRLEAD_URL"' if hidden else shlex.quote(self.url)]
        if self.schema != "fairlead":
            parts += ["--schema", self.schema]
        if self.pooler:
            parts.append("--pooler")
        return " ".join(parts)

    # --- speaking ------------------------------------------------------------------------------
    def emit(self, value: Any) -> None:
        """One JSON document on stdout."""
        print(json.dumps(value, indent=2, ensure_ascii=False))

    def emit_line(self, value: Any) -> None:
        """One line of a JSON stream on stdout, at once."""
        print(json.dumps(value, ensure_ascii=False), flush=True)

    def say(self, text: str | Text = "", style: str | None = None) -> None:
        """A line for a person on stdout."""
        text = clean(text) if isinstance(text, str) else text
        self.out.print(text, style=style, soft_wrap=True)

    def note(self, text: str) -> None:
        """A remark beside the output, on stderr; never in the way of a pipe."""
        self.err.print(clean(text), style="dim", soft_wrap=True)

    def error(self, text: str) -> None:
        text = clean(self.scrub(text))
        if self.log_error is not None:
            self.log_error(text)
            return
        line = Text("error: ", style="bold red")
        line.append(text, style="red")
        self.err.print(line, soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Rows under headings; a heading that starts with ``>`` is aligned to the right."""
        self.print_table(make_table(columns, rows))

    def print_table(self, table: Table) -> None:
        if self.out.is_terminal:
            self.out.print(table)
            return
        with self.out.capture() as captured:
            self.out.print(table)
        for line in captured.get().splitlines():
            print(line.rstrip())  # a pipe needs no blanks at the end of a line

    def done(self, text: str, **facts: Any) -> None:
        """What a command did: a sentence, or with --json the facts."""
        if self.json:
            self.emit(facts)
        else:
            self.say(text)

    # --- asking --------------------------------------------------------------------------------
    def confirm(self, what: str, yes: bool) -> None:
        """Ask before something is destroyed; without a terminal ``--yes`` is needed."""
        if yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Refused(f"{what} cannot be undone: repeat the command with --yes")
        self.err.print(Text(f"{clean(what)}. Type yes to go on: ", style="yellow"), end="")
        if sys.stdin.readline().strip().lower() not in ("yes", "y"):
            raise Refused("nothing was done")


def make_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        right = name.startswith(">")
        table.add_column(name.lstrip(">"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: Any) -> Text:
    if isinstance(value, Text):
        return value
    if value is None or value == "":
        return Text("")
    if isinstance(value, int) and not isinstance(value, bool):
        return Text(f"{value:,}", style="dim" if value == 0 else "")
    return Text(clean(str(value)))


# How a command asks the launcher for its session; never parsed from the command line.
Context = Annotated[Session, Parameter(parse=False)]
