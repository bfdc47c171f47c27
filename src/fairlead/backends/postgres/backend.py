"""The operations on PostgreSQL: one function call each."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlead.backends import base
from fairlead.backends.base import (
    BEGIN,
    QUEUE_DEFAULTS,
    Copy,
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
from fairlead.backends.catalogue import parse
from fairlead.backends.postgres import bulk, faults
from fairlead.backends.postgres.memory import Hints
from fairlead.errors import BodyTooLarge, SchemaOutdated

HERE = Path(__file__).parent
CLIENT = 1  # this client's generation; a schema names the oldest it serves
BULK = 1000  # from this many messages on a COPY beats unnest

_PEEK = len(base.PEEK_ROW)
_QUEUE_KEYS = ("name", "created_at", *QUEUE_DEFAULTS)


def _array(values: Sequence[Any]) -> str | None:
    """Numbers as an array literal; None if all are None (the default of every item)."""
    if all(value is None for value in values):
        return None
    return "{%s}" % ",".join("NULL" if value is None else str(value) for value in values)


def _numbers(values: Sequence[int]) -> str:
    return "{%s}" % ",".join(map(str, values))


def _or_none(values: list[Any]) -> list[Any] | None:
    return None if all(value is None for value in values) else values


def _leases(leases: Sequence[Lease]) -> tuple[str, str]:
    return _numbers([id for id, _ in leases]), _numbers([delivery for _, delivery in leases])


def _lost(rows: Rows, leases: Sequence[Lease]) -> list[int]:
    """The ids of lost leases: what the function found, and every delivery of an id but its last."""
    lost = [row[0] for row in rows]
    latest = dict(sorted(leases))
    if len(latest) < len(leases):
        lost += {id for id, delivery in leases if delivery < latest[id]} - set(lost)
    return lost


def _queue_dict(text: str) -> dict[str, Any]:
    row = json.loads(text)
    return {key: row[key] for key in _QUEUE_KEYS}


class PostgresBackend:
    dialect = "postgresql"

    def __init__(self, schema: str = "fairlead") -> None:
        self.schema = schema
        self.statements = {
            name: self._named(text)
            for name, text in parse((HERE / "statements.sql").read_text("utf-8"), "${}").items()
        }
        self._copy = self._named(f"COPY fairlead.message ({bulk.COLUMNS}) FROM STDIN (FORMAT binary)")

    def _named(self, text: str) -> str:
        """The files say `fairlead`; another schema's name is put in its place."""
        return text if self.schema == "fairlead" else re.sub(r"\bfairlead\b", self.schema, text)

    def translate(self, code: str, message: str) -> Exception | str | None:
        return faults.translate(code, message)

    # --- schema ------------------------------------------------------------------------------
    def migrations(self) -> list[tuple[str, str]]:
        files = sorted((HERE / "schema").glob("*.sql"))
        return [(path.stem, self._named(path.read_text("utf-8"))) for path in files]

    def migrate(self) -> Op[list[str]]:
        sql = self.statements
        yield BEGIN
        yield sql["lock_migrations"], (self.schema,)
        exists = yield sql["schema_exists"], (self.schema,)
        done = {row[0] for row in (yield sql["applied"], ())} if exists[0][0] else set[int]()
        applied: list[str] = []
        for name, text in self.migrations():
            version = int(name.split("_", 1)[0])
            if version in done:
                continue
            yield text, ()
            yield sql["record_migration"], (version, name, CLIENT)
            applied.append(name)
        return applied

    def check(self) -> Op[None]:
        """Refuse a schema that does not serve this client."""
        rows = yield self.statements["applied"], ()
        newest = int(self.migrations()[-1][0].split("_", 1)[0])
        if not rows or rows[-1][0] < newest:
            raise SchemaOutdated(
                f"the schema {self.schema!r} is at migration {rows[-1][0] if rows else 0} and this "
                f"Fairlead needs {newest}: run `fairlead migrate`, or db.migrate()"
            )
        if rows[-1][1] > CLIENT:
            raise SchemaOutdated(
                f"the schema {self.schema!r} no longer serves this version of Fairlead: upgrade it"
            )

    # --- queues ------------------------------------------------------------------------------
    def queue_create(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[bool]:
        rows = yield self.statements["queue_create"], (name, json.dumps(dict(columns)), now)
        return rows[0][0]

    def queue_set(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[None]:
        yield self.statements["queue_set"], (name, json.dumps(dict(columns)), now)

    def queues(self, name: str | None) -> Op[list[dict[str, Any]]]:
        rows = yield self.statements["queues"], (name,)
        return [_queue_dict(row[0]) for row in rows]

    def queue_purge(self, name: str, reset: bool, now: int | None) -> Op[None]:
        yield self.statements["queue_purge"], (name, int(reset), now)

    def queue_drop(self, name: str, now: int | None) -> Op[bool]:
        rows = yield self.statements["queue_drop"], (name, now)
        return rows[0][0]

    # --- policies ----------------------------------------------------------------------------
    def policy_set(self, queue: str, channel: str, policy: PolicyRow, now: int | None) -> Op[None]:
        yield self.statements["policy_set"], (queue, channel, *policy)

    def policy_clear(self, queue: str, channel: str, now: int | None) -> Op[bool]:
        rows = yield self.statements["policy_clear"], (queue, channel)
        return rows[0][0]

    def channels(self, queue: str, limit: int, now: int | None) -> Op[Rows]:
        return (yield self.statements["channels"], (queue, limit))

    # --- sending -----------------------------------------------------------------------------
    def send(
        self, queue: str, items: Sequence[SendRow], now: int | None
    ) -> Op[list[tuple[int, str]]]:
        if len(items) == 1 and items[0][6] is None:
            row = items[0]
            params = (queue, *row[:6], *row[8:], now)
            return (yield self.statements["send_one"], params)
        if len(items) >= BULK and not any(item[6] for item in items):
            sent = yield from self._send_bulk(queue, items, now)
            if sent is not None:
                return sent
        columns = list(zip(*items, strict=True))
        text = {i: _or_none(list(columns[i])) for i in (6, 9, 10)}
        numbers = {i: _array(columns[i]) for i in (2, 3, 4, 5, 8, 11, 12, 13)}
        return (
            yield (
                self.statements["send_rows"],
                (
                    queue,
                    list(columns[0]),
                    list(columns[1]),
                    numbers[2],
                    numbers[3],
                    numbers[4],
                    numbers[5],
                    text[6],
                    "".join(columns[7]),
                    numbers[8],
                    text[9],
                    text[10],
                    numbers[11],
                    numbers[12],
                    numbers[13],
                    now,
                ),
            )
        )

    def _send_bulk(
        self, queue: str, items: Sequence[SendRow], now: int | None
    ) -> Op[list[tuple[int, str]] | None]:
        """One COPY, if the driver has it and the queue counts no sizes; else None."""
        if not (yield base.CAN_COPY):
            return None
        yield BEGIN
        rows = yield self.statements["send_open"], (queue, len(items), now)
        lane, clock, max_body, expires_us, allowed, first, last, scattered = rows[0]
        if not allowed:
            return None
        largest = max(len(item[1]) for item in items)
        if largest > max_body:
            raise BodyTooLarge(largest, max_body)
        # Other senders may have drawn numbers in between; usually they have not.
        ids = [int(i) for i in scattered.split(",")] if scattered else range(first, last + 1)
        yield Copy(self._copy, bulk.pack(items, ids, lane, clock, expires_us))
        return [(id, base.SENT) for id in ids]

    # --- receiving ---------------------------------------------------------------------------
    def receive(
        self, queue: str, args: Receive, memory: Memory, now: int | None
    ) -> Op[Received]:
        if memory.extra is None:
            memory.extra = Hints()
        hints: Hints = memory.extra
        # Tests that set the clock, and receives with a filter, always look from the start: what
        # they skip must not be taken for drained.
        hinted = (
            now is None
            and args.version is None
            and args.types is None
            and args.min_priority is None
        )
        started = time.monotonic()
        look = not hinted or hints.look_now()
        rows, trailer, extra = yield from self._receive(queue, args, memory, hints, look, now)
        lost = extra.get("lost", [])
        if not rows and not look:
            # Nothing behind the hints: look from the start before saying so.
            args = replace(args, acks=())
            look = True
            rows, trailer, extra = yield from self._receive(queue, args, memory, hints, look, now)
        if hinted:
            if look:
                hints.looked(started, trailer[9])
            elif len(rows) < args.n:
                hints.short()
            hints.learn(extra)
            hints.given(rows)
        return Received(rows, None if rows else trailer[8], lost)

    def _receive(
        self,
        queue: str,
        args: Receive,
        memory: Memory,
        hints: Hints,
        look: bool,
        now: int | None,
    ) -> Op[tuple[Rows, Row, dict[str, Any]]]:
        """One call: the messages, the trailer, and the trailer's JSON."""
        near = [] if look else hints.near(memory.channel, args.n)
        rows: Rows = yield (
            self.statements["receive"],
            (
                queue,
                args.n,
                args.lease_us,
                args.version,
                None if args.types is None else list(args.types),
                args.min_priority,
                args.max_bytes,
                args.permit,
                *_leases(args.acks),
                memory.channel,
                memory.credit,
                None if look or not hints.versions else _numbers(hints.versions),
                [hint[0] for hint in near],
                _numbers([hint[1] for hint in near]),
                _numbers([hint[2] for hint in near]),
                _numbers([hint[3] for hint in near]),
                None if look or not hints.floors else json.dumps(hints.floors),
                int(look),
                0 if look else hints.lease_floor,
                0 if look else hints.due_floor,
                now,
            ),
        )
        trailer = rows.pop()
        memory.channel, memory.credit = trailer[1], trailer[10]
        return rows, trailer, json.loads(trailer[3])

    # --- verbs -------------------------------------------------------------------------------
    def ack(
        self, queue: str, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[list[int]]:
        rows = yield self.statements["ack"], (queue, *_leases(leases), int(strict), now)
        return _lost(rows, leases)

    def complete(
        self,
        queue: str,
        leases: Sequence[Lease],
        result: bytes | None,
        result_json: int,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        rows = yield (
            self.statements["complete"],
            (queue, *_leases(leases), result, result_json, int(strict), now),
        )
        return _lost(rows, leases)

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
        rows = yield (
            self.statements["defer"],
            (
                queue,
                *_leases(leases),
                due_us,
                delay_us,
                int(keep_memo),
                memo,
                memo_json,
                int(strict),
                now,
            ),
        )
        return _lost(rows, leases)

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
        return self._fail(queue, leases, error, delay_us, details, reference, False, strict, now)

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
        return self._fail(queue, leases, error, None, details, reference, True, strict, now)

    def _fail(
        self,
        queue: str,
        leases: Sequence[Lease],
        error: str,
        delay_us: int | None,
        details: bytes | None,
        reference: str | None,
        kill: bool,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        rows = yield (
            self.statements["fail"],
            (
                queue,
                *_leases(leases),
                error,
                delay_us,
                details,
                reference,
                int(kill),
                int(strict),
                now,
            ),
        )
        return _lost(rows, leases)

    def extend(
        self,
        queue: str,
        leases: Sequence[Lease],
        lease_us: int | None,
        strict: bool,
        now: int | None,
    ) -> Op[tuple[list[int], int | None]]:
        rows = yield self.statements["extend"], (queue, *_leases(leases), lease_us, int(strict), now)
        lost, until = rows[0]
        gone: Rows = [(int(id),) for id in lost.split(",")] if lost else []
        return _lost(gone, leases), until

    def release(
        self, queue: str, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[list[int]]:
        rows = yield self.statements["release"], (queue, *_leases(leases), int(strict), now)
        return _lost(rows, leases)

    def cancel(
        self, queue: str, id: int | None, key: str | None, force: bool, now: int | None
    ) -> Op[str]:
        rows = yield self.statements["cancel"], (queue, id, key, int(force), now)
        return rows[0][0]

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
        params = (queue, id, key, due_us, delay_us, rank, now)
        rows = yield self.statements["reschedule"], params
        return rows[0][0]

    def redrive(
        self, queue: str, to: str | None, limit: int, delay_us: int, now: int | None
    ) -> Op[int]:
        rows = yield self.statements["redrive"], (queue, to, limit, delay_us, now)
        return rows[0][0]

    def discard(self, queue: str, state: str, limit: int, now: int | None) -> Op[int]:
        rows = yield self.statements["discard"], (queue, state, limit, now)
        return rows[0][0]

    # --- permits -----------------------------------------------------------------------------
    def permit_create(self, name: str, ttl_us: int, now: int | None) -> Op[int]:
        rows = yield self.statements["permit_create"], (name, ttl_us, now)
        return rows[0][0]

    def permit_extend(self, permit: int, ttl_us: int, now: int | None) -> Op[bool]:
        rows = yield self.statements["permit_extend"], (permit, ttl_us, now)
        return rows[0][0]

    def permit_close(self, permit: int, now: int | None) -> Op[None]:
        yield self.statements["permit_close"], (permit,)

    def permits(self, now: int | None) -> Op[Rows]:
        return (yield self.statements["permits"], (now,))

    # --- insight -----------------------------------------------------------------------------
    def get(self, queue: str, id: int | None, key: str | None, now: int | None) -> Op[Row | None]:
        rows = yield self.statements["get"], (queue, id, key, now)
        if not rows:
            yield from self._found(queue)
        return rows[0] if rows else None

    def _found(self, queue: str) -> Op[None]:
        """Nothing came back: say so only if the queue exists."""
        rows = yield self.statements["queues"], (queue,)
        if not rows:
            raise faults.queue_not_found(queue)

    def peek(
        self,
        queue: str,
        n: int,
        state: str | None,
        channel: str | None,
        after: int,
        now: int | None,
    ) -> Op[Rows]:
        rows = yield self.statements["peek"], (queue, after, state, channel, now, n)
        if not rows:
            yield from self._found(queue)
        return rows

    def stats(self, queue: str | None, now: int | None) -> Op[Rows]:
        return (yield self.statements["stats"], (queue, now))

    def history(self, queue: str, since: int, now: int | None) -> Op[Rows]:
        return (yield self.statements["history"], (queue, since))

    def facts(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> Op[Facts | None]:
        rows = yield self.statements["facts"], (queue, id, key, now)
        if not rows:
            return None
        row, (clock, columns, *rest) = rows[0][:_PEEK], rows[0][_PEEK:]
        return Facts(row, clock, _queue_dict(columns), tuple(rest[:8]), *rest[8:])

    def failures(self, queue: str, id: int | None, key: str | None, n: int) -> Op[Rows]:
        return (yield self.statements["failures"], (queue, id, key, n))

    def trace(self, key: str) -> Op[Rows]:
        return (yield self.statements["trace"], (key,))

    # --- care --------------------------------------------------------------------------------
    def maintain(self, limit: int, now: int | None) -> Op[tuple[int, int, int, int, bool]]:
        rows = yield self.statements["maintain"], (limit, now)
        activated, recovered, killed, purged, more = rows[0]
        return activated, recovered, killed, purged, bool(more)

    def clock(self) -> Op[int]:
        rows = yield self.statements["clock"], ()
        return rows[0][0]
