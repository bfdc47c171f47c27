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
    Copy,
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
from fairlead.backends.postgres.groups import Groups
from fairlead.backends.postgres.insight import Insight
from fairlead.backends.postgres.literals import leases, numbers, queue_dict, send_params, texts
from fairlead.backends.postgres.memory import START, Hint, Hints
from fairlead.backends.postgres.remembering import Remembering
from fairlead.backends.postgres.schedules import Schedules
from fairlead.backends.postgres.verbs import Verbs
from fairlead.errors import BodyTooLarge, SchemaOutdated

HERE = Path(__file__).parent
CLIENT = 1  # this client's generation; a schema names the oldest it serves
# Every migration says that it was applied, also to people who run the SQL themselves.
_RECORD = """
INSERT INTO fairlead.migration (version, name, oldest_client)
  VALUES (split_part('{0}', '_', 1)::int, '{0}', {1});
"""
SPECIAL = 10_000  # queues remembered whose sends are not plain
BULK = 1000  # from this many messages on a COPY beats unnest


def _order(row: Row) -> tuple[int, int, int]:
    return -row[7], row[8], row[0]


class PostgresBackend(Verbs, Insight, Groups, Schedules, Remembering):
    dialect = "postgresql"

    def __init__(self, schema: str = "fairlead") -> None:
        self.schema = schema
        self._special: set[str] = set()
        self.statements = {
            name: self._named(text)
            for name, text in parse((HERE / "statements.sql").read_text("utf-8"), "${}").items()
        }
        self._copy = self._named(
            f"COPY fairlead.message ({bulk.COLUMNS}) FROM STDIN (FORMAT binary)"
        )

    def _named(self, text: str) -> str:
        """The files say `fairlead`; another schema's name is put in its place."""
        return text if self.schema == "fairlead" else re.sub(r"\bfairlead\b", self.schema, text)

    def translate(self, code: str, message: str) -> Exception | str | None:
        return faults.translate(code, message)

    # --- schema ------------------------------------------------------------------------------
    def migrations(self) -> list[tuple[str, str]]:
        files = sorted((HERE / "schema").glob("*.sql"))
        return [
            (path.stem, self._named(path.read_text("utf-8") + _RECORD.format(path.stem, CLIENT)))
            for path in files
        ]

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
        return [queue_dict(*row) for row in rows]

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
        rows = yield self.statements["channels"], (queue, limit)
        if not rows:
            yield from self._found(queue)
        return rows

    # --- sending -----------------------------------------------------------------------------
    def send(
        self, queue: str, items: Sequence[SendRow], now: int | None
    ) -> Op[list[tuple[int, str]]]:
        if len(items) == 1 and items[0][6] is None:
            row = items[0]
            params = (queue, *row[:6], *row[8:14])
            if row[16] is not None:
                if row[15] is None and queue not in self._special:
                    sent = yield self.statements["send_once"], (*params, *row[16:], now)
                    if sent:
                        return sent
                return (yield self.statements["send_rows"], send_params(queue, items, now))
            if row[15] is None and queue not in self._special:
                sent = yield self.statements["send_plain"], (*params, now)
                if sent:
                    return sent
                # It has events or counts sizes, and probably will the next time.
                if len(self._special) >= SPECIAL:
                    self._special.clear()
                self._special.add(queue)
            return (yield self.statements["send_one"], (*params, row[15], now))
        if len(items) >= BULK and not any(item[6] or item[15] or item[16] for item in items):
            sent = yield from self._send_bulk(queue, items, now)
            if sent is not None:
                return sent
        return (yield self.statements["send_rows"], send_params(queue, items, now))

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
    def receive(self, queue: str, args: Receive, memory: Memory, now: int | None) -> Op[Received]:
        if memory.extra is None:
            memory.extra = Hints()
        hints: Hints = memory.extra
        forgotten = hints.forgotten
        # Tests that set the clock, and receives with a filter, always look from the start: what
        # they skip must not be taken for drained.
        hinted = (
            now is None
            and not memory.yours
            and args.version is None
            and args.types is None
            and args.min_priority is None
        )
        started = time.monotonic()
        look = not hinted or hints.look_due()
        lost: list[int] = []
        if hinted and not look and args.max_bytes is None:
            rows, lost, acked = yield from self._receive_short(queue, args, memory, hints, started)
            if rows:
                return Received(rows, None, lost)
            if acked:
                args = replace(args, acks=())
        passed: list[Hint] = hints.near(memory.channel, args.n, look) if hinted else []
        rows, trailer, extra = yield from self._receive(
            queue, args, memory, hints, passed, look, now
        )
        lost += extra.get("lost", [])
        if not rows and any(hint[1:] != START for hint in passed) and hints.may_look():
            # Nothing behind the hints: look from the start before saying so.
            args, passed, look = replace(args, acks=()), [], True
            rows, trailer, extra = yield from self._receive(
                queue, args, memory, hints, passed, look, now
            )
        if hinted:
            hints.took(started, look, bool(trailer[15]), trailer[9], trailer[5], args.n)
            if extra.get("look") or (not rows and not passed):
                hints.forget()
                forgotten = hints.forgotten
            hints.given(rows, passed, extra, forgotten)
            hints.was_full = len(rows) == args.n
            hints.was_plain = "floors" not in extra
        return Received(rows, None if rows else trailer[8], lost)

    def _receive_short(
        self, queue: str, args: Receive, memory: Memory, hints: Hints, started: float
    ) -> Op[tuple[Rows, list[int], bool]]:
        """What a short way gave, the acks it lost, and whether it took the acks. No messages: take
        the long way."""
        version, forgotten = hints.short(), hints.forgotten
        if version is None:
            return [], [], False
        rows: Rows
        passed: Sequence[Hint] = ()
        lone = hints.lone()
        if args.n == 1 and hints.was_plain and memory.channel is not None and not hints.useful():
            rows = yield (
                self.statements["receive_next"],
                (queue, args.lease_us, args.permit, memory.channel, version, *leases(args.acks)),
            )
            if not rows:
                hints.gave_up()
                return [], [], False
            *row, lost, read = rows[0]
            rows, channel = [tuple(row)], row[1]
        elif lone is not None:
            channel, *position = lone
            floor = hints.floors.get(channel, 0)
            acks = leases(args.acks)
            rows = yield (
                self.statements["receive_lone"],
                (
                    queue,
                    args.n,
                    args.lease_us,
                    args.permit,
                    channel,
                    version,
                    *position,
                    floor,
                    *acks,
                ),
            )
            if len(rows) <= 1:
                hints.gave_up()
            if not rows:
                return [], [], False
            trailer = rows.pop()
            rows.sort(key=_order)
            lost, read, passed = trailer[4], trailer[5], [lone]
            if trailer[13] is not None:
                hints.floors[channel] = trailer[13]
        else:
            return [], [], False
        if rows:
            memory.channel, memory.credit = channel, 0
            hints.took(started, False, False, 0, read, args.n)
            hints.given(rows, passed, {"versions": hints.versions}, forgotten)
        return rows, [int(id) for id in lost.split(",")] if lost else [], True

    def _receive(
        self,
        queue: str,
        args: Receive,
        memory: Memory,
        hints: Hints,
        passed: Sequence[Hint],
        look: bool,
        now: int | None,
    ) -> Op[tuple[Rows, Row, dict[str, Any]]]:
        """One call: the messages, the trailer, and the trailer's JSON."""
        floors = None if now is not None else hints.near_floors(memory.channel, args.n)
        since = 0 if look else hints.swept_us
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
                *leases(args.acks),
                memory.channel,
                memory.credit,
                None if look or not hints.versions else numbers(hints.versions),
                texts([hint[0] for hint in passed]),
                numbers([hint[1] for hint in passed]),
                numbers([hint[2] for hint in passed]),
                numbers([hint[3] for hint in passed]),
                None if floors is None else json.dumps(floors),
                int(look or hints.sweep_due()),
                since,
                since,
                int(not memory.yours),
                now,
            ),
        )
        trailer = rows.pop()
        memory.channel, memory.credit = trailer[1], trailer[10]
        if len(rows) > 1:
            found = {row[0]: row for row in rows}
            rows = [found[int(id)] for id in trailer[4].split(",")]
        return rows, trailer, json.loads(trailer[3])

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

    # --- care --------------------------------------------------------------------------------
    def sleep(self, queue: str, who: int, us: int) -> Op[None]:
        """The listener ``who`` sleeps for this queue ("": for any) so long; 0: no longer."""
        yield self.statements["sleep"], (queue, who, us)

    def maintain(self, limit: int, now: int | None) -> Op[tuple[int, int, int, int, bool]]:
        rows = yield self.statements["maintain"], (limit, now)
        activated, recovered, killed, purged, more = rows[0]
        return activated, recovered, killed, purged, bool(more)

    def clock(self) -> Op[int]:
        rows = yield self.statements["clock"], ()
        return rows[0][0]
