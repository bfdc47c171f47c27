"""What the demo proved, in words one can show to a colleague."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.text import Text

from fairlead.cli.demo.display import wait_text
from fairlead.cli.demo.measure import Measured
from fairlead.cli.demo.story import LIMITED, METERED, NOISY, ONCE, QUEUE, QUIET, TENANTS, Plan
from fairlead.cli.insight import in_commands
from fairlead.cli.session import Session
from fairlead.sync.database import Database
from fairlead.sync.queue import Queue

_COUNTS = ("sent", "done", "dead", "waiting")  # of a tenant: the first is the sum of the others


def facts(db: Database, queue: Queue, plan: Plan, measured: Measured) -> dict[str, Any]:
    """Every number of the run, and what follows from them."""
    stats = queue.stats()
    seconds = measured.ended - measured.started
    buried = Counter(message.channel for message in queue.peek(1000, state="dead"))
    waiting = {one.channel: one.ready + one.scheduled + one.leased for one in queue.channels()}
    tenants = {
        tenant: {
            "sent": measured.sent_of[tenant],
            "done": measured.done_of[tenant],
            "dead": buried[tenant],
            "waiting": waiting.get(tenant, 0),
            "wait_p50": measured.wait([tenant], 0.5),
            "wait_p95": measured.wait([tenant], 0.95),
        }
        for tenant in TENANTS
    }
    quiet, noisy = measured.wait(QUIET, 0.95), measured.wait([NOISY], 0.95)
    most = measured.most_in_flight[LIMITED]
    given = len(measured.given_at[METERED])
    rate = measured.rate(METERED)
    recovered, crashed = len(measured.recovered), len(measured.crashed)
    slowest = max(measured.recovered.values(), default=None)
    dead = queue.explain(measured.broken)
    first, second, outcome = measured.duplicate
    sent, left = stats.sent, stats.ready + stats.scheduled + stats.leased
    finished = stats.acked + stats.completed
    checks = [
        {
            "check": "fair",
            "ok": quiet is not None and noisy is not None and quiet < noisy,
            "text": f"quiet tenants waited {wait_text(quiet)} (p95) while the flood of "
            f"{plan.flood:,} waited {wait_text(noisy)}",
        },
        {
            "check": "limit",
            "ok": most <= plan.limit,
            "text": f"{LIMITED!r} may have {plan.limit} leases at once: never more than {most} "
            f"seen, over {measured.done_of[LIMITED]:,} messages",
        },
        {
            "check": "rate",
            # GCRA without a burst: the k-th is never given before (k - 1) / rate.
            "ok": rate is None or rate <= plan.rate * 1.05,
            "text": f"{METERED!r} may have {plan.rate}/s: {rate or 0:.1f}/s measured, "
            f"over {given:,} messages",
        },
        {
            "check": "crash",
            "ok": crashed > 0 and recovered == crashed,
            "text": f"a worker crashed with {crashed} leases of {plan.lease:g} s: {recovered} of "
            f"them came back by themselves, the last after {wait_text(slowest)}",
        },
        {
            "check": "dead",
            "ok": dead.state == "dead",
            "text": f"message {dead.id} is {dead.text}",
        },
        {
            "check": "unique",
            "ok": outcome == "duplicate" and first == second,
            "text": f"key {ONCE!r} was sent twice: message {first} exists once",
        },
        {
            "check": "nothing lost",
            "ok": sent == finished + stats.dead + left,
            "text": f"{sent:,} sent = {finished:,} finished + {stats.dead:,} dead + "
            f"{left:,} waiting",
        },
    ]
    return {
        "seconds": round(seconds, 2),
        "messages": finished,
        "messages_per_second": round(finished / seconds),
        "workers": plan.workers,
        "tenants": tenants,
        "checks": checks,
    }


def tell(session: Session, plan: Plan, result: dict[str, Any]) -> None:
    """The summary for a person."""
    session.say()
    title = (
        f"{result['messages']:,} messages in {result['seconds']:.1f} s: "
        f"{result['messages_per_second']:,} a second"
    )
    where = "one SQLite file" if session.url.startswith("sqlite") else session.shown
    session.say(title, style="bold")
    session.say(
        f"{plan.workers} workers, {plan.work * 1000:g} ms of pretended work for each message, "
        f"{where}; for raw speed try fairlead bench",
        style="dim",
    )
    session.say()
    rows = [
        [
            name,
            *(one[count] for count in _COUNTS),
            wait_text(one["wait_p50"]),
            wait_text(one["wait_p95"]),
        ]
        for name, one in result["tenants"].items()
    ]
    counts = [f">{count}" for count in _COUNTS]
    session.table(["tenant", *counts, ">wait p50", ">wait p95"], rows)
    session.say()
    for check in result["checks"]:
        mark = ("✓ ", "bold green") if check["ok"] else ("✗ ", "bold red")
        text = in_commands(session, check["text"], QUEUE).split(" Redrive it")[0].rstrip(".")
        session.say(Text.assemble(mark, (f"{check['check']:13}", "bold"), text))
    session.say()
    session.say("Every number was measured in this run. Try next:", style="bold")
    for words, what in (
        (("explain", QUEUE, "--key", ONCE), "why is it not running?"),
        (("dead", "list", QUEUE), "what failed for good"),
        (("failures", QUEUE), "every attempt that failed"),
        (("dead", "redrive", QUEUE), "give it a new life"),
        (("stats", QUEUE), "exact counts"),
        (("receive", QUEUE, "--ack"), "take one yourself"),
        (("doctor",), "is this database healthy?"),
    ):
        line = Text.assemble(("  " + session.command(*words), "cyan"), (f"  # {what}", "dim"))
        session.say(line)
