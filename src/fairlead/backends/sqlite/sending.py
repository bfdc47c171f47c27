"""Sending (§3): keys first, then each channel's bound, then rows in as few statements as fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from fairlead.backends.base import (
    BEGIN,
    COLLAPSED,
    CONFLICT,
    DUPLICATE,
    FULL,
    REFUSED,
    REPLACED,
    SENT,
    Op,
    SendRow,
)
from fairlead.backends.catalogue import many_rows
from fairlead.backends.sqlite.closing import Ended, close_ended
from fairlead.backends.sqlite.common import SENT as SENT_COUNTER
from fairlead.backends.sqlite.common import (
    SQL,
    Queue,
    clock,
    count_one,
    find_sized,
    ids_of,
    json_of,
)
from fairlead.backends.sqlite.events import tell_due
from fairlead.backends.sqlite.remembering import ONCE, remember_names, settle_names
from fairlead.errors import BodyTooLarge

# Rows per INSERT, largest first: a call of any size takes few statements, all of them prepared
# once.
SIZES = (64, 8, 1)
INSERTS = {size: many_rows(SQL.insert, size, shared=2) for size in SIZES}
MEMBER_INSERTS = {size: many_rows(SQL.insert_members, size, shared=2) for size in SIZES}

# Positions in a SendRow.
CHANNEL, BODY, DUE, DELAY, KEY, ON_CONFLICT, GROUP = 0, 1, 4, 5, 6, 7, 15
_key_of, _once_of = itemgetter(KEY), itemgetter(ONCE)  # neither is ever empty

Outcome = tuple[int, str]
Groups = dict[str, tuple[int, int | None]]  # name -> id, started_at


class Holder(NamedTuple):
    """The message that has a key."""

    id: int
    state: str
    created_at: int
    group_id: int | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the keys decide about the items of a call."""

    fresh: Sequence[int]  # the items that become new messages
    replaced: Mapping[int, Holder]  # those that replace one
    dead: Sequence[int]  # messages whose keys are taken away


class Sending:
    def send(self, queue: str, items: Sequence[SendRow], now: int | None) -> Op[list[Outcome]]:
        yield BEGIN
        return (yield from send_items(queue, items, now))


def send_items(queue: str, items: Sequence[SendRow], now: int | None) -> Op[list[Outcome]]:
    ended = Ended()
    outcomes = yield from send_some(queue, items, ended, now)
    if ended:
        yield from close_ended(ended, (yield from clock(now)))
    return outcomes


def send_some(
    queue: str, items: Sequence[SendRow], ended: Ended, now: int | None
) -> Op[list[Outcome]]:
    """One send of a call that closes the groups members left once all its sends are written."""
    found, sized = yield from find_sized(queue, now)
    for item in items:
        if len(item[BODY]) > found.max_body:
            raise BodyTooLarge(len(item[BODY]), found.max_body)
    outcomes: list[Outcome] = [(0, SENT)] * len(items)
    verdict = Verdict(range(len(items)), {}, ())
    firsts: Mapping[str, int] = {}
    if any(map(_key_of, items)):
        verdict = yield from _settle_keys(found, items, outcomes)
        if any(outcome == CONFLICT for _, outcome in outcomes):
            return outcomes
    if any(map(_once_of, items)):
        firsts = yield from settle_names(found, items, outcomes)
        fresh = [i for i in verdict.fresh if outcomes[i][1] == SENT]
        verdict = Verdict(fresh, verdict.replaced, verdict.dead)
    if sized or found.max_size is not None:
        yield from _check_sizes(found, items, verdict.fresh, outcomes)
        if any(outcome == FULL for _, outcome in outcomes):
            return outcomes
    if verdict.dead:
        yield SQL.free_keys, (ids_of(verdict.dead),)
    groups: Groups = {}
    if any(item[GROUP] is not None for item in items):
        groups = yield from _join(found, items, (*verdict.fresh, *verdict.replaced))
    ids = yield from _insert(found, [items[i] for i in verdict.fresh], groups)
    for i, id in zip(verdict.fresh, ids, strict=True):
        outcomes[i] = (id, SENT)
    if verdict.replaced:
        yield from _replace(found, items, verdict.replaced, groups, ended)
    if firsts:
        yield from remember_names(found, items, firsts, outcomes)
    _follow_collapsed(items, outcomes)
    if found.events:
        created = [id for id, outcome in outcomes if outcome in (SENT, REPLACED)]
        yield from tell_due(found, "created", created)
    yield from count_one(found, SENT_COUNTER, len(ids))
    return outcomes


def _settle_keys(queue: Queue, items: Sequence[SendRow], outcomes: list[Outcome]) -> Op[Verdict]:
    """Decide every item with a key by who holds it (§3.2)."""
    last = {item[KEY]: i for i, item in enumerate(items)}
    keys = [key for key in last if key is not None]
    rows = yield SQL.holders, (queue.lane, json_of(keys))
    holders: dict[str, Holder] = {key: Holder._make(holder) for key, *holder in rows}
    fresh: list[int] = []
    replaced: dict[int, Holder] = {}
    dead: list[int] = []
    for i, item in enumerate(items):
        key = item[KEY]
        holder = holders.get(key) if key is not None else None
        if key is not None and last[key] != i:
            outcomes[i] = (0, COLLAPSED)
        elif holder is None or holder.state == "x":
            fresh.append(i)
            if holder is not None:
                dead.append(holder.id)
        elif item[ON_CONFLICT] == "e":
            outcomes[i] = (holder.id, CONFLICT)
        elif item[ON_CONFLICT] == "i":
            outcomes[i] = (holder.id, DUPLICATE)
        elif holder.state == "l":
            outcomes[i] = (holder.id, REFUSED)
        else:
            outcomes[i] = (holder.id, REPLACED)
            replaced[i] = holder
    return Verdict(fresh, replaced, dead)


def _follow_collapsed(items: Sequence[SendRow], outcomes: list[Outcome]) -> None:
    """Give collapsed items the id of the item that was sent for them."""
    if any(outcome == COLLAPSED for _, outcome in outcomes):
        last = {item[KEY]: i for i, item in enumerate(items)}
        for i, item in enumerate(items):
            if outcomes[i][1] == COLLAPSED:
                outcomes[i] = (outcomes[last[item[KEY]]][0], COLLAPSED)


def _check_sizes(
    queue: Queue, items: Sequence[SendRow], fresh: Sequence[int], outcomes: list[Outcome]
) -> Op[None]:
    """Mark the new items of every channel that has no room for all of them (§3.6)."""
    wanted: dict[str, list[int]] = {}
    for i in fresh:
        wanted.setdefault(items[i][CHANNEL], []).append(i)
    rows = yield SQL.sizes, (queue.id, json_of(list(wanted)))
    own: dict[str, int | None] = dict(rows)
    for channel, new in wanted.items():
        size = own.get(channel, queue.max_size)
        if size is None:
            continue
        held = yield SQL.unfinished, (queue.lane, channel, size)
        if held[0][0] + len(new) > size:
            for i in new:
                outcomes[i] = (0, FULL)


def _join(queue: Queue, items: Sequence[SendRow], sent: Iterable[int]) -> Op[Groups]:
    """The groups of the items that are sent; a name that no open group has makes one (§12.3)."""
    joined = Counter(items[i][GROUP] for i in sorted(sent) if items[i][GROUP] is not None)
    rows = yield SQL.open_groups, (json_of(list(joined)),)
    groups: Groups = {name: (id, started_at) for name, id, started_at in rows}
    for name in joined:
        if name not in groups:
            made = yield SQL.new_group, (name, queue.name, "i", queue.now, None, None, None, None)
            groups[name] = (made[0][0], None)
    yield SQL.join_groups, (json_of([[groups[name][0], n] for name, n in joined.items()]),)
    return groups


def _replace(
    queue: Queue,
    items: Sequence[SendRow],
    replaced: Mapping[int, Holder],
    groups: Groups,
    ended: Ended,
) -> Op[None]:
    """Waiting and done messages become the new ones; the groups they leave may be complete."""
    for i, holder in replaced.items():
        item = items[i]
        # Re-armed from done it is born anew, and so is the bound of its debounce.
        created_at = queue.now if holder.state == "d" else holder.created_at
        *new, _, group = _member(queue, item, created_at, groups)
        yield SQL.replace, (holder.id, queue.now, *new, group)
        if holder.state != "d":
            ended.left([holder.group_id])


def columns(queue: Queue, item: SendRow, created_at: int) -> tuple[Any, ...]:
    """What the insert takes for one item, after the lane and the time.

    `created_at` is that of the message it becomes, where the bound of its debounce starts (§14).
    """
    (channel, body, json, rank, due, delay, key, _, version) = item[:9]
    (type, headers, lease_us, max_attempts, expires, max_wait) = item[9:15]
    if due is None:
        due = queue.now + delay
    if max_wait is not None:
        due = min(due, created_at + max_wait)
    state = "r" if due <= queue.now else "s"
    if expires is None:
        expires = queue.expires_us
    expires_at = None if expires is None else queue.now + expires
    # fmt: off
    return (
        state, version, channel, rank, due, max_attempts, lease_us, json, expires_at, type, headers,
        body, key,
    )
    # fmt: on


def _member(queue: Queue, item: SendRow, created_at: int, groups: Groups) -> tuple[Any, ...]:
    """The same with the item's group, if it has one: it is held until that is started."""
    state, *others = columns(queue, item, created_at)
    if item[GROUP] is None:
        return (state, *others, None)
    group, started_at = groups[item[GROUP]]
    return ("h" if started_at is None else state, *others, group)


def _insert(queue: Queue, items: Sequence[SendRow], groups: Groups) -> Op[list[int]]:
    """New rows; their ids ascend in the order of the items."""
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
            # RETURNING promises no order, AUTOINCREMENT does: the first row got the least id.
            ids += sorted(row[0] for row in rows)
            position += size
    return ids
