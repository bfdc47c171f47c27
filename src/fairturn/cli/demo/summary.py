"""The results of the demo, as facts and as text."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.text import Text

from fairturn.cli.commands.insight import in_commands
from fairturn.cli.demo.display import wait_text
from fairturn.cli.demo.measure import Measured
from fairturn.cli.demo.story import LIMITED, METERED, NOISY, ONCE, QUEUE, QUIET, TENANTS, Plan
from fairturn.cli.session import Session
from fairturn.sync.queue import Queue

_COUNTS = ("sent", "done", "dead", "waiting")  # of a tenant: the first is the sum of the others


def facts(queue: Queue, measured: Measured) -> dict[str, Any]:
    """Return the numbers of the run, and the checks of what they prove."""
    plan, stats = measured.plan, queue.stats()
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
    rate = measured.rate(METERED)
    recovered, crashed = len(measured.recovered), len(measured.crashed)
    slowest = max(measured.recovered.values(), default=None)
    dead = queue.explain(measured.broken)
    first, second, outcome = measured.duplicate
    sent, left = stats.sent, stats.ready + stats.scheduled + stats.leased
    finished = stats.acked + stats.completed
    checks = [
        _check(
            "fair",
            quiet is not None and noisy is not None and quiet < noisy,
            f"quiet tenants waited {wait_text(quiet)} (p95) while the flood of "
            f"{plan.flood:,} waited {wait_text(noisy)}",
        ),
        _check(
            "limit",
            most <= plan.limit,
            f"{LIMITED!r} may have {plan.limit} leases at once: never more than {most} seen, "
            f"over {measured.done_of[LIMITED]:,} messages",
        ),
        _check(
            "rate",
            # GCRA without a burst: message k is never delivered before (k - 1) / rate.
            rate is None or rate <= plan.rate * 1.05,
            f"{METERED!r} may have {plan.rate}/s: {rate or 0:.1f}/s measured, over "
            f"{len(measured.given_at[METERED]):,} deliveries",
        ),
        _check(
            "crash",
            crashed > 0 and recovered == crashed,
            f"a worker crashed with {crashed} leases of {plan.lease:g} s: {recovered} of them "
            f"came back by themselves, the last after {wait_text(slowest)}",
        ),
        _check("dead", dead.state == "dead", f"message {dead.id} is {dead.text}"),
        _check(
            "unique",
            outcome == "duplicate" and first == second,
            f"key {ONCE!r} was sent twice: message {first} exists once",
        ),
        _check(
            "nothing lost",
            sent == finished + stats.dead + left,
            f"{sent:,} sent = {finished:,} finished + {stats.dead:,} dead + {left:,} waiting",
        ),
    ]
    return {
        "seconds": round(seconds, 2),
        "messages": finished,
        "messages_per_second": round(finished / seconds),
        "workers": plan.workers,
        "tenants": tenants,
        "checks": checks,
    }


def _check(name: str, ok: bool, text: str) -> dict[str, Any]:
    return {"check": name, "ok": ok, "text": text}


def tell(session: Session, plan: Plan, result: dict[str, Any]) -> None:
    """Print the results as text."""
    session.say()
    title = (
        f"{result['messages']:,} messages in {result['seconds']:.1f} s: "
        f"{result['messages_per_second']:,} a second"
    )
    where = "one SQLite file" if session.url.startswith("sqlite") else session.shown
    session.say(title, style="bold")
    session.say(
        f"{plan.workers} workers, {plan.work * 1000:g} ms of pretended work for each message, "
        f"{where}; for raw speed try fairturn bench",
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
        (("dead", "redrive", QUEUE), "give it fresh attempts"),
        (("stats", QUEUE), "exact counts"),
        (("receive", QUEUE, "--ack"), "take one yourself"),
        (("doctor",), "is this database healthy?"),
    ):
        line = Text.assemble(("  " + session.command(*words), "cyan"), (f"  # {what}", "dim"))
        session.say(line)
