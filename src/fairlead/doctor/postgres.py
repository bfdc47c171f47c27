"""PostgreSQL: durability, and whatever keeps vacuum from removing dead rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlead.doctor.patient import Finding, Patient, bad, many, ok, size, span, warn

MINIMUM = 130_000
LONG, VERY_LONG = 60, 3600  # seconds a transaction may hold the horizon: a warning, bad
LAG = 50_000  # transactions a standby's horizon may be behind
DEAD_ROWS = 100_000
WAL_HELD = 1 << 30  # bytes that a slot nobody reads keeps
WAIT = 1  # seconds in a lock queue that are worth telling

_HORIZON = (
    "dead rows that it could still see cannot be removed: every receive has to step over more "
    "and more of them"
)


def examine(patient: Patient) -> Iterator[Finding]:
    [server] = patient.ask("server")
    number, version, fsync, commit, autovacuum, counts, most, used, standby, _ = server
    if number < MINIMUM:
        yield bad(
            "version",
            f"PostgreSQL {version} is too old",
            "Fairlead is tested on 13 and newer",
            "upgrade the server",
        )
    else:
        yield ok("version", f"PostgreSQL {version}")
    if standby:
        yield bad(
            "standby",
            "this server is a standby: it cannot write",
            "nothing can be sent or received here",
            "point the URL at the primary (target_session_attrs=read-write)",
        )
    yield from _durability(fsync, commit)
    if used > most * 0.9:
        yield warn(
            "connections",
            f"{used} of {most} connections are in use",
            "the next worker may find none",
            "ALTER SYSTEM SET max_connections = …, or lower pool_size, or use PgBouncer",
        )
    yield from _isolation(patient)
    yield from _pooler(patient)
    yield from _horizon(patient)
    yield from _table(patient, autovacuum, counts)
    yield from _waits(patient)


def _durability(fsync: str, commit: str) -> Iterator[Finding]:
    if fsync != "on":
        yield bad(
            "fsync",
            "fsync is off",
            "a crash of the machine can destroy the whole database",
            "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();",
        )
    if commit == "off":
        yield warn(
            "synchronous_commit",
            "synchronous_commit is off",
            "a crash loses the last moments of sends and acks that were reported as done",
            "ALTER DATABASE … SET synchronous_commit = on",
        )
    elif fsync == "on":
        yield ok("durability", f"durable: fsync on, synchronous_commit {commit}")


def _isolation(patient: Patient) -> Iterator[Finding]:
    rows = [*patient.ask("isolation"), *(patient.try_ask("file_isolation") or [])]
    found = [(level, whose) for level, whose in rows if level != "read committed"]
    if found:
        level, whose = found[0]
        yield warn(
            "isolation",
            f"default_transaction_isolation of {whose} is {level}",
            "Fairlead's own sessions use READ COMMITTED; a receive on *your* connection is "
            "refused, because limits could be exceeded",
            "ALTER DATABASE … SET default_transaction_isolation = 'read committed'",
        )
    else:
        yield ok("isolation", "transactions are READ COMMITTED by default")


def _pooler(patient: Patient) -> Iterator[Finding]:
    """A pooler answers the connection itself: the process it names is not the one that works."""
    try:
        driver: Any = patient.db.target.open()
    except Exception as error:
        yield warn(
            "pooler",
            f"a second connection could not be opened: {error}",
            "without one it cannot be seen whether a pooler answers in the server's place",
            "raise max_connections, or close idle sessions, and run doctor again",
        )
        return
    try:
        named = driver.connection.info.backend_pid
        [[_, _, _, _, _, _, _, _, _, working]] = driver.execute(patient.text("server"), ())
    finally:
        driver.close()
    if named != working:
        yield warn(
            "pooler",
            "the connection goes through a pooler (PgBouncer or the like)",
            "in transaction mode LISTEN and prepared statements do not work through it",
            "connect with prepare=False, or give workers a direct connection",
        )
    else:
        yield ok("pooler", "the connection is direct")


def _session(row: tuple[Any, ...]) -> str:
    pid, user, application, state, _, seconds, client = row
    name = f", {application}" if application else ""
    return f"session {pid} ({user}@{client}{name}; {state} for {span(seconds)})"


def _horizon(patient: Patient) -> Iterator[Finding]:
    held = False
    for row in patient.ask("horizon"):
        seconds = row[5]
        if seconds < LONG:
            continue
        held = True
        make = bad if seconds >= VERY_LONG else warn
        yield make(
            "horizon",
            f"{_session(row)} holds the vacuum horizon, {row[4]:,} transactions back",
            _HORIZON,
            f"SELECT pg_terminate_backend({row[0]}); and set idle_in_transaction_session_timeout",
        )
    for gid, owner, back, seconds in patient.ask("prepared"):
        if seconds < LONG:
            continue
        held = True
        quoted = gid.replace("'", "''")
        yield bad(
            "horizon",
            f"prepared transaction {gid!r} of {owner} is open for {span(seconds)} and holds the "
            f"vacuum horizon, {back:,} transactions back",
            _HORIZON,
            f"ROLLBACK PREPARED '{quoted}'; (or COMMIT PREPARED)",
        )
    for finding in _replication(patient):
        held = True
        yield finding
    if not held:
        yield ok("horizon", "nobody holds the vacuum horizon")


def _replication(patient: Patient) -> Iterator[Finding]:
    for name, active, back, wal in patient.try_ask("slots") or []:
        drop = f"SELECT pg_drop_replication_slot('{name}');"
        if back > LAG:
            yield bad(
                "horizon",
                f"replication slot {name!r} ({'active' if active else 'nobody reads it'}) holds "
                f"the vacuum horizon, {back:,} transactions back",
                _HORIZON,
                drop,
            )
        elif not active and wal > WAL_HELD:
            yield warn(
                "slots",
                f"nobody reads replication slot {name!r}; it keeps {size(wal)} of WAL",
                "the disk fills up until the server stops",
                drop,
            )
    for pid, application, client, back in patient.try_ask("standbys") or []:
        if back > LAG:
            yield warn(
                "horizon",
                f"standby {application or pid} ({client}) holds the vacuum horizon through "
                f"hot_standby_feedback, {back:,} transactions back",
                _HORIZON,
                "end the long query on the standby, or set hot_standby_feedback = off there",
            )


def _table(patient: Patient, autovacuum: str, counts: str) -> Iterator[Finding]:
    table = f"{patient.schema}.message"
    if autovacuum != "on" or counts != "on":
        yield bad(
            "autovacuum",
            "autovacuum is off for the whole server",
            "nobody removes dead rows; receives get slower every day",
            "ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; "
            "SELECT pg_reload_conf();",
        )
    for live, dead, since, options, bytes in patient.ask("message_table", patient.schema):
        if "autovacuum_enabled=false" in options.replace("=off", "=false"):
            yield bad(
                "autovacuum",
                f"autovacuum is off for {table}",
                "nobody removes its dead rows; receives get slower every day",
                f"ALTER TABLE {table} RESET (autovacuum_enabled);",
            )
        when = "never" if since < 0 else f"{span(since)} ago"
        text = f"{table}: {many(live, 'row')}, {dead:,} dead ({size(bytes)}); last vacuum {when}"
        if dead > max(DEAD_ROWS, live):
            yield warn(
                "bloat",
                text,
                "dead rows cost reads and space until vacuum may remove them",
                f"VACUUM {table}; (if it removes nothing, see the vacuum horizon)",
            )
        else:
            yield ok("bloat", text)


def _waits(patient: Patient) -> Iterator[Finding]:
    found = [row for row in patient.ask("waits", patient.schema) if row[3] >= WAIT]
    for pid, user, application, seconds, blockers in found:
        name = f", {application}" if application else ""
        yield warn(
            "locks",
            f"session {pid} ({user}{name}) has waited {span(seconds)} for a lock that session "
            f"{blockers} holds",
            "somebody keeps a transaction open over Fairlead's tables",
            f"end that transaction, or: SELECT pg_terminate_backend({blockers.split(',')[0]});",
        )
    if not found:
        yield ok("locks", "nobody waits for a lock on Fairlead's tables")
