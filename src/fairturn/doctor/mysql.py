"""MySQL and MariaDB: durability, old read views, packets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fairturn.core.errors import SchemaOutdated
from fairturn.doctor import galera
from fairturn.doctor.examination import Examination, Finding, bad, many, ok, size, span, warn

LONG, VERY_LONG = 60, 3600  # seconds for which a transaction is open: a warning, bad
HISTORY_WARN, HISTORY_BAD = 100_000, 5_000_000
WAIT = 1  # seconds of waiting for a lock that are worth a warning


def examine(examination: Examination) -> Iterator[Finding]:
    [[text]] = examination.ask("version")
    yield _version(str(text))
    variables = {str(name): str(value) for name, value in examination.ask("variables")}
    status = {str(name): str(value) for name, value in examination.ask("connections")}
    yield from galera.examine(variables, status)
    yield from _durability(variables)
    yield _isolation(variables)
    yield from _packets(examination, variables)
    yield from _connections(variables, status)
    yield from _transactions(examination, status)


def _version(text: str) -> Finding:
    numbers = tuple(int(part) for part in re.findall(r"\d+", text))
    mariadb = "mariadb" in text.lower()
    name = f"MariaDB {text.split('-')[0]}" if mariadb else f"MySQL {text}"
    least = (10, 6) if mariadb else (8, 0)
    if numbers < least:
        return bad(
            "version",
            f"{name} is too old",
            "Fairturn needs SKIP LOCKED: MariaDB 10.6 or MySQL 8.0",
            "upgrade the server",
        )
    return ok("version", name)


def _durability(variables: dict[str, str]) -> Iterator[Finding]:
    flush = variables.get("innodb_flush_log_at_trx_commit", "1")
    binlog = variables.get("log_bin", "OFF").upper() in ("ON", "1")
    sync = variables.get("sync_binlog", "1")
    if flush != "1":
        yield warn(
            "durability",
            f"innodb_flush_log_at_trx_commit is {flush}",
            "a crash can lose a second of sends and acks, although they were confirmed",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1;",
        )
    if binlog and sync != "1":
        yield warn(
            "binlog",
            f"sync_binlog is {sync}",
            "after a crash replicas can miss messages that this server has",
            "SET GLOBAL sync_binlog = 1;",
        )
    if flush == "1" and (sync == "1" or not binlog):
        how = f"sync_binlog {sync}" if binlog else "no binary log"
        yield ok("durability", f"durable: innodb_flush_log_at_trx_commit 1, {how}")


def _isolation(variables: dict[str, str]) -> Finding:
    level = variables.get("transaction_isolation") or variables.get("tx_isolation", "?")
    if level.upper() in ("READ-COMMITTED", "READ COMMITTED"):
        return ok("isolation", "transactions are READ COMMITTED by default")
    # MySQL's default. It is no fault, but it matters for a receive on the user's connection.
    return ok(
        "isolation",
        f"transactions are {level} by default; Fairturn's own sessions use READ COMMITTED",
        "a receive on *your* connection needs READ COMMITTED and is refused otherwise: "
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )


def _packets(examination: Examination, variables: dict[str, str]) -> Iterator[Finding]:
    packet = int(variables.get("max_allowed_packet", 0))
    try:
        queues = examination.settings()
    except SchemaOutdated:
        return  # this is a finding of its own
    # A body is sent escaped in one packet: every byte may take two.
    large = [queue for queue in queues if 2 * queue.max_body + 65_536 > packet]
    if large:
        most = max(large, key=lambda queue: queue.max_body)
        room = max((packet - 65_536) // 2, 0)
        yield warn(
            "packets",
            f"max_allowed_packet is {size(packet)}, but queue {most.name!r} allows bodies of "
            f"{size(most.max_body)} ({many(len(large), 'queue')} of that kind)",
            f"a body is sent in one packet, escaped to at most twice its size: above {size(room)} "
            "a send may fail",
            f"SET GLOBAL max_allowed_packet = {2 * most.max_body + (1 << 20)}; or: "
            + examination.command("queue", "set", most.name, "--max-body", room),
        )
    else:
        yield ok("packets", f"max_allowed_packet ({size(packet)}) holds every queue's largest body")


def _connections(variables: dict[str, str], status: dict[str, str]) -> Iterator[Finding]:
    used, most = int(status.get("Threads_connected", 0)), int(variables.get("max_connections", 1))
    if used > most * 0.9:
        yield warn(
            "connections",
            f"{used} of {most} connections are in use",
            "the next worker may find none",
            f"SET GLOBAL max_connections = {most * 2}; or lower pool_size",
        )


def _transactions(examination: Examination, status: dict[str, str]) -> Iterator[Finding]:
    rows = examination.try_ask("transactions")
    if rows is None:
        yield warn(
            "privileges",
            "this user may not see other sessions' transactions",
            "the doctor cannot see which sessions hold locks or old read views",
            "GRANT PROCESS ON *.* TO CURRENT_USER(); as an administrator",
        )
        return
    long = False
    for thread, seconds, locked, user, host, command in rows:
        if seconds < LONG:
            continue
        long = True
        make = bad if seconds >= VERY_LONG else warn
        yield make(
            "transactions",
            f"session {thread} ({user}@{host}; {command}) has had a transaction open for "
            f"{span(seconds)}, {locked:,} rows locked",
            "old versions of rows cannot be removed, and receives have to skip them",
            f"KILL {thread};",
        )
    if not long:
        yield ok("transactions", "no transaction is open for long")
    yield from _history(examination, status)
    waits = [(who, seconds) for who, seconds in examination.ask("waits") if (seconds or 0) >= WAIT]
    for thread, seconds in waits:
        yield warn(
            "locks",
            f"session {thread} has waited {span(seconds)} for a lock",
            "another session keeps a transaction open that has locked these rows",
            "SELECT * FROM information_schema.INNODB_TRX; then KILL the oldest",
        )
    if not waits:
        yield ok("locks", "no session waits for a lock")


def _history(examination: Examination, status: dict[str, str]) -> Iterator[Finding]:
    if "Innodb_history_list_length" in status:
        length = int(status["Innodb_history_list_length"])
    else:
        rows = examination.try_ask("history_metric")
        if not rows:
            return
        [(length,)] = rows
        length = int(length)
    if length > HISTORY_WARN:
        make = bad if length > HISTORY_BAD else warn
        yield make(
            "history",
            f"the history list has {length:,} entries: an old read view blocks the purge",
            "every index scan has to skip deleted rows that cannot be removed yet",
            "end the oldest transaction (information_schema.INNODB_TRX), or KILL it",
        )
    else:
        yield ok("history", f"the history list is short ({length:,})")
