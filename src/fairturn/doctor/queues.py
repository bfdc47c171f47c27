"""Checks that are the same on every database: the clock, the schema, the queues."""

from __future__ import annotations

from collections.abc import Iterator

from fairturn.core.limits import SECOND
from fairturn.core.settings import Settings
from fairturn.core.values import Stats
from fairturn.doctor.examination import Examination, Finding, bad, many, ok, span, warn

SKEW = 1.0  # seconds
STALLED = 300  # seconds: a ready message of this age is worth a check
EXPIRED_GRACE = 60  # seconds: the next receive recovers a lease that expired recently
TALLY = 100_000  # counter rows that maintenance has not summed up yet
_UPGRADE = "upgrade the Python package fairturn on this machine"


def clock(examination: Examination) -> Iterator[Finding]:
    skew, trip = examination.skew()
    if abs(skew) - trip > SKEW:
        way = "ahead of" if skew > 0 else "behind"
        yield warn(
            "clock",
            f"the database's clock is {span(abs(skew))} {way} this machine's",
            "leases and delays use the database's clock alone, so nothing is lost; but a time that "
            "you compute here and send with at= is wrong by as much",
            "run a time service (chrony, systemd-timesyncd) on both machines",
        )
    else:
        yield ok("clock", f"clocks agree; one round trip takes {trip * 1000:.1f} ms")


def installed(examination: Examination) -> bool:
    """Whether there is a schema."""
    names = [] if examination.dialect == "sqlite" else [examination.schema]
    [(found,)] = examination.ask("has_schema", *names)
    return bool(found)


def missing(examination: Examination) -> Finding:
    return bad(
        "schema",
        "Fairturn's schema is missing",
        "no queue can exist without it",
        examination.command("migrate"),
    )


def schema(examination: Examination) -> Finding:
    """Check that the schema fits this version of Fairturn."""
    fit = examination.fit()
    if fit.remedy == "migrate":
        why = "calls fail with SchemaOutdated"
        return bad("schema", fit.what, why, examination.command("migrate"))
    if fit.remedy == "upgrade":
        return bad("schema", fit.what, "this client is refused", _UPGRADE)
    if fit.newer:
        why = "an upgrade of your machines is under way, or this machine was left out"
        return warn("schema", fit.what, why, _UPGRADE)
    return ok("schema", fit.what)


def examine(examination: Examination) -> Iterator[Finding]:
    stats = examination.db.stats()
    now = examination.db.clock()
    found: list[Finding] = []
    every = examination.settings()
    names = {settings.name for settings in every}
    for settings in every:
        if settings.dead_letter is not None and settings.dead_letter not in names:
            found.append(_no_dead_letter(examination, settings.name, settings.dead_letter))
        one = stats.queues.get(settings.name)
        if one is not None:
            found += _queue(examination, settings, one, now)
    yield from found
    if not found:
        yield ok(
            "queues",
            f"{many(len(stats.queues), 'queue')}, {many(stats.total, 'message')}, none stuck",
        )
    yield from _leases(examination, now)
    yield from _tallies(examination)


def _queue(examination: Examination, settings: Settings, one: Stats, now: int) -> Iterator[Finding]:
    name = settings.name
    waiting = 0.0
    if one.oldest_ready is not None:
        waiting = now / SECOND - one.oldest_ready.timestamp()
    if settings.paused:
        yield warn(
            "paused",
            f"queue {name!r} is paused with {many(one.ready, 'ready message')}",
            "no message of it is delivered until it is resumed",
            examination.command("queue", "resume", name),
        )
    elif waiting > STALLED:
        delivered = examination.delivered_since(name, now - round(STALLED * SECOND))
        if delivered:
            yield warn(
                "behind",
                f"queue {name!r} is behind: {one.ready:,} ready, the oldest for {span(waiting)}, "
                f"{delivered:,} delivered in the last {span(STALLED)}",
                "its workers are slower than its senders, or a policy holds a channel back",
                examination.command("channel", "list", name),
            )
        else:
            yield warn(
                "consumers",
                f"no worker receives from queue {name!r}: {one.ready:,} ready, "
                f"the oldest for {span(waiting)}",
                "no worker runs, or a policy keeps every channel closed",
                examination.command("peek", name, "--state", "ready"),
            )
    if one.dead:
        yield warn(
            "dead",
            f"queue {name!r} has {many(one.dead, 'dead message')}",
            "they are not tried again until you redrive them"
            + ("; they are kept for ever" if settings.dead_retention is None else ""),
            examination.command("dead", "list", name),
        )


def _no_dead_letter(examination: Examination, name: str, dead_letter: str) -> Finding:
    return warn(
        "dead_letter",
        f"queue {name!r} has the dead-letter queue {dead_letter!r}, which does not exist",
        f"its dead messages stay in {name!r} instead of going to {dead_letter!r}",
        examination.command("queue", "create", dead_letter),
    )


def _leases(examination: Examination, now: int) -> Iterator[Finding]:
    [[expired]] = examination.ask("expired_leases", now - EXPIRED_GRACE * SECOND)
    if expired:
        yield warn(
            "leases",
            f"{many(expired, 'lease')} expired over {span(EXPIRED_GRACE)} ago without recovery",
            "their workers have died; a receive of that queue, or maintenance, makes them ready",
            examination.command("maintain"),
        )
    else:
        yield ok("leases", "no expired lease waits for recovery")


def _tallies(examination: Examination) -> Iterator[Finding]:
    [[rows]] = examination.ask("backlog", TALLY + 1)
    what = "rows of purged queues" if examination.dialect == "sqlite" else "rows of counters"
    if rows > TALLY:
        yield warn(
            "maintenance",
            f"over {TALLY:,} {what} wait for maintenance",
            "they take space and make stats slow",
            examination.command("maintain", "--loop", "60"),
        )
    else:
        yield ok("maintenance", f"maintenance keeps up: {what} that wait: {rows:,}")
