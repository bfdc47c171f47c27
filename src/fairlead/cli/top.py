"""``fairlead top``: the queues as they move, and who works on them."""

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

from fairlead.cli import show
from fairlead.cli.insight import now_of
from fairlead.cli.parsing import Duration
from fairlead.cli.session import Context, Refused, Session, make_table
from fairlead.permits import PermitStatus
from fairlead.values import Message, Stats

RATES = ("sent", "delivered", "finished", "failed")
_BARS = "▁▂▃▄▅▆▇█"
_HISTORY = 24
LEAST = 0.1  # seconds between two looks
_LOOK = 20  # leased messages of a queue whose progress is looked at
_MOST = 10  # and shown
_WORKERS = 20  # workers shown on the screen


def _totals(stats: Stats) -> tuple[int, ...]:
    return stats.sent, stats.delivered, stats.acked + stats.completed, stats.failed


@dataclass
class Meter:
    """Rates from the differences between samples. A queue's first sample has none."""

    before: dict[str, tuple[float, tuple[int, ...]]] = field(
        default_factory=dict[str, tuple[float, tuple[int, ...]]]
    )
    history: dict[str, deque[float]] = field(default_factory=dict[str, deque[float]])

    def sample(self, stats: Stats, at: float) -> dict[str, dict[str, float]]:
        """Per queue, each of RATES per second since the sample before."""
        rates: dict[str, dict[str, float]] = {}
        for name, one in stats.queues.items():
            totals = _totals(one)
            if name in self.before:
                then, old = self.before[name]
                passed = max(at - then, 1e-6)
                # A purge with reset takes totals back: that is no negative rate.
                values = [max(new - was, 0) / passed for new, was in zip(totals, old, strict=True)]
                rates[name] = dict(zip(RATES, values, strict=True))
                past = self.history.setdefault(name, deque(maxlen=_HISTORY))
                past.append(rates[name]["finished"])
            self.before[name] = (at, totals)
        return rates


def sparkline(values: Any) -> str:
    """The course of a rate as a row of bars."""
    values = list(values)
    top = max(values, default=0)
    if not top:
        return ""
    return "".join(_BARS[min(int(v / top * (len(_BARS) - 1) + 0.5), 7)] for v in values)


def top(*, every: Duration = 1, once: bool = False, session: Context) -> None:
    """Watch queues and workers live: what waits, what runs, how fast. q or Ctrl-C ends.

    Example: fairlead top --db postgresql://localhost/app

    Args:
        every: Seconds between two looks.
        once: Measure for that long, print once and end; for scripts.
    """
    if every < LEAST:
        raise Refused(f"--every must be at least {LEAST} s: each look counts every message")
    meter = Meter()
    stats = session.db.stats()
    meter.sample(stats, time.monotonic())
    if session.json or not session.out.is_terminal or once:
        _plain(session, meter, every, once)
        return
    with _keys() as pressed, Live(console=session.out, screen=True, auto_refresh=False) as live:
        rates: dict[str, dict[str, float]] = {}
        while True:
            live.update(_screen(session, stats, rates, meter), refresh=True)
            if pressed(every):
                return
            stats = session.db.stats()
            rates = meter.sample(stats, time.monotonic())


def _plain(session: Session, meter: Meter, every: float, once: bool) -> None:
    while True:
        time.sleep(every)
        stats = session.db.stats()
        rates = meter.sample(stats, time.monotonic())
        permits = session.db.permits()
        now = now_of(session)
        if session.json:
            facts = [show.progress_facts(message) for message in progressing(session, stats)]
            workers = [worker_facts(one, now) for one in permits]
            told = _facts(stats, rates, now)
            session.emit_line({**told, "workers": workers, "progress": facts})
        else:
            session.print_table(_table(stats, rates, meter, now))
            if permits:
                session.say()
                session.print_table(workers_table(permits, now, len(permits)))
            working = progressing(session, stats)
            if working:
                session.say()
                session.print_table(_progress_table(working))
        if once:
            return
        if not session.json:
            session.say()


def progressing(session: Session, stats: Stats) -> list[Message]:
    """Leased messages whose workers say how far they are; the first of each queue, so that a look
    at a large database stays cheap."""
    found: list[Message] = []
    for name, one in stats.queues.items():
        if one.leased and len(found) < _MOST:
            leased = session.queue(name).peek(_LOOK, state="leased")
            found += [m for m in leased if m.progressed is not None or m.note]
    return found[:_MOST]


def _progress_table(messages: list[Message]) -> Table:
    rows: list[list[Any]] = [
        [m.queue, str(m.id), m.key, m.channel, m.group, show.progress(m.progressed, m.note)]
        for m in messages
    ]
    heads = ["queue", ">message", "key", "channel", "group", "progress"]
    keep = [i for i in range(len(heads)) if any(row[i] for row in rows)]
    return make_table([heads[i] for i in keep], [[row[i] for i in keep] for row in rows])


def worker_facts(permit: PermitStatus, now: datetime) -> dict[str, Any]:
    return {
        "worker": permit.name,
        "leases": permit.leases,
        "age_seconds": max((now - permit.created_at).total_seconds(), 0),
        "expires_in_seconds": max((permit.expires_at - now).total_seconds(), 0),
    }


def workers_table(permits: list[PermitStatus], now: datetime, most: int) -> Table:
    """Who holds a permit: the busiest first. After a doubtful answer of the database a worker has
    two for a while."""
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


def _facts(stats: Stats, rates: dict[str, dict[str, float]], now: datetime) -> dict[str, Any]:
    queues: dict[str, Any] = {}
    for name, one in stats.queues.items():
        oldest = one.oldest_ready
        per_second = {key: round(value, 3) for key, value in rates.get(name, {}).items()}
        queues[name] = {
            **{gauge: getattr(one, gauge) for gauge in show.GAUGES},
            "oldest_ready_seconds": max((now - oldest).total_seconds(), 0) if oldest else None,
            "per_second": per_second or None,
        }
    return {"at": show.iso(now), "queues": queues}


def _rate(value: float | None, style: str = "") -> Text:
    if value is None:
        return Text("")
    text = f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"
    return Text(text, style=style if value else "dim")


def _gauges(stats: Stats) -> tuple[str, ...]:
    """Held messages only where there are groups that wait for their start."""
    held = ("held",) if stats.held else ()
    return ("ready", "scheduled", "leased", *held, "dead")


def _table(stats: Stats, rates: dict[str, dict[str, float]], meter: Meter, now: datetime) -> Table:
    rows: list[list[Any]] = []
    shown = _gauges(stats)
    for name, one in stats.queues.items():
        rate = rates.get(name, {})
        rows.append(
            [
                Text(name, style="bold"),
                *(show.count(getattr(one, gauge), gauge) for gauge in shown),
                show.age(one.oldest_ready, now),
                _rate(rate.get("sent")),
                _rate(rate.get("finished")),
                _rate(rate.get("failed"), "red"),
                Text(sparkline(meter.history.get(name, ())), style="green"),
            ]
        )
    heads = ["queue", *(f">{gauge}" for gauge in shown), "oldest"]
    return make_table([*heads, ">sent/s", ">done/s", ">failed/s", ""], rows)


def _screen(
    session: Session, stats: Stats, rates: dict[str, dict[str, float]], meter: Meter
) -> Any:
    now = now_of(session)
    head = Text.assemble(
        ("fairlead top", "bold"),
        ("  ", ""),
        (session.shown, "cyan"),
        (f"  {now.astimezone():%H:%M:%S}", "dim"),
    )
    gauges = Text.assemble(
        *(
            part
            for gauge in _gauges(stats)
            for part in ((f"{getattr(stats, gauge):,}", show.STATE_STYLES[gauge]), f" {gauge}   ")
        )
    )
    body: Any = _table(stats, rates, meter, now)
    if not stats.queues:
        body = Text(f"no queues yet: {session.command('queue', 'create', 'emails')}")
    parts = [head, gauges, Text(), body]
    permits = session.db.permits()
    if permits:
        parts += [Text(), workers_table(permits, now, _WORKERS)]
    working = progressing(session, stats)
    if working:
        parts += [Text(), _progress_table(working)]
    return Group(*parts, Text(), Text("q ends", style="dim"))


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextlib.contextmanager
def _keys() -> Generator[Callable[[float], bool]]:
    """Gives ``pressed(seconds)``: wait so long; True as soon as q is pressed."""
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
            if select.select([descriptor], [], [], rest)[0]:
                key = sys.stdin.read(1)
                if key in ("q", "Q", ""):
                    return True
        return False

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
