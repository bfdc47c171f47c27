"""``fairturn top``: show queues and workers live."""

from __future__ import annotations

import contextlib
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairturn.cli import show
from fairturn.cli.arguments import Context
from fairturn.cli.errors import CommandError
from fairturn.cli.parsing import Duration
from fairturn.cli.session import Session, make_table
from fairturn.core.message import Message
from fairturn.core.values import PermitStatus, Stats

RATES = ("sent", "delivered", "finished", "failed")
_BARS = "▁▂▃▄▅▆▇█"
_HISTORY = 24
LEAST = 0.1  # seconds between two refreshes
_READ = 20  # leased messages of a queue whose progress is read
_MOST = 10  # messages whose progress is shown
_WORKERS = 20  # workers shown on the screen


def _totals(stats: Stats) -> tuple[int, ...]:
    return stats.sent, stats.delivered, stats.acked + stats.completed, stats.failed


@dataclass
class Meter:
    """Computes rates from the differences between samples. A queue's first sample has none."""

    before: dict[str, tuple[float, tuple[int, ...]]] = field(
        default_factory=dict[str, tuple[float, tuple[int, ...]]]
    )
    history: dict[str, deque[float]] = field(default_factory=dict[str, deque[float]])

    def sample(self, stats: Stats, at: float) -> dict[str, dict[str, float]]:
        """Return each of RATES per second since the sample before, by queue."""
        rates: dict[str, dict[str, float]] = {}
        for name, one in stats.queues.items():
            totals = _totals(one)
            if name in self.before:
                then, old = self.before[name]
                passed = max(at - then, 1e-6)
                # A purge with reset sets totals to zero: that is not a negative rate.
                values = [max(new - was, 0) / passed for new, was in zip(totals, old, strict=True)]
                rates[name] = dict(zip(RATES, values, strict=True))
                past = self.history.setdefault(name, deque(maxlen=_HISTORY))
                past.append(rates[name]["finished"])
            self.before[name] = (at, totals)
        return rates


def sparkline(values: Any) -> str:
    """Return the history of a rate as a row of bars."""
    values = list(values)
    top = max(values, default=0)
    if not top:
        return ""
    return "".join(_BARS[min(int(v / top * (len(_BARS) - 1) + 0.5), 7)] for v in values)


def top(*, every: Duration = 1, once: bool = False, session: Context) -> None:
    """Show queues and workers live: counts, rates, progress; q or Ctrl-C ends.

    Example: fairturn top --db postgresql://localhost/app

    Args:
        every: The time between two refreshes. Default 1s.
        once: Measure for that time, print one result and end; for scripts.
    """
    if every < LEAST:
        raise CommandError(f"--every must be at least {LEAST} s: each refresh counts every message")
    meter = Meter()
    look = _look(session, meter)
    if session.json or not session.out.is_terminal or once:
        _plain(session, meter, every, once)
        return
    with _keys() as pressed, Live(console=session.out, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_screen(session, look), refresh=True)
            if pressed(every):
                return
            look = _look(session, meter)


@dataclass
class Look:
    """The state of the database at one moment. ``rates`` are per second, by queue and name."""

    now: datetime
    stats: Stats
    rates: dict[str, dict[str, float]]
    history: dict[str, deque[float]]
    permits: list[PermitStatus]
    progressing: list[Message]

    def tables(self, most_workers: int | None = None) -> list[Table]:
        """Return the tables of queues, workers and progress; the last two only if not empty."""
        found = [_table(self)]
        if self.permits:
            found.append(workers_table(self.permits, self.now, most_workers or len(self.permits)))
        if self.progressing:
            found.append(_progress_table(self.progressing))
        return found


def _look(session: Session, meter: Meter) -> Look:
    stats = session.db.stats()
    rates = meter.sample(stats, time.monotonic())
    permits, working = session.db.permits(), progressing(session, stats)
    return Look(session.now(), stats, rates, meter.history, permits, working)


def _plain(session: Session, meter: Meter, every: float, once: bool) -> None:
    while True:
        time.sleep(every)
        look = _look(session, meter)
        if session.json:
            session.emit_line(_facts(look))
        else:
            for number, table in enumerate(look.tables()):
                if number:
                    session.say()
                session.print_table(table)
        if once:
            return
        if not session.json:
            session.say()


def progressing(session: Session, stats: Stats) -> list[Message]:
    """Return leased messages whose workers report progress. Only the first leased messages of each
    queue are read, so that it stays cheap in a large database."""
    found: list[Message] = []
    for name, one in stats.queues.items():
        if one.leased and len(found) < _MOST:
            leased = session.queue(name).peek(_READ, state="leased")
            found += [m for m in leased if m.progressed is not None or m.note]
    return found[:_MOST]


def _progress_table(messages: list[Message]) -> Table:
    rows: list[list[Any]] = [
        [m.queue, str(m.id), m.key, m.channel, m.group, show.progress(m.progressed, m.note)]
        for m in messages
    ]
    heads = ["queue", ">message", "key", "channel", "group", "progress"]
    return make_table(heads, rows, drop_empty=True)


def worker_facts(permit: PermitStatus, now: datetime) -> dict[str, Any]:
    return {
        "worker": permit.name,
        "leases": permit.leases,
        "age_seconds": max((now - permit.created_at).total_seconds(), 0),
        "expires_in_seconds": max((permit.expires_at - now).total_seconds(), 0),
    }


def workers_table(permits: list[PermitStatus], now: datetime, most: int) -> Table:
    """Return a table of the permits, the busiest first. A worker that could not know whether the
    database gave it a permit may have two for a while."""
    busiest = sorted(permits, key=lambda one: -one.leases)
    rows: list[list[Any]] = [
        [
            one.name or "(no name)",
            show.count(one.leases, "leased"),
            show.age(one.created_at, now),
            show.from_now(one.expires_at, now),
        ]
        for one in busiest[:most]
    ]
    if len(permits) > most:
        rest = sum(one.leases for one in busiest[most:])
        rows.append([f"and {len(permits) - most:,} more", show.count(rest, "leased"), "", ""])
    return make_table([show.many(len(permits), "worker"), ">leases", "up", "permit ends"], rows)


def _facts(look: Look) -> dict[str, Any]:
    queues: dict[str, Any] = {}
    for name, one in look.stats.queues.items():
        oldest = one.oldest_ready
        per_second = {key: round(value, 3) for key, value in look.rates.get(name, {}).items()}
        queues[name] = {
            **{gauge: getattr(one, gauge) for gauge in show.GAUGES},
            "oldest_ready_seconds": max((look.now - oldest).total_seconds(), 0) if oldest else None,
            "per_second": per_second or None,
        }
    return {
        "at": show.iso(look.now),
        "queues": queues,
        "workers": [worker_facts(one, look.now) for one in look.permits],
        "progress": [show.progress_facts(message) for message in look.progressing],
    }


def _rate(value: float | None, style: str = "") -> Text:
    if value is None:
        return Text("")
    text = f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"
    return Text(text, style=style if value else "dim")


def _gauges(stats: Stats) -> tuple[str, ...]:
    """Return the states to show: held only if a message is held."""
    held = ("held",) if stats.held else ()
    return ("ready", "scheduled", "leased", *held, "dead")


def _table(look: Look) -> Table:
    rows: list[list[Any]] = []
    shown = _gauges(look.stats)
    for name, one in look.stats.queues.items():
        rate = look.rates.get(name, {})
        rows.append(
            [
                Text(name, style="bold"),
                *(show.count(getattr(one, gauge), gauge) for gauge in shown),
                show.age(one.oldest_ready, look.now),
                _rate(rate.get("sent")),
                _rate(rate.get("finished")),
                _rate(rate.get("failed"), "red"),
                Text(sparkline(look.history.get(name, ())), style="green"),
            ]
        )
    heads = ["queue", *(f">{gauge}" for gauge in shown), "oldest"]
    return make_table([*heads, ">sent/s", ">done/s", ">failed/s", ""], rows)


def _screen(session: Session, look: Look) -> Any:
    stats = look.stats
    head = Text.assemble(
        ("fairturn top", "bold"),
        ("  ", ""),
        (session.shown, "cyan"),
        (f"  {look.now.astimezone():%H:%M:%S}", "dim"),
    )
    gauges = Text.assemble(
        *(
            part
            for gauge in _gauges(stats)
            for part in ((f"{getattr(stats, gauge):,}", show.STATE_STYLES[gauge]), f" {gauge}   ")
        )
    )
    tables: list[Any] = [*look.tables(_WORKERS)]
    if not stats.queues:
        tables[0] = Text(f"no queues yet: {session.command('queue', 'create', 'emails')}")
    parts = [part for table in tables for part in (Text(), table)]
    return Group(head, gauges, *parts, Text(), Text("q ends", style="dim"))


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextlib.contextmanager
def _keys() -> Generator[Callable[[float], bool]]:
    """Give ``pressed(seconds)``, which waits so long and returns True as soon as q is pressed."""
    if not sys.stdin.isatty() or sys.platform == "win32":
        yield _sleep
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (rest := end - time.monotonic()) > 0:
            readable, _, _ = select.select([descriptor], [], [], rest)
            if readable:
                key = sys.stdin.read(1)
                if key in ("q", "Q", ""):
                    return True
        return False

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
