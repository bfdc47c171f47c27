"""The operations on MySQL and MariaDB: one CALL each. Groups and events are in groups.py."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairturn.backends.base import (
    FULL,
    Batch,
    ConsumerState,
    Facts,
    Outcome,
    Peek,
    Receive,
    Received,
    Reschedule,
)
from fairturn.backends.catalogue import Catalogue, parse
from fairturn.backends.mysql import faults
from fairturn.backends.mysql.groups import Groups
from fairturn.backends.mysql.procedures import (
    from_hex,
    given,
    in_bytes,
    in_hex,
    lease_list,
    message_row,
    peek_row,
    text,
    verb_arguments,
)
from fairturn.backends.mysql.remembered import Remembering
from fairturn.backends.mysql.schedules import Schedules
from fairturn.backends.mysql.schema import Schema, check_prefix, named
from fairturn.backends.mysql.sends import send_many
from fairturn.backends.steps import BEGIN, Op, Row, Rows
from fairturn.backends.verbs import Applied, Lease, Verb
from fairturn.core.kinds import Value
from fairturn.core.rows import (
    ChannelRow,
    FailureRow,
    HistoryRow,
    MessageRow,
    OutcomeRow,
    PeekRow,
    PermitRow,
    SendRow,
    StatsRow,
    StepRow,
)
from fairturn.core.settings import PolicyRow

PORTION = 10_000  # leases in one CALL


def _outcome(row: Row) -> Outcome:
    id, outcome = map(text, row)
    return 0 if outcome == FULL else id, outcome


_WIDTH = len(MessageRow._fields)


class ReceiveTrailer(NamedTuple):
    """The last row of a receive (schema/routines/receive.sql)."""

    channel: str | None  # the channel served last, in hex,
    credit: int  # and the rest of its turn
    retry_after_us: int | None
    lost: list[int]  # of the acks that the call carried


class MysqlBackend(Groups, Schedules, Remembering, Schema):
    dialect = "mysql"

    def __init__(self, prefix: str = "fairturn_") -> None:
        self.prefix = check_prefix(prefix)
        path = Path(__file__).parent / "statements.sql"
        statements = named(path.read_text("utf-8"), prefix)
        self._sql = Catalogue(parse(statements, "%s"))
        self._send_one = self.call("send_one", 18)
        self._consume = self.call("consume", 7)

    def translate(self, code: str, message: str) -> Exception | str | None:
        return faults.translate(code, message, self.prefix)

    # --- queues ------------------------------------------------------------------------------
    def queue_create(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[bool]:
        options = json.dumps({**columns, "now": now})
        [(created,)] = yield self.call("queue_create", 2), (name.encode(), options)
        return bool(created)

    def queue_set(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[None]:
        yield self.call("queue_set", 2), (name.encode(), json.dumps(dict(columns)))

    def queues(self, name: str | None) -> Op[list[dict[str, Any]]]:
        rows = yield self.call("queues", 1), (in_bytes(name),)
        return [
            {
                "name": text(name),
                "created_at": created_at,
                **json.loads(settings),
                "meta": text(meta),
            }
            for name, created_at, settings, meta in rows
        ]

    def queue_purge(self, name: str, reset: bool, now: int | None) -> Op[None]:
        options = given(reset=int(reset), now=now)
        yield self.call("queue_purge", 2), (name.encode(), options)

    def queue_drop(self, name: str, now: int | None) -> Op[bool]:
        [(dropped,)] = yield self.call("queue_drop", 2), (name.encode(), given(now=now))
        return bool(dropped)

    # --- policies ----------------------------------------------------------------------------
    def policy_set(self, queue: str, channel: str, policy: PolicyRow, now: int | None) -> Op[None]:
        options = json.dumps(policy._asdict())
        yield self.call("policy_set", 3), (queue.encode(), channel.encode(), options)

    def policy_clear(self, queue: str, channel: str, now: int | None) -> Op[bool]:
        [(cleared,)] = yield self.call("policy_clear", 2), (queue.encode(), channel.encode())
        return bool(cleared)

    def channels(self, queue: str, limit: int, now: int | None) -> Op[list[ChannelRow]]:
        rows = yield self.call("channels", 2), (queue.encode(), limit)
        return [ChannelRow.of([*map(text, row)]) for row in rows]

    # --- messages ----------------------------------------------------------------------------
    def send(self, queue: str, items: Sequence[SendRow], now: int | None) -> Op[list[Outcome]]:
        if len(items) != 1:
            if not items:
                return []
            return (yield from send_many(self._sql, self.prefix, queue, items, now))
        [item] = items
        channel, type_, group = item.channel.encode(), in_bytes(item.type), in_bytes(item.group)
        what = (item.body, item.json, item.rank, item.due_us, item.delay_us)
        kept = (item.headers, item.lease_us, item.max_attempts, item.expires_us)
        if item.once is not None:
            once = (item.once.encode(), item.once_us, queue.encode(), channel)
            params = (*once, *what, item.version, type_, *kept, group, now)
            rows = yield self.call("send_once", 17), params
        else:
            keyed = (in_bytes(item.key), item.on_conflict, item.version, type_)
            params = (queue.encode(), channel, *what, *keyed, *kept, item.max_wait_us, group, now)
            rows = yield self._send_one, params
        return [_outcome(row) for row in rows]

    def receive(
        self, queue: str, args: Receive, consumer: ConsumerState, now: int | None
    ) -> Op[Received]:
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
        acks = lease_list(sorted(args.acks)) if args.acks else "[]"
        place = (in_bytes(consumer.channel), consumer.credit)
        params = (queue.encode(), args.n, *place, args.token, acks, options)
        rows: Rows = yield self._consume, params
        *_, last = rows.pop()
        trailer = ReceiveTrailer(**json.loads(last))
        consumer.channel, consumer.credit = from_hex(trailer.channel), trailer.credit
        messages = [message_row(row[:_WIDTH]) for row in rows]
        return Received(messages, None if rows else trailer.retry_after_us, trailer.lost)

    def apply_verb(
        self, queue: str, verb: Verb, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[Applied]:
        # Sorted, so that two calls which share messages lock them in one order.
        leases = sorted(leases)
        payload, options = verb_arguments(verb)
        call = self.call(verb.name, 3 + len(payload))
        wanted = given(**options, strict=int(strict), now=now)
        if len(leases) > PORTION:
            yield BEGIN
        lost: list[int] = []
        until: int | None = None
        for start in range(0, len(leases), PORTION):
            some = lease_list(leases[start : start + PORTION])
            [(ids, *ends)] = yield call, (queue.encode(), some, *payload, wanted)
            lost += json.loads(ids)
            for end in ends:
                until = max(until or 0, end or 0) or None
        return Applied(lost, until)

    def cancel(
        self, queue: str, id: int | None, key: str | None, force: bool, now: int | None
    ) -> Op[str]:
        options = given(force=int(force), now=now)
        [(outcome,)] = yield self.call("cancel", 4), (queue.encode(), id, in_bytes(key), options)
        return text(outcome)

    def reschedule(
        self, queue: str, id: int | None, key: str | None, change: Reschedule, now: int | None
    ) -> Op[str]:
        options = given(**change._asdict(), now=now)
        params = (queue.encode(), id, in_bytes(key), options)
        [(outcome,)] = yield self.call("reschedule", 4), params
        return text(outcome)

    def promote(self, queue: str, within_us: int, limit: int, now: int | None) -> Op[int]:
        options = given(now=now)
        [(promoted,)] = yield self.call("promote", 4), (queue.encode(), within_us, limit, options)
        return promoted

    def redrive(
        self, queue: str, to: str | None, limit: int, delay_us: int, now: int | None
    ) -> Op[int]:
        options = given(delay_us=delay_us, now=now)
        params = (queue.encode(), in_bytes(to), limit, options)
        [(redriven,)] = yield self.call("redrive", 4), params
        return redriven

    def move(self, queue: str, to: str | None, limit: int, now: int | None) -> Op[int]:
        options = given(now=now)
        [(moved,)] = yield self.call("move", 4), (queue.encode(), in_bytes(to), limit, options)
        return moved

    def discard(self, queue: str, state: str, limit: int, now: int | None) -> Op[int]:
        options = given(now=now)
        [(discarded,)] = yield self.call("discard", 4), (queue.encode(), state, limit, options)
        return discarded

    # --- batches -----------------------------------------------------------------------------
    def batch(self, batch: Batch, now: int | None) -> Op[list[list[Outcome]]]:
        yield BEGIN
        if batch.sets:
            sets = [(in_hex(queue), in_hex(channel), *row) for queue, channel, row in batch.sets]
            yield self.call("policies_set", 1), (json.dumps(sets),)
        if batch.clears:
            names = [(in_hex(queue), in_hex(channel)) for queue, channel in batch.clears]
            yield self.call("policies_clear", 1), (json.dumps(names),)
        outcomes: list[list[Outcome]] = []
        for queue, items in batch.sends:
            outcomes.append((yield from self.send(queue, items, now)))
        return outcomes

    # --- permits -----------------------------------------------------------------------------
    def permit_create(self, id: int, name: str, ttl_us: int, now: int | None) -> Op[None]:
        yield self.call("permit_create", 4), (name.encode(), ttl_us, now, id)

    def permit_extend(self, permit: int, ttl_us: int, now: int | None) -> Op[bool]:
        [(extended,)] = yield self.call("permit_extend", 3), (permit, ttl_us, now)
        return bool(extended)

    def permit_close(self, permit: int, now: int | None) -> Op[None]:
        yield self.call("permit_close", 1), (permit,)

    def permits(self, now: int | None) -> Op[list[PermitRow]]:
        rows = yield self.call("permits", 1), (now,)
        return [PermitRow._make(map(text, row)) for row in rows]

    # --- insight -----------------------------------------------------------------------------
    def get(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> Op[PeekRow | None]:
        call = self.call("get", 4)
        rows = yield call, (queue.encode(), id, in_bytes(key), given(now=now))
        return next(map(peek_row, rows), None)

    def peek(self, queue: str, peek: Peek, now: int | None) -> Op[list[PeekRow]]:
        options = given(state=peek.state, channel=peek.channel, after=peek.after, now=now)
        rows = yield self.call("peek", 3), (queue.encode(), peek.n, options)
        return [peek_row(row) for row in rows]

    def stats(self, queue: str | None, now: int | None) -> Op[list[StatsRow]]:
        rows = yield self.call("stats", 2), (in_bytes(queue), given(now=now))
        return [StatsRow._make(map(text, row)) for row in rows]

    def history(self, queue: str, since: int, now: int | None) -> Op[list[HistoryRow]]:
        rows = yield self.call("history_of", 2), (queue.encode(), since)
        return [HistoryRow._make(row) for row in rows]

    def facts(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> Op[Facts | None]:
        row = yield from self.get(queue, id, key, now)
        if row is None:
            return None
        found = yield from self.queues(queue)
        rows = yield self.call("facts", 3), (queue.encode(), row.id, given(now=now))
        if not found or not rows:
            return None  # deleted between two statements
        [settings], [(clock, *columns)] = found, rows
        return Facts.of(row, clock, settings, columns)

    def failures(self, queue: str, id: int | None, key: str | None, n: int) -> Op[list[FailureRow]]:
        rows = yield self.call("failures", 4), (queue.encode(), id, in_bytes(key), n)
        return [
            FailureRow._make((*map(text, rest), details, text(reference)))
            for *rest, details, reference in rows
        ]

    def trace(self, key: str) -> Op[list[StepRow]]:
        rows = yield self.call("trace", 1), (key.encode(),)
        return [StepRow._make(map(text, row)) for row in rows]

    def outcomes(
        self, queue: str, ids: Sequence[int], keys: Sequence[str], now: int | None
    ) -> Op[list[OutcomeRow]]:
        wanted = (json.dumps(list(ids)), json.dumps([in_hex(key) for key in keys]))
        rows = yield self.call("outcomes", 4), (queue.encode(), *wanted, now)
        return [
            OutcomeRow._make((*map(text, rest), result, text(error), progress, text(note)))
            for *rest, result, error, progress, note in rows
        ]

    # --- maintenance -------------------------------------------------------------------------
    def maintain(self, limit: int, now: int | None) -> Op[tuple[int, int, int, int, bool]]:
        [(activated, recovered, killed, purged, more)] = yield (
            self.call("maintain", 2),
            (limit, given(now=now)),
        )
        return activated, recovered, killed, purged, bool(more)

    def clock(self) -> Op[int]:
        [(time,)] = yield self._sql.clock, ()
        return time
