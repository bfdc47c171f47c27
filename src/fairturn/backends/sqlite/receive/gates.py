"""Which channels are open, and how much room they have (§4.3, §4.5, §4.7, §4.11)."""

from __future__ import annotations

from typing import NamedTuple

from fairturn.backends.sqlite.common import SQL, default_policy, json_of
from fairturn.backends.sqlite.receive.fairness import UNLIMITED, Call, Channel, after, walk
from fairturn.backends.steps import Op, Row
from fairturn.core import limits
from fairturn.core.settings import PolicyRow, optional_policy

CLOSED_CHUNK = 32  # channels that are read together when some were closed


class Rate(NamedTuple):
    """GCRA at one moment: how many messages are allowed, the base of the next tat, and when the
    next message is allowed."""

    allowed: int
    interval: int
    base: int
    opens_at: int


def rate(count: int | None, period_us: int | None, burst: int, tat: int, now: int) -> Rate:
    if count is None or period_us is None:
        return Rate(UNLIMITED, 0, now, now)
    interval = -(-period_us // count)
    tolerance = (burst - 1) * interval
    base = max(tat, now)
    ahead = base - now
    allowed = 0 if ahead > tolerance else (tolerance - ahead) // interval + 1
    return Rate(allowed, interval, base, base - tolerance)


def next_channels(call: Call, limit: int) -> Op[list[Channel]]:
    """The next open channels of the round, at most `limit`; none if the round is over, or spent."""
    while call.segments:
        first, last = call.segments.pop(0)
        rows = yield from walk(call, first, last, limit)
        if len(rows) >= limit:
            furthest, *_ = rows[-1]
            if furthest != last:
                call.segments.insert(0, (after(furthest), last))
        opened = yield from judge(call, rows)
        if opened:
            return opened
        if call.closed >= limits.SCAN and call.segments:
            call.spent = True
            return []
        limit = max(limit, CLOSED_CHUNK)
    return []


def judge(call: Call, rows: list[Row]) -> Op[list[Channel]]:
    """The open ones of these channels, in their order. Each channel is checked once per call."""
    found: dict[str, Channel | None] = {}
    gated: dict[str, tuple[int, PolicyRow]] = {}
    default = default_policy(call.queue)
    for name, id, rank, *own in rows:
        if name in call.known:
            found[name] = call.known[name]
            continue
        policy = optional_policy(own) or default
        found[name] = None
        if rank > call.max_rank:
            continue  # even its first message has too low a priority
        if not policy.ordered:
            call.eligible = True
            if policy.paused:
                continue
        if policy.max_concurrency is None and policy.rate_count is None and not policy.ordered:
            found[name] = Channel(name, policy.weight, UNLIMITED, [id])
        else:
            gated[name] = (id, policy)
    if gated:
        states = yield SQL.gates, (call.queue.id, call.queue.lane, json_of(list(gated)))
        for name, leased, tat, blocked in states:
            id, policy = gated[name]
            found[name] = yield from _admit(call, name, id, policy, leased, tat, blocked)
    call.known.update(found)
    opened = [channel for channel in found.values() if channel is not None]
    call.closed += len(found) - len(opened)
    return opened


def _admit(
    call: Call, name: str, id: int, policy: PolicyRow, leased: int, tat: int, blocked: int
) -> Op[Channel | None]:
    """A channel with a limit, if it is open."""
    now = call.queue.now
    room = UNLIMITED if policy.max_concurrency is None else policy.max_concurrency - leased
    if policy.ordered and (leased or blocked):
        return None
    allowed, interval, base, opens_at = rate(
        policy.rate_count, policy.rate_period_us, policy.burst, tat, now
    )
    channel = Channel(name, policy.weight, min(room, allowed), [id], interval=interval, base=base)
    if policy.ordered:
        channel.ids = yield from ordered_run(call, name, max(1, min(call.left, channel.room)))
        channel.ordered = channel.dry = True
        if not channel.ids:
            return None
        call.eligible = True
    if policy.paused or room <= 0:
        return None
    if allowed == 0:
        call.wake(opens_at)
        return None
    return channel


def ordered_run(call: Call, name: str, limit: int) -> Op[list[int]]:
    """The first messages of an ordered channel, up to one that is not eligible."""
    lane = call.queue.lane
    rows = yield SQL.begun_first, (lane, name)
    if len(rows) < limit:
        if call.all_versions is None:
            call.all_versions = yield from versions(lane)
        more = (lane, json_of(call.all_versions), name, limit - len(rows))
        rows += yield SQL.run, more
    ids: list[int] = []
    for id, version, type, rank, expires_at in rows[:limit]:
        if not _fits(call, version, type, rank, expires_at):
            break
        ids.append(id)
    return ids


def _fits(call: Call, version: int, type: str | None, rank: int, expires_at: int | None) -> bool:
    args = call.args
    return (
        (args.version is None or version == args.version)
        and (args.types is None or type in args.types)
        and rank <= call.max_rank
        and (expires_at is None or expires_at > call.queue.now)
    )


def versions(lane: int) -> Op[list[int]]:
    """The versions that have ready messages."""
    rows = yield SQL.versions, (lane,)
    return [version for (version,) in rows]
