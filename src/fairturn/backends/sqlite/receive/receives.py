"""Receive (§4): acks, sweep, choice, lease, all in one short transaction.

An ordinary receive is five statements: the queue with its probes, the walk over channels, the
messages of a channel, the lease, the counters. Each costs a number of index probes that depends on
the size of the batch alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

from fairturn.backends.base import ConsumerState, Receive, Received
from fairturn.backends.sqlite.common import (
    DELIVERED,
    SQL,
    Queue,
    Tally,
    count,
    ids_of,
    json_of,
    tally,
)
from fairturn.backends.sqlite.events import tell_leased
from fairturn.backends.sqlite.groups.closing import Ended, close_ended
from fairturn.backends.sqlite.maintenance import expire, recover
from fairturn.backends.sqlite.receive.fairness import (
    UNLIMITED,
    Call,
    Channel,
    circle,
    second_helpings,
    serve_round,
    supply,
    walk,
)
from fairturn.backends.sqlite.receive.gates import Rate, judge, next_channels, rate, versions
from fairturn.backends.sqlite.verbs import acknowledge
from fairturn.backends.steps import BEGIN, Op, Rows
from fairturn.core import limits
from fairturn.core.errors import PermitLost, QueueNotFound
from fairturn.core.rows import MessageRow, message_row


@dataclass(slots=True)
class Resume:
    """Where a receive stopped after too many closed channels (ConsumerState.extra)."""

    question: tuple[Any, ...]  # only the same receive, from the same place, goes on there
    segments: list[tuple[str, str | bytes]]
    wake_at: int | None


class Receiving:
    def receive(
        self, queue: str, args: Receive, consumer: ConsumerState, now: int | None
    ) -> Op[Received]:
        yield BEGIN
        rows = yield SQL.open_queue, (queue, now)
        if not rows:
            raise QueueNotFound(queue)
        [(*columns, expires_at, lease_until, due_at, low, high)] = rows
        found = Queue._make(columns)
        if args.permit is not None and not (yield SQL.live_permit, (args.permit, found.now)):
            raise PermitLost(args.permit)
        counted = tally()
        ended = Ended()
        lost: list[int] = []
        if args.acks:
            lost = yield from acknowledge(found, args.acks, counted, ended)
        probes = (expires_at, lease_until, due_at)
        swept, unswept = yield from _sweep(found, probes, counted, ended)
        if ended:
            # Before the choice: closing a group deletes messages and sends others.
            swept = (yield from close_ended(ended, found.now)) or swept
        retry_after: int | None = None
        given: list[MessageRow] = []
        if not found.paused:
            if args.version is not None:
                look_in = [args.version]
            elif swept or low != high:
                look_in = yield from versions(found.lane)
            else:
                look_in = [] if low is None else [low]
            call = _call(found, args, look_in, unswept)
            limit = yield from _queue_room(call)
            yield from _choose(call, consumer)
            given = yield from _lease(call, consumer, limit, counted)
            if not given:
                retry_after = yield from _retry_after(call, consumer, limit)
        yield from count(found.id, found.now, counted)
        return Received(given, retry_after, lost)


def _sweep(
    queue: Queue, probes: tuple[int | None, int | None, int | None], counted: Tally, ended: Ended
) -> Op[tuple[bool, bool]]:
    """Sweep what the probes have found. (Was there anything? May expired messages be left?)"""
    expiry, lapse, due = (at is not None and at <= queue.now for at in probes)
    expired = 0
    if expiry:
        expired = yield from expire(queue, limits.SWEEP, counted, ended)
    if lapse:
        yield from recover(queue, limits.SWEEP, counted, ended)
    if due:
        yield SQL.promote, (queue.lane, queue.now, limits.SWEEP)
    return expiry or lapse or due, expired >= limits.SWEEP


def _call(queue: Queue, args: Receive, look_in: list[int], unswept: bool) -> Call:
    return Call(
        queue=queue,
        args=args,
        versions=look_in,
        filtered=unswept or args.types is not None or len(look_in) > 1,
        left=args.n,
        max_rank=UNLIMITED if args.min_priority is None else -args.min_priority,
        all_versions=look_in if args.version is None else None,
    )


@dataclass(frozen=True, slots=True)
class Limit:
    """The queue's own limit, over all channels."""

    rate: Rate
    only_rate: bool  # only its rate closes the queue


def _queue_room(call: Call) -> Op[Limit]:
    """Reduce the batch to what the queue's limit allows (§4.3)."""
    queue = call.queue
    free = UNLIMITED
    if queue.limit_concurrency is not None:
        [(leases,)] = yield SQL.leases, (queue.lane, queue.limit_concurrency)
        free = queue.limit_concurrency - leases
    gate = rate(
        queue.limit_rate_count,
        queue.limit_rate_period_us,
        queue.limit_burst,
        queue.tat,
        queue.now,
    )
    call.left = max(0, min(call.left, free, gate.allowed))
    return Limit(gate, free > 0 and gate.allowed == 0)


def _choose(call: Call, consumer: ConsumerState) -> Op[None]:
    """Choose the messages by the round: they are in call.turns."""
    if not call.versions or (call.args.types is not None and not call.args.types):
        return
    call.segments = circle(consumer)
    resume = consumer.extra
    if isinstance(resume, Resume) and resume.question == _question(call, consumer):
        call.segments, call.wake_at = list(resume.segments), resume.wake_at
    consumer.extra = None
    if call.left == 0:
        yield from _survey(call)
        return
    if consumer.credit > 0 and consumer.channel is not None:
        yield from _last_turn(call, consumer.channel, consumer.credit)
    ring: list[Channel] = []
    while call.left > 0:
        likely = -(-call.left // call.queue.weight)  # if each channel delivers a turn
        opened = yield from next_channels(call, likely)
        if not opened:
            break
        ring += opened
        yield from serve_round(call, opened)
    if call.left > 0 and not call.spent:
        yield from second_helpings(call, ring)


def _last_turn(call: Call, name: str, credit: int) -> Op[None]:
    """The rest of the turn that the last receive began."""
    rows = yield from walk(call, name, name, 1)
    for channel in (yield from judge(call, rows)):
        yield from supply(call, [(channel, min(credit, call.left))])
        call.give(channel, credit, credit)


def _survey(call: Call) -> Op[None]:
    """The queue's own limit is reached: only find out when a rate allows a message."""
    seen = 0
    while seen < limits.SCAN and (opened := (yield from next_channels(call, limits.SCAN))):
        seen += len(opened)
    call.spent = False  # there is no reason to go on


def _lease(
    call: Call, consumer: ConsumerState, limit: Limit, counted: Tally
) -> Op[list[MessageRow]]:
    """Lease the chosen messages, charge the rates, and store the position in the round."""
    queue, args = call.queue, call.args
    ids = list(chain.from_iterable(turn.ids for turn in call.turns))
    if not ids:
        return []
    if args.max_bytes is not None:
        ids = yield from _cut(ids, args.max_bytes)
    given: dict[str, tuple[Channel, int]] = {}
    starting: list[int] = []
    left = len(ids)
    for turn in call.turns:
        number = min(left, len(turn.ids))
        if number == 0:
            break
        left -= number
        channel = turn.channel
        consumer.channel, consumer.credit = channel.name, turn.credit_after(number)
        if channel.ordered:
            starting += turn.ids[:number]
        if channel.interval:
            _, before = given.get(channel.name, (channel, 0))
            given[channel.name] = (channel, before + number)
    if starting:
        yield SQL.begin_runs, (ids_of(starting),)
    if given:
        tats = [[name, c.base + k * c.interval] for name, (c, k) in given.items()]
        yield SQL.charge, (queue.id, json_of(tats))
    if limit.rate.interval:
        tat = limit.rate.base + len(ids) * limit.rate.interval
        yield SQL.set_queue_tat, (queue.id, tat)
    counted[DELIVERED] += len(ids)
    rows: Rows = yield (
        SQL.lease,
        (ids_of(ids), queue.now, args.lease_us, queue.lease_us, args.permit, args.token),
    )
    yield from tell_leased(queue, ids)
    if len(rows) == 1:
        return [*map(message_row, rows)]
    by_id = {row.id: row for row in map(message_row, rows)}
    return [by_id[id] for id in ids]


def _cut(ids: list[int], max_bytes: int) -> Op[list[int]]:
    """As many messages as fit into max_bytes, and always the first."""
    rows = yield SQL.body_sizes, (ids_of(ids),)
    sizes: dict[int, int] = dict(rows)
    total = 0
    for i, id in enumerate(ids):
        total += sizes[id]
        if i and total > max_bytes:
            return ids[:i]
    return ids


def _question(call: Call, consumer: ConsumerState) -> tuple[Any, ...]:
    args = call.args
    types = None if args.types is None else tuple(args.types)
    return consumer.channel, call.queue.lane, args.version, types, args.min_priority


def _retry_after(call: Call, consumer: ConsumerState, limit: Limit) -> Op[int | None]:
    """When to receive again (§4.12)."""
    now = call.queue.now
    if call.spent:
        # Too many closed channels: go on from here immediately.
        consumer.extra = Resume(_question(call, consumer), call.segments, call.wake_at)
        return 0
    [(due_at, lease_until)] = yield SQL.next_events, (call.queue.lane,)
    times = [at for at in (due_at, lease_until, call.wake_at) if at is not None]
    if limit.only_rate and call.eligible:
        times.append(limit.rate.opens_at)
    return max(0, min(times) - now) if times else None
