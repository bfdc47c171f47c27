"""What ``fairlead worker`` shows in a terminal: a banner, log lines, and one calm line below."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fairlead.cli import show
from fairlead.cli.session import Session, clean
from fairlead.worker import logs
from fairlead.worker.metrics import OUTCOMES

DONE = ("acked", "completed")
WINDOW = 5.0  # seconds over which the rate is measured
_LEVELS = {"DEBUG": "dim", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}


def totals(snapshots: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The numbers of all processes together."""
    names: list[str] = [*OUTCOMES, "running", "concurrency", "processes"]
    found = dict.fromkeys(names, 0)
    for one in snapshots:
        for _, _, outcomes, _, _ in one["tasks"]:
            for name, number in zip(OUTCOMES, outcomes, strict=True):
                found[name] += number
        for gauge in ("running", "concurrency"):
            found[gauge] += one.get(gauge, 0)
        found["processes"] += "ready" in one  # one that has ended has no such thing
    return found


class StatusLine:
    """The line's text; it remembers a few samples for the rate."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._samples: deque[tuple[float, int]] = deque()

    def text(self, state: str, snapshots: Iterable[Mapping[str, Any]], processes: int) -> Text:
        now, numbers = time.monotonic(), totals(snapshots)
        done = sum(numbers[name] for name in DONE)
        parts: list[tuple[str, str] | str] = [_dot(state), f" {state}  "]
        parts += [_number(numbers["running"], "bold"), f" of {numbers['concurrency']} running  "]
        parts += [_number(done, "green"), f" done, {_per_second(self._rate(now, done))}  "]
        parts += [_number(numbers["failed"], "yellow"), " failed  "]
        if numbers["dead"]:
            parts += [_number(numbers["dead"], "red"), " dead  "]
        if processes > 1:
            parts.append(f"{numbers['processes']} of {processes} processes  ")
        parts.append((f"up {show.span(int(now - self._began))}", "dim"))
        return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")

    def _rate(self, now: float, done: int) -> float:
        self._samples.append((now, done))
        while now - self._samples[0][0] > WINDOW and len(self._samples) > 2:
            self._samples.popleft()
        then, before = self._samples[0]
        return (done - before) / (now - then) if now > then else 0.0


def _dot(state: str) -> tuple[str, str]:
    return "●", {"working": "green", "stopping": "yellow"}.get(state, "dim")


def _per_second(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 or not rate else f"{rate:.1f}/s"


def summary(snapshots: Iterable[Mapping[str, Any]]) -> str:
    """What was done, in the end."""
    numbers = totals(snapshots)
    dead = f", {numbers['dead']:,} dead" if numbers["dead"] else ""
    return f"{sum(numbers[name] for name in DONE):,} done, {numbers['failed']:,} failed{dead}"


def _number(value: int, style: str) -> tuple[str, str]:
    return f"{value:,}", style if value else "dim"


class Screen:
    """A terminal with a line that stays at its bottom."""

    def __init__(self, session: Session, live: Live) -> None:
        self._console = session.err
        self._live = live

    def line(self, text: Text) -> None:
        self._live.update(text, refresh=True)

    def output(self, number: int, line: str) -> None:
        """A line that process ``number`` has printed."""
        text = Text(f"{number} ", style="dim")
        text.append_text(Text.from_ansi(line))
        self._console.print(text, soft_wrap=True)

    def banner(self, facts: Mapping[str, Any]) -> None:
        rows = [("database", facts["database"])]
        weights: Mapping[str, int] = facts["queues"]
        names = [n if w == 1 else f"{n} (weight {w})" for n, w in weights.items()]
        rows += [("queues", ", ".join(names)), ("tasks", ", ".join(facts["tasks"]))]
        slots = f"{facts['concurrency']} at once"
        if facts["processes"] > 1:
            slots += f" in each of {facts['processes']} processes"
        rows.append(("runs", slots))
        title = Text.assemble(("fairlead worker", "bold"), ("  ", ""), (facts["app"], "cyan"))
        self._console.print(title, soft_wrap=True)
        for name, value in rows:
            line = Text.assemble((f"  {name:<10}", "dim"), clean(value))
            self._console.print(line, soft_wrap=True)
        end = "Ctrl-C finishes what runs and ends; a second one gives it back at once"
        self._console.print(Text(end, style="dim"), soft_wrap=True)


@contextlib.contextmanager
def screen(session: Session) -> Generator[Screen]:
    """Everything that is printed meanwhile appears above the line."""
    console = session.err
    live = Live(
        Text("● starting", style="dim"),
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )
    with live:
        console.show_cursor(True)  # a worker that is killed must not leave a terminal without one
        yield Screen(session, live)


class TerminalFormatter(logging.Formatter):
    """Time, level if it is worth a look, the message; a traceback below."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        # A console of its own: what that one prints belongs above the line at once.
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


def setup_logs(session: Session, json: bool, level: str) -> None:
    """Unless the application has set up its own logging."""
    if logging.getLogger().handlers:
        return
    handler = logs.setup(json, level)
    if not json:
        handler.setFormatter(TerminalFormatter(session.err))
