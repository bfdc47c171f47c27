"""Receive (§4): acks, sweep, choice, lease, all in one short transaction.

An ordinary receive is five statements: the queue with its probes, the walk over channels, the
messages of a channel, the lease, the counters. Each costs a number of index probes that depends on
the size of the batch alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from fairlead import limits
from fairlead.backends.base import BEGIN, Memory, Op, Receive, Received, Row
from fairlead.backends.sqlite.care import expire, recover
from fairlead.backends.sqlite.closing import Ended, close_ended
from fairlead.backends.sqlite.common import (
    DELIVERED,
    QUEUE_WIDTH,
    SQL,
    Queue,
    Tally,
    count,
    ids_of,
    json_of,
    tally,
)
from fairlead.backends.sqlite.events import tell_leased
from fairlead.backends.sqlite.fairness import (
    UNLIMITED,
    Call,
    Channel,
    circle,
    second_helpings,
    serve_round,
    supply,
    walk,
)
from fairlead.backends.sqlite.gates import Rate, judge, next_channels, rate, versions
from fairlead.backends.sqlite.verbs import acknowledge
from fairlead.errors import PermitLost, QueueNotFound


@dataclass(slots=True)
class Resume:
    """Where a receive stopped whose budget ran out among closed channels (Memory.extra)."""

    question: tuple[Any, ...]  # it only helps the same receive from the same place
    segments: list[tuple[str, str | bytes]]
    wake_at: int | None


class Receiving:
    def receive(self, queue: str, args: Receive, memory: Memory, now: int | None) -> Op[Received]:
        yield BEGIN
        rows = yield SQL.open_queue, (queue, now)
        if not rows:
            raise QueueNotFound(queue)
        found = Queue._make(rows[0][:QUEUE_WIDTH])
        if args.permit is not None and not (yield SQL.live_permit, (args.permit, found.now)):
            raise PermitLost(args.permit)
        counted = tally()
        ended = Ended()
        lost: list[int] = []
        if args.acks:
            lost = yield from acknowledge(found, args.acks, counted, ended)
        swept, unswept = yield from _sweep(found, rows[0][QUEUE_WIDTH:], counted, ended)
        if ended:
            # Before the choice: what a closing deletes is not given, what it sends may be.
            swept = (yield from close_ended(ended, found.now)) or swept
        low, high = rows[0][QUEUE_WIDTH + 3 :]
        retry_after: int | None = None
        given: list[Row] = []
        if not found.paused:
            if args.version is not None:
                look_in = [args.version]
            elif swept or low != high:
                look_in = yield from versions(found.lane)
            else:
                look_in = [] if low is None else [low]
            call = _call(found, args, look_in, unswept)
            limit = yield from _queue_room(call)
            yield from _choose(call, memory)
            given = yield from _lease(call, memory, limit, counted)
            if not given:
                retry_after = yield from _retry_after(call, memory, limit)
        yield from count(found.id, found.now, counted)
        return Received(given, retry_after, lost)


def _sweep(
    queue: Queue, probes: Sequence[int | None], counted: Tally, ended: Ended
) -> Op[tuple[bool, bool]]:
    """What the probes say is there to sweep. (Anything done, expired messages may be left.)"""
    expiry, lapse, due = (at is not None and at <= queue.now for at in probes[:3])
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
    only_rate: bool  # nothing but its rate keeps the queue closed


def _queue_room(call: Call) -> Op[Limit]:
    """Cut the batch down to what the queue's limit leaves (§4.3)."""
    queue = call.queue
    free = UNLIMITED
    if queue.limit_concurrency is not None:
        rows = yield SQL.leases, (queue.lane, queue.limit_concurrency)
        free = queue.limit_concurrency - rows[0][0]
    gate = rate(
        queue.limit_rate_count,
        queue.limit_rate_period_us,
        queue.limit_burst,
        queue.tat,
        queue.now,
    )
    call.left = max(0, min(call.left, free, gate.allowed))
    return Limit(gate, free > 0 and gate.allowed == 0)


def _choose(call: Call, memory: Memory) -> Op[None]:
    """Fill call.turns by the rules of the round-robin."""
    if not call.versions or (call.args.types is not None and not call.args.types):
        return
    call.segments = circle(memory)
    resume = memory.extra
    if isinstance(resume, Resume) and resume.question == _question(call, memory):
        call.segments, call.wake_at = list(resume.segments), resume.wake_at
    memory.extra = None
    if call.left == 0:
        yield from _survey(call)
        return
    if memory.credit > 0 and memory.channel is not None:
        yield from _last_turn(call, memory.channel, memory.credit)
    ring: list[Channel] = []
    while call.left > 0:
        likely = -(-call.left // call.queue.weight)  # what most channels will give
        opened = yield from next_channels(call, likely)
        if not opened:
            break
        ring += opened
        yield from serve_round(call, opened)
    if call.left > 0 and not call.spent:
        yield from second_helpings(call, ring)


def _last_turn(call: Call, name: str, credit: int) -> Op[None]:
    """What the last receive left of its channel's turn."""
    rows = yield from walk(call, name, name, 1)
    for channel in (yield from judge(call, rows)):
        yield from supply(call, [(channel, min(credit, call.left))])
        call.give(channel, credit, credit)


def _survey(call: Call) -> Op[None]:
    """The queue's own limit is reached: only find out when a rate lets something through."""
    seen = 0
    while seen < limits.SCAN and (opened := (yield from next_channels(call, limits.SCAN))):
        seen += len(opened)
    call.spent = False  # there is nothing to go on for


def _lease(call: Call, memory: Memory, limit: Limit, counted: Tally) -> Op[list[Row]]:
    """Lease what was chosen, charge for it, and remember where we are."""
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
        memory.channel, memory.credit = channel.name, turn.credit_after(number)
        if channel.ordered:
            starting += turn.ids[:number]
        if channel.interval:
            before = given[channel.name][1] if channel.name in given else 0
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
    rows: list[Row] = yield (
        SQL.lease,
        (ids_of(ids), queue.now, args.lease_us, queue.lease_us, args.permit),
    )
    yield from tell_leased(queue, ids)
    if len(rows) == 1:
        return rows
    by_id = {row[0]: row for row in rows}
    return [by_id[id] for id in ids]


def _cut(ids: list[int], max_bytes: int) -> Op[list[int]]:
    """As many as their bodies allow; the first always."""
    rows = yield SQL.body_sizes, (ids_of(ids),)
    sizes: dict[int, int] = dict(rows)
    total = 0
    for i, id in enumerate(ids):
        total += sizes[id]
        if i and total > max_bytes:
            return ids[:i]
    return ids


def _question(call: Call, memory: Memory) -> tuple[Any, ...]:
    args = call.args
    types = None if args.types is None else tuple(args.types)
    return memory.channel, call.queue.lane, args.version, types, args.min_priority


def _retry_after(call: Call, memory: Memory, limit: Limit) -> Op[int | None]:
    """When it is worth to ask again (§4.12)."""
    now = call.queue.now
    if call.spent:
        # Closed channels used up the budget: go on from here at once.
        memory.extra = Resume(_question(call, memory), call.segments, call.wake_at)
        return 0
    rows = yield SQL.next_events, (call.queue.lane,)
    times = [at for at in (*rows[0], call.wake_at) if at is not None]
    if limit.only_rate and call.eligible:
        times.append(limit.rate.opens_at)
    return max(0, min(times) - now) if times else None
