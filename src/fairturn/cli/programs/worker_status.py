"""What ``fairturn worker`` shows in a terminal: a banner, and a status line below the log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from typing import Any

from rich.live import Live
from rich.text import Text

from fairturn.cli import show
from fairturn.cli.session import Session, clean
from fairturn.observe.worker_metrics import OUTCOMES

DONE = ("acked", "completed")
WINDOW = 5.0  # seconds over which the rate is measured


def totals(snapshots: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the sums over all processes."""
    names: list[str] = [*OUTCOMES, "running", "concurrency", "processes"]
    found = dict.fromkeys(names, 0)
    for one in snapshots:
        for _, _, outcomes, _, _ in one["tasks"]:
            for name, number in zip(OUTCOMES, outcomes, strict=True):
                found[name] += number
        for gauge in ("running", "concurrency"):
            found[gauge] += one.get(gauge, 0)
        found["processes"] += "ready" in one  # the snapshot of an ended process has none
    return found


class StatusLine:
    """The text of the status line; it keeps a few samples for the rate."""

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
        then, before = self._samples[0]
        while now - then > WINDOW and len(self._samples) > 2:
            self._samples.popleft()
            then, before = self._samples[0]
        return (done - before) / (now - then) if now > then else 0.0


def _dot(state: str) -> tuple[str, str]:
    return "●", {"working": "green", "stopping": "yellow"}.get(state, "dim")


def _per_second(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 or not rate else f"{rate:.1f}/s"


def summary(snapshots: Iterable[Mapping[str, Any]]) -> str:
    """Return the totals as text, for the last line of the log."""
    numbers = totals(snapshots)
    dead = f", {numbers['dead']:,} dead" if numbers["dead"] else ""
    return f"{sum(numbers[name] for name in DONE):,} done, {numbers['failed']:,} failed{dead}"


def _number(value: int, style: str) -> tuple[str, str]:
    return f"{value:,}", style if value else "dim"


class Screen:
    """A terminal with a status line that stays at its bottom."""

    def __init__(self, session: Session, live: Live) -> None:
        self._console = session.err
        self._live = live

    def line(self, text: Text) -> None:
        self._live.update(text, refresh=True)

    def output(self, number: int, line: str) -> None:
        """Show a line that process ``number`` has printed."""
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
        title = Text.assemble(("fairturn worker", "bold"), ("  ", ""), (facts["app"], "cyan"))
        self._console.print(title, soft_wrap=True)
        for name, value in rows:
            line = Text.assemble((f"  {name:<10}", "dim"), clean(value))
            self._console.print(line, soft_wrap=True)
        end = "Ctrl-C finishes the running tasks and ends; a second one releases them immediately"
        self._console.print(Text(end, style="dim"), soft_wrap=True)


@contextlib.contextmanager
def screen(session: Session) -> Generator[Screen | None]:
    """Show a status line; everything that is printed meanwhile appears above it. Without a terminal
    there is none."""
    console = session.err
    if not console.is_terminal:
        yield None
        return
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
