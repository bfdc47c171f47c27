"""Sending (§3), and batches (§16): first the keys, then the max_size of each channel, then the
rows, in few statements. A statement is not a round trip here, so each change of a batch is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fairturn.backends.base import COLLAPSED, FULL, REPLACED, SENT, Batch, Outcome
from fairturn.backends.catalogue import many_rows
from fairturn.backends.keys import SendPlan
from fairturn.backends.keys import plan as plan_of
from fairturn.backends.sqlite.common import SENT as SENT_COUNTER
from fairturn.backends.sqlite.common import (
    SQL,
    Queue,
    clock,
    count_one,
    find,
    find_sized,
    ids_of,
    json_of,
)
from fairturn.backends.sqlite.events import tell_due
from fairturn.backends.sqlite.groups.closing import Ended, close_ended
from fairturn.backends.sqlite.remembered import remember_names, settle_names
from fairturn.backends.steps import BEGIN, Op
from fairturn.core.errors import BodyTooLarge
from fairturn.core.rows import SendRow

# Rows per INSERT, largest first: a call of any size takes few statements, and each is prepared only
# once.
SIZES = (64, 8, 1)
INSERTS = {size: many_rows(SQL.insert, size, shared=2) for size in SIZES}
INSERT_ONE = INSERTS[min(SIZES)]
MEMBER_INSERTS = {size: many_rows(SQL.insert_members, size, shared=2) for size in SIZES}

Groups = dict[str, tuple[int, int | None]]  # by name: id, started_at


class Holder(NamedTuple):
    """The message that has a key."""

    id: int
    state: str
    created_at: int
    group_id: int | None


class Sending:
    def send(self, queue: str, items: Sequence[SendRow], now: int | None) -> Op[list[Outcome]]:
        yield BEGIN
        return (yield from send_items(queue, items, now))

    def batch(self, batch: Batch, now: int | None) -> Op[list[list[Outcome]]]:
        sets, clears, sends = batch
        yield BEGIN
        now = yield from clock(now)
        ids: dict[str, int] = {}
        for queue in (*(queue for queue, _, _ in sets), *(queue for queue, _ in clears)):
            if queue not in ids:
                ids[queue] = (yield from find(queue, now)).id
        for queue, channel, policy in sets:
            yield SQL.set_policy, (ids[queue], channel, *policy)
        for queue, channel in clears:
            yield SQL.clear_policy, (ids[queue], channel)
        ended = Ended()
        outcomes: list[list[Outcome]] = []
        for queue, items in sends:
            outcomes.append((yield from send_some(queue, items, ended, now)))
        yield from close_ended(ended, now)
        return outcomes


def send_items(queue: str, items: Sequence[SendRow], now: int | None) -> Op[list[Outcome]]:
    ended = Ended()
    outcomes = yield from send_some(queue, items, ended, now)
    if ended:
        yield from close_ended(ended, (yield from clock(now)))
    return outcomes


def send_some(
    queue: str, items: Sequence[SendRow], ended: Ended, now: int | None
) -> Op[list[Outcome]]:
    """Send to one queue. The caller closes the groups in ``ended`` after its last send."""
    found, sized = yield from find_sized(queue, now)
    keyed = named = grouped = False
    for item in items:
        if len(item.body) > found.max_body:
            raise BodyTooLarge(len(item.body), found.max_body)
        keyed = keyed or item.key is not None
        named = named or item.once is not None
        grouped = grouped or item.group is not None
    firsts: Mapping[str, int] = {}
    plan: SendPlan[Holder]
    if not keyed and not named:
        plan = SendPlan([(0, SENT)] * len(items), range(len(items)), {})
    else:
        duplicates: Mapping[int, int] = {}
        if named:
            firsts, duplicates = yield from settle_names(found, items)
        plan = plan_of(items, (yield from _holders(found, items)) if keyed else {}, duplicates)
        if plan.conflicts:
            return plan.outcomes
    outcomes = plan.outcomes
    if sized or found.max_size is not None:
        yield from _check_sizes(found, items, plan.new, outcomes)
        if any(outcome == FULL for _, outcome in outcomes):
            return outcomes
    if plan.dead:
        yield SQL.free_keys, (ids_of(plan.dead),)
    groups: Groups = {}
    if grouped:
        groups = yield from _join(found, items, (*plan.new, *plan.replaced))
    ids = yield from _insert(found, [items[i] for i in plan.new], groups)
    for i, id in zip(plan.new, ids, strict=True):
        outcomes[i] = (id, SENT)
    if plan.replaced:
        yield from _replace(found, items, plan.replaced, groups, ended)
    if firsts:
        yield from remember_names(found, items, firsts, outcomes)
    if keyed:
        _follow_collapsed(items, outcomes)
    if found.events:
        created = [id for id, outcome in outcomes if outcome in (SENT, REPLACED)]
        yield from tell_due(found, "created", created)
    yield from count_one(found, SENT_COUNTER, len(ids))
    return outcomes


def _holders(queue: Queue, items: Sequence[SendRow]) -> Op[dict[str, Holder]]:
    """The messages that have the keys of the items, by key."""
    keys = dict.fromkeys(item.key for item in items if item.key is not None)
    rows = yield SQL.holders, (queue.lane, json_of(list(keys)))
    return {key: Holder._make(holder) for key, *holder in rows}


def _follow_collapsed(items: Sequence[SendRow], outcomes: list[Outcome]) -> None:
    """Give collapsed items the id of the item that was sent for them."""
    if any(outcome == COLLAPSED for _, outcome in outcomes):
        last = {item.key: id for item, (id, _) in zip(items, outcomes, strict=True)}
        for i, item in enumerate(items):
            _, outcome = outcomes[i]
            if outcome == COLLAPSED:
                outcomes[i] = (last[item.key], COLLAPSED)


def _check_sizes(
    queue: Queue, items: Sequence[SendRow], fresh: Sequence[int], outcomes: list[Outcome]
) -> Op[None]:
    """Mark the new items of every channel that has no room for all of them (§3.6)."""
    wanted: dict[str, list[int]] = {}
    for i in fresh:
        wanted.setdefault(items[i].channel, []).append(i)
    rows = yield SQL.sizes, (queue.id, json_of(list(wanted)))
    own: dict[str, int | None] = dict(rows)
    for channel, new in wanted.items():
        size = own.get(channel, queue.max_size)
        if size is None:
            continue
        [(held,)] = yield SQL.unfinished, (queue.lane, channel, size)
        if held + len(new) > size:
            for i in new:
                outcomes[i] = (0, FULL)


def _join(queue: Queue, items: Sequence[SendRow], sent: Iterable[int]) -> Op[Groups]:
    """The groups of the items that are sent; a name that no open group has makes one (§12.3)."""
    names = (items[i].group for i in sorted(sent))
    joined = Counter(name for name in names if name is not None)
    rows = yield SQL.open_groups, (json_of(list(joined)),)
    groups: Groups = {name: (id, started_at) for name, id, started_at in rows}
    for name in joined:
        if name not in groups:
            made = (name, queue.name, "i", queue.now, None, None, None, None)
            [(id,)] = yield SQL.new_group, made
            groups[name] = (id, None)
    ids = {name: id for name, (id, _) in groups.items()}
    yield SQL.join_groups, (json_of([[ids[name], n] for name, n in joined.items()]),)
    return groups


def _replace(
    queue: Queue,
    items: Sequence[SendRow],
    replaced: Mapping[int, Holder],
    groups: Groups,
    ended: Ended,
) -> Op[None]:
    """Replace waiting and done messages. The groups that they leave may be complete."""
    for i, holder in replaced.items():
        item = items[i]
        # A re-armed message is new, and so is the bound of its debounce.
        created_at = queue.now if holder.state == "d" else holder.created_at
        *new, _, group = _member(queue, item, created_at, groups)
        yield SQL.replace, (holder.id, queue.now, *new, group)
        if holder.state != "d":
            ended.left([holder.group_id])


def columns(queue: Queue, item: SendRow, created_at: int) -> tuple[Any, ...]:
    """The parameters of an insert for one item, after the lane and the time.

    `created_at` is that of the message it becomes, where the bound of its debounce starts (§14).
    """
    # fmt: off
    (  # unpacked at once, which saves 4 % of a large send
        channel, body, json, rank, due, delay_us, key, _, version, type, headers, lease_us,
        max_attempts, expires_us, max_wait_us, _, _, _,
    ) = item
    if due is None:
        due = queue.now + delay_us
    if max_wait_us is not None:
        due = min(due, created_at + max_wait_us)
    state = "r" if due <= queue.now else "s"
    if expires_us is None:
        expires_us = queue.expires_us
    expires_at = None if expires_us is None else queue.now + expires_us
    return (
        state, version, channel, rank, due, max_attempts, lease_us, json, expires_at, type, headers,
        body, key,
    )
    # fmt: on


def _member(queue: Queue, item: SendRow, created_at: int, groups: Groups) -> tuple[Any, ...]:
    """The same, with the item's group; a member is held until its group is started."""
    state, *others = columns(queue, item, created_at)
    if item.group is None:
        return (state, *others, None)
    group, started_at = groups[item.group]
    return ("h" if started_at is None else state, *others, group)


def _insert(queue: Queue, items: Sequence[SendRow], groups: Groups) -> Op[list[int]]:
    """Insert new messages; their ids ascend in the order of the items."""
    ids: list[int] = []
    position = 0
    for size in SIZES:
        while len(items) - position >= size:
            params: list[Any] = [queue.lane, queue.now]
            for item in items[position : position + size]:
                if groups:
                    params += _member(queue, item, queue.now, groups)
                else:
                    params += columns(queue, item, queue.now)
            rows = yield (MEMBER_INSERTS if groups else INSERTS)[size], params
            # RETURNING has no defined order, AUTOINCREMENT has: the first row has the lowest id.
            ids += sorted([id for (id,) in rows])
            position += size
    return ids
