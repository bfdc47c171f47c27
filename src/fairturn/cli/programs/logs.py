"""The log of a program that keeps running: text in a terminal, else JSON."""

from __future__ import annotations

import io
import logging
import time
from typing import Any

from rich.console import Console
from rich.text import Text

from fairturn.cli.session import Session, clean
from fairturn.observe import logs

_LEVELS = {"DEBUG": "dim", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}


def is_json(session: Session, format: str | None) -> bool:
    """Return whether to log JSON: as --log says, else as --json says or if there is no terminal."""
    return format == "json" if format else session.json or not session.err.is_terminal


def setup(session: Session, json: bool, level: str) -> None:
    """Set up the log, unless the app has set up its own."""
    if logging.getLogger().handlers:
        return
    handler = logs.setup(json, level)
    if not json:
        handler.setFormatter(TerminalFormatter(session.err))


def log_errors(session: Session, log: logging.Logger, level: str) -> None:
    """Write the error that ends the program as a line of the JSON log, too."""

    def log_error(text: str) -> None:
        setup(session, True, level)
        log.error("%s", text)

    session.log_error = log_error


class TerminalFormatter(logging.Formatter):
    """The time, the level unless it is info, the message; a traceback below."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        # A console of its own: the other one prints immediately, above the status line.
        system: Any = console.color_system
        self._console = Console(
            file=io.StringIO(), color_system=system, force_terminal=console.is_terminal, width=4096
        )

    def format(self, record: logging.LogRecord) -> str:
        line = Text(f"{time.strftime('%H:%M:%S', time.localtime(record.created))} ", style="dim")
        if record.levelno != logging.INFO:
            style = _LEVELS.get(record.levelname, "")
            line.append(f"{record.levelname.lower()} ", style=style)
        line.append(clean(record.getMessage()))
        about = getattr(record, "message_id", None)
        if about is not None:
            line.append(f"  ({getattr(record, 'queue', '')} {about})", style="dim")
        if record.exc_info:
            line.append(f"\n{clean(self.formatException(record.exc_info))}", style="dim")
        with self._console.capture() as captured:
            self._console.print(line, soft_wrap=True, highlight=False, end="")
        return captured.get()
