"""What the demo shows while it runs: live bars in a terminal, lines elsewhere."""

from __future__ import annotations

import math
import time
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from fairturn.cli.demo.measure import Measured
from fairturn.cli.demo.story import LIMITED, METERED, NOISY, QUIET, TENANTS, Plan
from fairturn.cli.session import Session, make_table
from fairturn.core.settings import ChannelStats
from fairturn.sync.queue import Queue

WIDTH, REST = 28, 72  # columns of a bar, and of the text beside it
EVENTS = 5
_COLOURS = {NOISY: "red", LIMITED: "yellow", METERED: "cyan"}
PATIENCE = 60.0  # seconds to wait after the end for the crash and the failures


def wait_text(seconds: float | None) -> str:
    """Return a waiting time as text."""
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


class Look:
    """The state of the queue at one moment: the counts of each channel, from the database."""

    def __init__(self, queue: Queue, measured: Measured) -> None:
        found = {one.channel: one for one in queue.channels()}
        none = ChannelStats("", 0, 0, 0, None)
        self.of = {tenant: found.get(tenant, none) for tenant in TENANTS}
        for tenant, one in self.of.items():
            measured.seen_leased(tenant, one.leased)
        self.buried = queue.explain(measured.broken).state == "dead"
        self.at = time.monotonic()
        self.done = measured.done()
        self.ready = sum(one.ready for one in self.of.values())
        self.leased = sum(one.leased for one in self.of.values())


def _over(measured: Measured, look: Look) -> bool:
    if measured.failure is not None:
        return True
    plan, passed = measured.plan, look.at - measured.started
    if not (look.buried and measured.all_recovered()) and passed < plan.deadline + PATIENCE:
        return False  # on a slow machine the failures and the crash come late
    drained = passed > plan.sending and look.ready == 0 and look.leased == 0
    return drained or passed > plan.deadline


def plain(session: Session, queue: Queue, measured: Measured) -> None:
    """Print a line each second, and the events as they happen."""
    plan, say = measured.plan, session.note if session.json else session.say
    say(f"demo: {plan.flood:,} messages of tenant {NOISY!r} wait; {len(QUIET)} quiet tenants send")
    told, last = 0, Look(queue, measured)
    while True:
        time.sleep(min(1.0, plan.seconds / 10))
        look = Look(queue, measured)
        for at, text in measured.events[told:]:
            say(f"{at:5.1f} s  {text}")
            told += 1
        rate = (look.done - last.done) / (look.at - last.at)
        quiet = wait_text(measured.wait(QUIET, 0.95))
        say(
            f"{look.at - measured.started:5.1f} s  {rate:,.0f} messages/s; "
            f"{NOISY}: {look.of[NOISY].ready:,} wait; quiet tenants wait {quiet} (p95); "
            f"{LIMITED}: {look.of[LIMITED].leased} of {plan.limit} leases"
        )
        last = look
        if _over(measured, look):
            return


def live(session: Session, queue: Queue, measured: Measured) -> None:
    """Show a bar for each tenant, redrawn five times a second."""
    previous = last = Look(queue, measured)
    rate = 0.0
    with Live(console=session.out, auto_refresh=False, transient=True) as picture:
        while True:
            time.sleep(0.2)
            look = Look(queue, measured)
            if look.at - previous.at >= 1:
                rate = (look.done - previous.done) / (look.at - previous.at)
                previous = look
            elif not rate:
                rate = (look.done - last.done) / (look.at - last.at)
            picture.update(_picture(session, measured, look, rate), refresh=True)
            if _over(measured, look):
                return


def _bar(waiting: int, most: int, colour: str, width: int) -> Text:
    """Return a bar on a logarithmic scale, so that 3 and 20,000 are both visible."""
    filled = round(width * math.log1p(waiting) / math.log1p(most)) if waiting else 0
    return Text("█" * filled, style=colour).append("·" * (width - filled), style="dim")


def _rule(tenant: str, plan: Plan) -> str:
    if tenant == LIMITED:
        return f"at most {plan.limit} at once"
    if tenant == METERED:
        return f"at most {plan.rate}/s"
    return ""


def _picture(session: Session, measured: Measured, look: Look, rate: float) -> Any:
    plan, passed = measured.plan, look.at - measured.started
    head = Text.assemble(
        ("fairturn demo", "bold"),
        (f"  {passed:4.1f} s of {plan.seconds:.0f}", "dim"),
        (f"   {rate:,.0f} messages/s", "bold green"),
        (f"   {session.shown}", "cyan"),
    )
    width = min(max(session.out.width - REST, 6), WIDTH)
    rows: list[list[Any]] = []
    for tenant in TENANTS:
        one = look.of[tenant]
        colour = _COLOURS.get(tenant, "green")
        leased = f"{one.leased} / {plan.limit}" if tenant == LIMITED else str(one.leased)
        rows.append(
            [
                Text(tenant, style=colour),
                _bar(one.ready, plan.flood, colour, width),
                one.ready,
                Text(leased, style="yellow" if one.leased else "dim"),
                measured.done_of[tenant],
                wait_text(measured.wait([tenant], 0.95)),
                Text(_rule(tenant, plan), style="dim"),
            ]
        )
    heads = ["tenant", "waiting (log)", ">", ">leased", ">done", ">p95 wait", ""]
    events = [
        Text(f"{at:5.1f} s  {text}", style="magenta") for at, text in measured.events[-EVENTS:]
    ]
    return Group(head, Text(), make_table(heads, rows), Text(), *events)
