"""PostgreSQL: durability, and everything that keeps vacuum from removing dead rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairturn.doctor.examination import Examination, Finding, bad, many, ok, size, span, warn

MINIMUM = 130_000
LONG, VERY_LONG = 60, 3600  # seconds for which a transaction holds the horizon: a warning, bad
LAG = 50_000  # transactions by which a standby's horizon may be behind
DEAD_ROWS = 100_000
WAL_HELD = 1 << 30  # bytes kept for a slot without a reader
WAIT = 1  # seconds of waiting for a lock that are worth a warning

_HORIZON = (
    "vacuum cannot remove dead rows that it could still see: every receive has to skip more and "
    "more of them"
)


def examine(examination: Examination) -> Iterator[Finding]:
    [server] = examination.ask("server")
    number, version, fsync, commit, autovacuum, counts, most, used, standby, _ = server
    if number < MINIMUM:
        yield bad(
            "version",
            f"PostgreSQL {version} is too old",
            "Fairturn is tested on 13 and newer",
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
    yield _isolation(examination)
    yield _pooler(examination)
    yield from _horizon(examination)
    yield from _table(examination, autovacuum, counts)
    yield from _waits(examination)


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
            "a crash can lose the last sends and acks, although they were confirmed",
            "ALTER DATABASE … SET synchronous_commit = on",
        )
    elif fsync == "on":
        yield ok("durability", f"durable: fsync on, synchronous_commit {commit}")


def _isolation(examination: Examination) -> Finding:
    rows = [*examination.ask("isolation"), *(examination.try_ask("file_isolation") or [])]
    for level, whose in rows:
        if level != "read committed":
            return warn(
                "isolation",
                f"default_transaction_isolation of {whose} is {level}",
                "Fairturn's own sessions use READ COMMITTED; a receive on *your* connection is "
                "refused, because limits could be exceeded",
                "ALTER DATABASE … SET default_transaction_isolation = 'read committed'",
            )
    return ok("isolation", "transactions are READ COMMITTED by default")


def _pooler(examination: Examination) -> Finding:
    """Detect a pooler: the process id that it reports is not the one of the server process."""
    try:
        driver: Any = examination.db.target.open()
    except Exception as error:
        return warn(
            "pooler",
            f"a second connection could not be opened: {error}",
            "without one the doctor cannot detect a pooler",
            "raise max_connections, or close idle sessions, and run doctor again",
        )
    try:
        named = driver.connection.info.backend_pid
        [[*_, working]] = driver.execute(examination.text("server"), ())
    finally:
        driver.close()
    if named == working:
        return ok("pooler", "the connection is direct")
    return warn(
        "pooler",
        "the connection goes through a pooler (such as PgBouncer)",
        "LISTEN and prepared statements do not work through a pooler in transaction mode",
        "connect with prepare=False, or give workers a direct connection",
    )


def _horizon(examination: Examination) -> Iterator[Finding]:
    held = False
    for pid, user, application, state, back, seconds, client in examination.ask("horizon"):
        if seconds < LONG:
            continue
        held = True
        make = bad if seconds >= VERY_LONG else warn
        name = f", {application}" if application else ""
        yield make(
            "horizon",
            f"session {pid} ({user}@{client}{name}; {state} for {span(seconds)}) holds the vacuum "
            f"horizon, {back:,} transactions back",
            _HORIZON,
            f"SELECT pg_terminate_backend({pid}); and set idle_in_transaction_session_timeout",
        )
    for gid, owner, back, seconds in examination.ask("prepared"):
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
    for finding in _replication(examination):
        held = True
        yield finding
    if not held:
        yield ok("horizon", "nothing holds the vacuum horizon")


def _replication(examination: Examination) -> Iterator[Finding]:
    for name, active, back, wal in examination.try_ask("slots") or []:
        drop = f"SELECT pg_drop_replication_slot('{name}');"
        if back > LAG:
            yield bad(
                "horizon",
                f"replication slot {name!r} ({'active' if active else 'inactive'}) holds the "
                f"vacuum horizon, {back:,} transactions back",
                _HORIZON,
                drop,
            )
        elif not active and wal > WAL_HELD:
            yield warn(
                "slots",
                f"replication slot {name!r} is inactive and keeps {size(wal)} of WAL",
                "the disk fills up until the server stops",
                drop,
            )
    for pid, application, client, back in examination.try_ask("standbys") or []:
        if back > LAG:
            yield warn(
                "horizon",
                f"standby {application or pid} ({client}) holds the vacuum horizon through "
                f"hot_standby_feedback, {back:,} transactions back",
                _HORIZON,
                "end the long query on the standby, or set hot_standby_feedback = off there",
            )


def _table(examination: Examination, autovacuum: str, counts: str) -> Iterator[Finding]:
    table = f"{examination.schema}.message"
    if autovacuum != "on" or counts != "on":
        yield bad(
            "autovacuum",
            "autovacuum is off for the whole server",
            "dead rows are never removed; receives get slower every day",
            "ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; "
            "SELECT pg_reload_conf();",
        )
    for live, dead, since, options, bytes in examination.ask("message_table", examination.schema):
        if "autovacuum_enabled=false" in options.replace("=off", "=false"):
            yield bad(
                "autovacuum",
                f"autovacuum is off for {table}",
                "its dead rows are never removed; receives get slower every day",
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


def _waits(examination: Examination) -> Iterator[Finding]:
    waits = False
    for pid, user, application, seconds, blockers in examination.ask("waits", examination.schema):
        if seconds < WAIT:
            continue
        waits = True
        name = f", {application}" if application else ""
        yield warn(
            "locks",
            f"session {pid} ({user}{name}) has waited {span(seconds)} for a lock that session "
            f"{blockers} holds",
            "that session keeps a transaction open that uses Fairturn's tables",
            f"end that transaction, or: SELECT pg_terminate_backend({blockers.split(',')[0]});",
        )
    if not waits:
        yield ok("locks", "no session waits for a lock on Fairturn's tables")
