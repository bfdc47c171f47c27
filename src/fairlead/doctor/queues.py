"""What is the same on every database: the clock, the schema, and how the queues are doing."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.doctor.patient import Finding, Patient, bad, many, ok, span, warn
from fairlead.limits import SECOND
from fairlead.values import Settings, Stats

SKEW = 1.0  # seconds
STALLED = 300  # seconds: a ready message this old is worth a question
EXPIRED_GRACE = 60  # a lease that ended just now will be recovered by the next receive
TALLY = 100_000  # counter rows not yet folded


def clock(patient: Patient) -> Iterator[Finding]:
    skew, trip = patient.skew()
    if abs(skew) - trip > SKEW:
        way = "ahead of" if skew > 0 else "behind"
        yield warn(
            "clock",
            f"the database's clock is {span(abs(skew))} {way} this machine's",
            "leases and delays go by the database's clock alone, so nothing is lost; but a time "
            "you compute here and send with at= is off by as much",
            "run a time service (chrony, systemd-timesyncd) on both machines",
        )
    else:
        yield ok("clock", f"clocks agree; one round trip takes {trip * 1000:.1f} ms")


def installed(patient: Patient) -> bool:
    """Is there a schema at all?"""
    names = [] if patient.dialect == "sqlite" else [patient.schema]
    return bool(patient.ask("has_schema", *names)[0][0])


def missing(patient: Patient) -> Finding:
    return bad(
        "schema",
        "Fairlead's schema is missing",
        "no queue can exist without it",
        patient.command("migrate"),
    )


def schema(patient: Patient) -> Finding:
    """Does the schema fit this version of Fairlead?"""
    brings = max(int(name.split("_")[0]) for name, _ in patient.db.target.backend.migrations())
    applied = patient.ask("schema")
    version = max((row[0] for row in applied), default=0)
    if version < brings:
        return bad(
            "schema",
            f"the schema is at version {version}; this Fairlead brings {brings}",
            "calls may fail with SchemaOutdated",
            patient.command("migrate"),
        )
    if version > brings:
        oldest = max(row[1] for row in applied)
        return warn(
            "schema",
            f"the schema is at version {version}, newer than this Fairlead ({brings}); "
            f"it serves clients from version {oldest} on",
            "a roll-out is under way, or this machine was forgotten",
            "upgrade this machine's Fairlead: in its clone, git pull && pip install .",
        )
    return ok("schema", f"schema version {version} is the one this Fairlead brings")


def examine(patient: Patient) -> Iterator[Finding]:
    stats = patient.db.stats()
    now = patient.db.clock()
    found: list[Finding] = []
    every = patient.settings()
    names = {settings.name for settings in every}
    for settings in every:
        if settings.dead_letter is not None and settings.dead_letter not in names:
            found.append(_no_dead_letter(patient, settings.name, settings.dead_letter))
        one = stats.queues.get(settings.name)
        if one is not None:
            found += _queue(patient, settings, one, now)
    yield from found
    if not found:
        yield ok(
            "queues",
            f"{many(len(stats.queues), 'queue')}, {many(stats.total, 'message')}, none stuck",
        )
    yield from _leases(patient, now)
    yield from _tallies(patient)


def _queue(patient: Patient, settings: Settings, one: Stats, now: int) -> Iterator[Finding]:
    name = settings.name
    waiting = 0.0
    if one.oldest_ready is not None:
        waiting = now / SECOND - one.oldest_ready.timestamp()
    if settings.paused:
        yield warn(
            "paused",
            f"queue {name!r} is paused with {many(one.ready, 'ready message')}",
            "nothing is given out until it is resumed",
            patient.command("queue", "resume", name),
        )
    elif waiting > STALLED:
        delivered = patient.delivered_since(name, now - round(STALLED * SECOND))
        if delivered:
            yield warn(
                "behind",
                f"queue {name!r} is behind: {one.ready:,} ready, the oldest for {span(waiting)}, "
                f"{delivered:,} delivered in the last {span(STALLED)}",
                "its workers are slower than its senders, or a policy holds a channel back",
                patient.command("channel", "list", name),
            )
        else:
            yield warn(
                "consumers",
                f"nobody receives from queue {name!r}: {one.ready:,} ready, "
                f"the oldest for {span(waiting)}",
                "no worker runs, or a policy keeps every channel closed",
                patient.command("peek", name, "--state", "ready"),
            )
    if one.dead:
        yield warn(
            "dead",
            f"queue {name!r} has {many(one.dead, 'dead message')}",
            "each failed for good and waits for a person"
            + ("; they are kept for ever" if settings.dead_retention is None else ""),
            patient.command("dead", "list", name),
        )


def _no_dead_letter(patient: Patient, name: str, dead_letter: str) -> Finding:
    return warn(
        "dead_letter",
        f"queue {name!r} has the dead-letter queue {dead_letter!r}, which does not exist",
        f"its dead messages stay in {name!r} instead, where whoever watches {dead_letter!r} does "
        "not see them",
        patient.command("queue", "create", dead_letter),
    )


def _leases(patient: Patient, now: int) -> Iterator[Finding]:
    [[expired]] = patient.ask("expired_leases", now - EXPIRED_GRACE * SECOND)
    if expired:
        yield warn(
            "leases",
            f"{many(expired, 'lease')} expired over {span(EXPIRED_GRACE)} ago and not recovered",
            "their workers are gone; a receive of that queue, or maintenance, makes them ready",
            patient.command("maintain"),
        )
    else:
        yield ok("leases", "no expired lease waits for its recovery")


def _tallies(patient: Patient) -> Iterator[Finding]:
    [[rows]] = patient.ask("backlog", TALLY + 1)
    what = "rows of purged queues" if patient.dialect == "sqlite" else "rows of counters"
    if rows > TALLY:
        yield warn(
            "maintenance",
            f"over {TALLY:,} {what} wait for maintenance",
            "they take space and make stats slow",
            patient.command("maintain", "--loop", "60"),
        )
    else:
        yield ok("maintenance", f"maintenance keeps up: {what} that wait: {rows:,}")
