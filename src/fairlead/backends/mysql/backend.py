"""The operations on MySQL and MariaDB: one CALL each (groups and events: groups.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairlead.backends import base
from fairlead.backends.base import (
    BEGIN,
    QUEUE_DEFAULTS,
    Facts,
    Lease,
    Memory,
    Op,
    PolicyRow,
    Receive,
    Received,
    Row,
    Rows,
    SendRow,
    Value,
)
from fairlead.backends.catalogue import Catalogue, parse
from fairlead.backends.mysql import faults, schema
from fairlead.backends.mysql.calling import (
    given,
    in_bytes,
    in_hex,
    lease_list,
    message_row,
    peek_row,
    text,
)
from fairlead.backends.mysql.groups import Groups
from fairlead.backends.mysql.remembering import Remembering
from fairlead.backends.mysql.schedules import Schedules
from fairlead.backends.mysql.schema import CLIENT
from fairlead.backends.mysql.sending import send_many

__all__ = ["CLIENT", "MysqlBackend"]

PORTION = 10_000  # leases in one CALL
_QUEUE_KEYS = ("name", "created_at", *QUEUE_DEFAULTS)


def _answer(row: Row) -> tuple[int, str]:
    """What became of one send."""
    outcome = text(row[1])
    return 0 if outcome == base.FULL else row[0], outcome


class MysqlBackend(Groups, Schedules, Remembering):
    dialect = "mysql"

    def __init__(self, prefix: str = "fairlead_") -> None:
        self.prefix = schema.check_prefix(prefix)
        path = Path(__file__).parent / "statements.sql"
        statements = schema.named(path.read_text("utf-8"), prefix)
        self._sql = Catalogue(parse(statements, "%s"))
        self._send_one = self.call("send_one", 18)
        self._consume = self.call("consume", 6)

    def translate(self, code: str, message: str) -> Exception | str | None:
        return faults.translate(code, message, self.prefix)

    # --- schema ------------------------------------------------------------------------------
    def migrations(self) -> list[tuple[str, str]]:
        return schema.migrations(self.prefix)

    def migrate(self) -> Op[list[str]]:
        return schema.migrate(self._sql, self.prefix)

    def check(self) -> Op[None]:
        return schema.check(self._sql, self.prefix)

    # --- queues ------------------------------------------------------------------------------
    def queue_create(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[bool]:
        options = json.dumps({**columns, "now": now})
        rows = yield self.call("queue_create", 2), (name.encode(), options)
        return bool(rows[0][0])

    def queue_set(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[None]:
        yield self.call("queue_set", 2), (name.encode(), json.dumps(dict(columns)))

    def queues(self, name: str | None) -> Op[list[dict[str, Any]]]:
        rows = yield self.call("queues", 1), (in_bytes(name),)
        return [dict(zip(_QUEUE_KEYS, map(text, row), strict=True)) for row in rows]

    def queue_purge(self, name: str, reset: bool, now: int | None) -> Op[None]:
        options = given(reset=int(reset), now=now)
        yield self.call("queue_purge", 2), (name.encode(), options)

    def queue_drop(self, name: str, now: int | None) -> Op[bool]:
        rows = yield self.call("queue_drop", 2), (name.encode(), given(now=now))
        return bool(rows[0][0])

    # --- policies ----------------------------------------------------------------------------
    def policy_set(self, queue: str, channel: str, policy: PolicyRow, now: int | None) -> Op[None]:
        options = json.dumps(dict(zip(base.POLICY_COLUMNS, policy, strict=True)))
        yield self.call("policy_set", 3), (queue.encode(), channel.encode(), options)

    def policy_clear(self, queue: str, channel: str, now: int | None) -> Op[bool]:
        rows = yield self.call("policy_clear", 2), (queue.encode(), channel.encode())
        return bool(rows[0][0])

    def channels(self, queue: str, limit: int, now: int | None) -> Op[Rows]:
        rows = yield self.call("channels", 2), (queue.encode(), limit)
        return [(text(row[0]), *row[1:]) for row in rows]

    # --- messages ----------------------------------------------------------------------------
    def send(
        self, queue: str, items: Sequence[SendRow], now: int | None
    ) -> Op[list[tuple[int, str]]]:
        if len(items) != 1:
            if not items:
                return []
            return (yield from send_many(self._sql, self.prefix, queue, items, now))
        (channel, body, is_json, rank, due, delay, key, conflict) = items[0][:8]
        (version, type_, headers, lease, max_attempts, expires, max_wait, group) = items[0][8:16]
        if items[0][16] is not None:
            once = (in_bytes(items[0][16]), items[0][17], queue.encode(), channel.encode())
            what = (body, is_json, rank, due, delay, version, in_bytes(type_), headers)
            params = (*once, *what, lease, max_attempts, expires, in_bytes(group), now)
            rows = yield self.call("send_once", 17), params
            return [_answer(rows[0])]
        names = (queue.encode(), channel.encode(), body, is_json, rank, due, delay, in_bytes(key))
        rest = (headers, lease, max_attempts, expires, max_wait, in_bytes(group), now)
        rows = yield self._send_one, (*names, conflict, version, in_bytes(type_), *rest)
        return [_answer(rows[0])]

    def receive(self, queue: str, args: Receive, memory: Memory, now: int | None) -> Op[Received]:
        types = args.types
        options = given(
            lease_us=args.lease_us,
            version=args.version,
            types=None if types is None else [name.encode().hex().upper() for name in types],
            min_priority=args.min_priority,
            max_bytes=args.max_bytes,
            permit=args.permit,
            now=now,
        )
        # Sorted, so that two calls which share messages lock them in one order.
        acks = lease_list(sorted(set(args.acks))) if args.acks else "[]"
        place = (in_bytes(memory.channel), memory.credit)
        rows: Rows = yield self._consume, (queue.encode(), args.n, *place, acks, options)
        last = rows.pop()
        memory.channel, memory.credit = text(last[1]), last[5]
        lost: list[int] = json.loads(last[3])
        return Received([message_row(row) for row in rows], None if rows else last[8], lost)

    def _verb(
        self, name: str, queue: str, leases: Sequence[Lease], *rest: Value, **options: Any
    ) -> Op[Row]:
        """The row a verb answers with, its first column being the ids of lost leases."""
        leases = list(dict.fromkeys(leases))
        if not leases:
            return ([], None)
        call, wanted = self.call(name, 3 + len(rest)), given(**options)
        if len(leases) <= PORTION:
            [row] = yield call, (queue.encode(), lease_list(leases), *rest, wanted)
            return (json.loads(row[0]), *row[1:])
        yield BEGIN
        lost: list[int] = []
        last: Row = ()
        for start in range(0, len(leases), PORTION):
            some = lease_list(leases[start : start + PORTION])
            [row] = yield call, (queue.encode(), some, *rest, wanted)
            lost += json.loads(row[0])
            last = row[1:] if not last or row[1:] != (None,) else last
        return (lost, *last)

    def ack(
        self, queue: str, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[list[int]]:
        options = {"strict": int(strict), "now": now}
        return (yield from self._verb("ack", queue, sorted(leases), **options))[0]

    def complete(
        self,
        queue: str,
        leases: Sequence[Lease],
        result: bytes | None,
        result_json: int,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        options = {"json": int(result_json), "strict": int(strict), "now": now}
        return (yield from self._verb("complete", queue, sorted(leases), result, **options))[0]

    def defer(
        self,
        queue: str,
        leases: Sequence[Lease],
        due_us: int | None,
        delay_us: int,
        keep_memo: bool,
        memo: bytes | None,
        memo_json: int,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        options = {
            "due_us": due_us,
            "delay_us": delay_us,
            "clear_memo": int(not keep_memo and memo is None),
            "json": int(memo_json),
            "strict": int(strict),
            "now": now,
        }
        memo = None if keep_memo else memo
        return (yield from self._verb("defer", queue, sorted(leases), memo, **options))[0]

    def fail(
        self,
        queue: str,
        leases: Sequence[Lease],
        error: str,
        delay_us: int | None,
        details: bytes | None,
        reference: str | None,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        options = {
            "delay_us": delay_us,
            "reference": reference,
            "strict": int(strict),
            "now": now,
        }
        rest = (error.encode(), details)
        return (yield from self._verb("fail", queue, sorted(leases), *rest, **options))[0]

    def kill(
        self,
        queue: str,
        leases: Sequence[Lease],
        error: str,
        details: bytes | None,
        reference: str | None,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        options = {"reference": reference, "strict": int(strict), "now": now}
        rest = (error.encode(), details)
        return (yield from self._verb("kill", queue, sorted(leases), *rest, **options))[0]

    def extend(
        self,
        queue: str,
        leases: Sequence[Lease],
        lease_us: int | None,
        exact: bool,
        strict: bool,
        now: int | None,
    ) -> Op[tuple[list[int], int | None]]:
        options = {"lease_us": lease_us, "exact": exact or None, "strict": int(strict), "now": now}
        lost, until = yield from self._verb("extend", queue, leases, **options)
        return lost, until

    def release(
        self, queue: str, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[list[int]]:
        options = {"strict": int(strict), "now": now}
        return (yield from self._verb("release", queue, sorted(leases), **options))[0]

    def progress(
        self,
        queue: str,
        leases: Sequence[Lease],
        progress: int | None,
        note: str | None,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        options = {"millionths": progress, "strict": int(strict), "now": now}
        rest = (in_bytes(note),)
        return (yield from self._verb("progress", queue, sorted(leases), *rest, **options))[0]

    def cancel(
        self, queue: str, id: int | None, key: str | None, force: bool, now: int | None
    ) -> Op[str]:
        options = given(force=int(force), now=now)
        rows = yield self.call("cancel", 4), (queue.encode(), id, in_bytes(key), options)
        return text(rows[0][0])

    def reschedule(
        self,
        queue: str,
        id: int | None,
        key: str | None,
        due_us: int | None,
        delay_us: int | None,
        rank: int | None,
        now: int | None,
    ) -> Op[str]:
        options = given(due_us=due_us, delay_us=delay_us, rank=rank, now=now)
        rows = yield self.call("reschedule", 4), (queue.encode(), id, in_bytes(key), options)
        return text(rows[0][0])

    def promote(self, queue: str, within_us: int, limit: int, now: int | None) -> Op[int]:
        options = given(now=now)
        rows = yield self.call("promote", 4), (queue.encode(), within_us, limit, options)
        return rows[0][0]

    def redrive(
        self, queue: str, to: str | None, limit: int, delay_us: int, now: int | None
    ) -> Op[int]:
        options = given(delay_us=delay_us, now=now)
        rows = yield self.call("redrive", 4), (queue.encode(), in_bytes(to), limit, options)
        return rows[0][0]

    def move(self, queue: str, to: str | None, limit: int, now: int | None) -> Op[int]:
        options = given(now=now)
        rows = yield self.call("move", 4), (queue.encode(), in_bytes(to), limit, options)
        return rows[0][0]

    def discard(self, queue: str, state: str, limit: int, now: int | None) -> Op[int]:
        options = given(now=now)
        rows = yield self.call("discard", 4), (queue.encode(), state, limit, options)
        return rows[0][0]

    # --- batches -----------------------------------------------------------------------------
    def batch(
        self,
        sets: Sequence[tuple[str, str, PolicyRow]],
        clears: Sequence[tuple[str, str]],
        sends: Sequence[tuple[str, Sequence[SendRow]]],
        now: int | None,
    ) -> Op[list[list[tuple[int, str]]]]:
        yield BEGIN
        if sets:
            rows = [(in_hex(queue), in_hex(channel), *policy) for queue, channel, policy in sets]
            yield self.call("policies_set", 1), (json.dumps(rows),)
        if clears:
            names = [(in_hex(queue), in_hex(channel)) for queue, channel in clears]
            yield self.call("policies_clear", 1), (json.dumps(names),)
        outcomes: list[list[tuple[int, str]]] = []
        for queue, items in sends:
            outcomes.append((yield from self.send(queue, items, now)))
        return outcomes

    # --- permits -----------------------------------------------------------------------------
    def permit_create(self, name: str, ttl_us: int, now: int | None) -> Op[int]:
        rows = yield self.call("permit_create", 3), (name.encode(), ttl_us, now)
        return rows[0][0]

    def permit_extend(self, permit: int, ttl_us: int, now: int | None) -> Op[bool]:
        rows = yield self.call("permit_extend", 3), (permit, ttl_us, now)
        return bool(rows[0][0])

    def permit_close(self, permit: int, now: int | None) -> Op[None]:
        yield self.call("permit_close", 1), (permit,)

    def permits(self, now: int | None) -> Op[Rows]:
        rows = yield self.call("permits", 1), (now,)
        return [(row[0], text(row[1]), *row[2:]) for row in rows]

    # --- insight -----------------------------------------------------------------------------
    def get(self, queue: str, id: int | None, key: str | None, now: int | None) -> Op[Row | None]:
        call = self.call("get", 4)
        rows = yield call, (queue.encode(), id, in_bytes(key), given(now=now))
        return peek_row(rows[0]) if rows else None

    def peek(
        self,
        queue: str,
        n: int,
        state: str | None,
        channel: str | None,
        after: int,
        now: int | None,
    ) -> Op[Rows]:
        options = given(state=state, channel=channel, after=after, now=now)
        rows = yield self.call("peek", 3), (queue.encode(), n, options)
        return [peek_row(row) for row in rows]

    def stats(self, queue: str | None, now: int | None) -> Op[Rows]:
        rows = yield self.call("stats", 2), (in_bytes(queue), given(now=now))
        return [(text(row[0]), *row[1:-1], text(row[-1])) for row in rows]

    def history(self, queue: str, since: int, now: int | None) -> Op[Rows]:
        rows = yield self.call("history_of", 2), (queue.encode(), since)
        return list(rows)

    def facts(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> Op[Facts | None]:
        row = yield from self.get(queue, id, key, now)
        if row is None:
            return None
        found = yield from self.queues(queue)
        rows = yield self.call("facts", 3), (queue.encode(), row[0], given(now=now))
        if not found or not rows:
            return None  # gone between two statements
        facts = rows[0]
        columns = {name: found[0][name] for name in QUEUE_DEFAULTS}
        return Facts(row, facts[0], columns, tuple(facts[1:9]), *facts[9:])

    def failures(self, queue: str, id: int | None, key: str | None, n: int) -> Op[Rows]:
        rows = yield self.call("failures", 4), (queue.encode(), id, in_bytes(key), n)
        return [
            (text(row[0]), row[1], text(row[2]), *row[3:5], text(row[5]), row[6], text(row[7]))
            for row in rows
        ]

    def trace(self, key: str) -> Op[Rows]:
        rows = yield self.call("trace", 1), (key.encode(),)
        return [tuple(map(text, row)) for row in rows]

    def outcomes(
        self, queue: str, ids: Sequence[int], keys: Sequence[str], now: int | None
    ) -> Op[Rows]:
        wanted = (json.dumps(list(ids)), json.dumps([in_hex(key) for key in keys]))
        rows = yield self.call("outcomes", 4), (queue.encode(), *wanted, now)
        return [
            (row[0], text(row[1]), text(row[2]), *row[3:5], text(row[5]), row[6], text(row[7]))
            for row in rows
        ]

    # --- care --------------------------------------------------------------------------------
    def maintain(self, limit: int, now: int | None) -> Op[tuple[int, int, int, int, bool]]:
        rows = yield self.call("maintain", 2), (limit, given(now=now))
        activated, recovered, killed, purged, more = rows[0]
        return activated, recovered, killed, purged, bool(more)

    def clock(self) -> Op[int]:
        rows = yield self._sql.clock, ()
        return rows[0][0]
