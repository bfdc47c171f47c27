"""One run of the command line: its database, and its output to a terminal or a pipe."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairturn.aio.database import AsyncDatabase, connect_async
from fairturn.cli.errors import CommandError
from fairturn.core.values import moment
from fairturn.sync.database import Database, connect
from fairturn.sync.queue import Queue

T = TypeVar("T")
DEFAULT_URL = "sqlite:///fairturn.db"
_PIPED_WIDTH = 4096  # a pipe has no width: no line is cut or wrapped
_PASSWORD = re.compile(r"^([a-z0-9+]+://[^/:@]*):(.*)@([^@]*)$", re.IGNORECASE)
_QUERY = re.compile(r"([?&](?:password|passwd|sslpassword|passfile)=)([^&]*)", re.IGNORECASE)


def secrets(url: str) -> list[str]:
    """Return all parts of a URL that must never be shown."""
    match = _PASSWORD.match(url)
    found = [match[2]] if match else []
    if match and "@" in match[2]:  # an unescaped @: some drivers take the rest for the host
        found.append(match[2].split("@", 1)[1] + "@")
    found += [match[2] for match in _QUERY.finditer(url)]
    return [s for text in found for s in {text, unquote(text)} if s]


def shown(url: str) -> str:
    """Return a URL without its secrets."""
    url = _PASSWORD.sub(r"\1:***@\3", url)
    return _QUERY.sub(r"\1***", url)


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite URL; None for another database, or one in memory."""
    if not url.startswith("sqlite:///"):
        return None
    path = unquote(url.removeprefix("sqlite:///").split("?", 1)[0])
    return Path(path) if path not in ("", ":memory:") else None


def clean(text: str) -> str:
    """Escape everything that would move the cursor, colour the terminal or ring its bell."""
    text = text.replace("\t", " ")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # as print() does; run() in app.py handles both


def _console(stderr: bool = False) -> Console:
    console = _Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    return console


def _program() -> str:
    """Return how to call this program: by name, or by the path of a venv that is not on PATH."""
    own = Path(sys.argv[0])
    if shutil.which("fairturn") is None and own.exists():
        if own.name == "fairturn":
            return shlex.quote(os.path.relpath(own))
        if own.name == "__main__.py" and own.parent.name == "fairturn":
            return f"{shlex.quote(os.path.relpath(sys.executable))} -m fairturn"
    return "fairturn"


class Session:
    """The options of every command, the database (opened on first use), and the output."""

    def __init__(
        self,
        url: str | None = None,
        schema: str = "fairturn",
        json: bool = False,
        pooler: bool = False,
    ) -> None:
        self.url = url or DEFAULT_URL
        self.given = url  # None: neither --db nor $FAIRTURN_URL
        self.from_environment = False
        self.creates = False  # may this command create a SQLite file that does not exist?
        self.schema = schema
        self.json = json
        self.pooler = pooler
        self.out = _console()
        self.err = _console(stderr=True)
        self.log_error: Callable[[str], None] | None = None  # where errors go instead of stderr
        self._db: Database | None = None

    def use(self, url: str) -> None:
        """Use another database, as if it had been given with --db."""
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

    def connect_async(self) -> AsyncDatabase:
        return connect_async(self.url, schema=self.schema, prepare=not self.pooler)

    def _refuse_a_missing_file(self) -> None:
        """Raise an error if the SQLite file does not exist: SQLite would create it."""
        file = sqlite_file(self.url)
        if file is None or file.exists():
            return
        create = self.command("queue", "create", "NAME")
        if self.given is None:
            raise CommandError(
                f"there is no {file} here, and no other database was named",
                "Name yours with --db or $FAIRTURN_URL, or create this one with its first queue: "
                f"{create}",
            )
        whose = "$FAIRTURN_URL" if self.from_environment else "--db"
        raise CommandError(
            f"the database {file} of {whose} does not exist",
            f"Correct the path, or create it with its first queue: {create}",
        )

    def queue(self, name: str) -> Queue:
        return self.db.queue(name)

    def now(self) -> datetime:
        """Return the time of the database's clock, which due times and leases use."""
        return moment(self.db.clock())

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    @property
    def shown(self) -> str:
        return shown(self.url)

    def scrub(self, text: str) -> str:
        """Remove this database's secrets from a text, for example from a driver's error."""
        for secret in secrets(self.url):
            text = text.replace(secret, "***")
        return text

    def command(self, *words: str | int) -> str:
        """Return a `fairturn` command for this session's database, ready to paste."""
        parts = [_program(), *(shlex.quote(str(word)) for word in words)]
        if self.given is not None and not self.from_environment:
            # A password belongs neither on the screen nor in a shell's history.
            hidden = self.shown != self.url
            parts += ["--db", '"$FAIRTURN_URL"' if hidden else shlex.quote(self.url)]
        if self.schema != "fairturn":
            parts += ["--schema", self.schema]
        if self.pooler:
            parts.append("--pooler")
        return " ".join(parts)

    # --- output --------------------------------------------------------------------------------
    def emit(self, value: Any) -> None:
        """Print one JSON document on stdout."""
        print(json.dumps(value, indent=2, ensure_ascii=False))

    def emit_line(self, value: Any) -> None:
        """Print one line of a JSON stream on stdout, and flush it."""
        print(json.dumps(value, ensure_ascii=False), flush=True)

    def say(self, text: str | Text = "", style: str | None = None) -> None:
        """Print a line of text on stdout."""
        text = clean(text) if isinstance(text, str) else text
        self.out.print(text, style=style, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a remark on stderr, so that it is not in the pipe."""
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
        """Print rows under headings (see ``make_table``)."""
        self.print_table(make_table(columns, rows))

    def sheet(self, facts: Any, heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print one thing: with --json its facts, else a table of names and values."""
        if self.json:
            self.emit(facts)
        else:
            self.print_table(make_table(heading, rows))

    def listing(
        self,
        found: Sequence[T],
        facts: Callable[[T], Any],
        columns: Mapping[str, Callable[[T], Any]],
        *,
        empty: str,
        more: str = "",
        drop_empty: bool = False,
    ) -> None:
        """Print a list: with --json the facts of each item, else a table with a column for each
        heading and the function that makes its cells. ``empty`` is the remark if there is no item,
        ``more`` the remark below the table."""
        if self.json:
            self.emit([facts(one) for one in found])
        elif not found:
            self.note(empty)
        else:
            rows = [[cell(one) for cell in columns.values()] for one in found]
            self.print_table(make_table(list(columns), rows, drop_empty))
            if more:
                self.note(more)

    def print_table(self, table: Table) -> None:
        if self.out.is_terminal:
            self.out.print(table)
            return
        with self.out.capture() as captured:
            self.out.print(table)
        for line in captured.get().splitlines():
            print(line.rstrip())  # no blanks at the end of a line in a pipe

    def done(self, text: str, /, **facts: Any) -> None:
        """Print what a command did: a sentence, or with --json the facts."""
        if self.json:
            self.emit(facts)
        else:
            self.say(text)

    # --- questions -----------------------------------------------------------------------------
    def confirm(self, what: str, yes: bool) -> None:
        """Ask before data is deleted; without a terminal ``--yes`` is needed."""
        if yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise CommandError(f"{what} cannot be undone: repeat the command with --yes")
        self.err.print(Text(f"{clean(what)}. Type yes to go on: ", style="yellow"), end="")
        if sys.stdin.readline().strip().lower() not in ("yes", "y"):
            raise CommandError("nothing was done")


def make_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], drop_empty: bool = False
) -> Table:
    """Return rows under headings. A heading that starts with ``>`` is aligned to the right.
    ``drop_empty`` leaves columns out that are empty in every row."""
    cells = [[_cell(value) for value in row] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    kept = [i for i in range(len(columns)) if not drop_empty or any(row[i].plain for row in cells)]
    for name in (columns[i] for i in kept):
        right = name.startswith(">")
        table.add_column(name.lstrip(">"), justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(row[i] for i in kept))
    return table


def _cell(value: Any) -> Text:
    if isinstance(value, Text):
        return value
    if value is None or value == "":
        return Text("")
    if isinstance(value, int) and not isinstance(value, bool):
        return Text(f"{value:,}", style="dim" if value == 0 else "")
    return Text(clean(str(value)))
