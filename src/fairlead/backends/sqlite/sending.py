"""Sending (§3): keys first, then each channel's bound, then rows in as few statements as fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from fairlead.backends.sqlite.common import SENT as SENT_COUNTER
from fairlead.backends.sqlite.common import (
    SQL,
    Queue,
    count,
    find_sized,
    ids_of,
    json_of,
    tally,
)
from fairlead.errors import BodyTooLarge

# Rows per INSERT, largest first: a call of any size takes few statements, all of them prepared
# once.
SIZES = (64, 8, 1)
INSERTS = {size: many_rows(SQL.insert, size, shared=2) for size in SIZES}

# Positions in a SendRow.
CHANNEL, BODY, KEY, ON_CONFLICT = 0, 1, 6, 7

Outcome = tuple[int, str]


class Sending:
    def send(self, queue: str, items: Sequence[SendRow], now: int | None) -> Op[list[Outcome]]:
        yield BEGIN
        found, sized = yield from find_sized(queue, now)
        for item in items:
            if len(item[BODY]) > found.max_body:
                raise BodyTooLarge(len(item[BODY]), found.max_body)
        outcomes: list[Outcome] = [(0, SENT)] * len(items)
        fresh: Sequence[int] = range(len(items))  # the items that become new messages
        replaced: list[int] = []
        dead: list[int] = []
        if any(item[KEY] is not None for item in items):
            fresh, replaced, dead = yield from _settle_keys(found, items, outcomes)
            if any(outcome == CONFLICT for _, outcome in outcomes):
                return outcomes
        if sized or found.max_size is not None:
            yield from _check_sizes(found, items, fresh, outcomes)
            if any(outcome == FULL for _, outcome in outcomes):
                return outcomes
        if dead:
            yield SQL.free_keys, (ids_of(dead),)
        ids = yield from _insert(found, [items[i] for i in fresh])
        for i, id in zip(fresh, ids, strict=True):
            outcomes[i] = (id, SENT)
        for i in replaced:
            columns = _columns(found, items[i])
            yield SQL.replace, (outcomes[i][0], found.now, *columns[:9], *columns[10:])
        _follow_collapsed(items, outcomes)
        counted = tally()
        counted[SENT_COUNTER] = len(ids)
        yield from count(found.id, found.now, counted)
        return outcomes


def _settle_keys(
    queue: Queue, items: Sequence[SendRow], outcomes: list[Outcome]
) -> Op[tuple[list[int], list[int], list[int]]]:
    """Decide every item with a key by who holds it (§3.2).

    Returns the items that become new messages, those that replace one, and the dead messages whose
    keys are taken away.
    """
    last = {item[KEY]: i for i, item in enumerate(items)}
    keys = [key for key in last if key is not None]
    rows = yield SQL.holders, (queue.lane, json_of(keys))
    holders: dict[str, tuple[int, str]] = {key: (id, state) for key, id, state in rows}
    fresh: list[int] = []
    replaced: list[int] = []
    dead: list[int] = []
    for i, item in enumerate(items):
        key = item[KEY]
        holder = holders.get(key) if key is not None else None
        if key is not None and last[key] != i:
            outcomes[i] = (0, COLLAPSED)
        elif holder is None or holder[1] == "x":
            fresh.append(i)
            if holder is not None:
                dead.append(holder[0])
        elif item[ON_CONFLICT] == "e":
            outcomes[i] = (holder[0], CONFLICT)
        elif item[ON_CONFLICT] == "i":
            outcomes[i] = (holder[0], DUPLICATE)
        elif holder[1] == "l":
            outcomes[i] = (holder[0], REFUSED)
        else:
            outcomes[i] = (holder[0], REPLACED)
            replaced.append(i)
    return fresh, replaced, dead


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


def _columns(queue: Queue, item: SendRow) -> tuple[Any, ...]:
    """What the insert takes for one item, after the lane and the time."""
    due = item[4] if item[4] is not None else queue.now + item[5]
    expires = item[13] if item[13] is not None else queue.expires_us
    return (
        "r" if due <= queue.now else "s",
        item[8],
        item[CHANNEL],
        item[3],
        due,
        item[12],
        item[11],
        item[2],
        None if expires is None else queue.now + expires,
        item[KEY],
        item[9],
        item[10],
        item[BODY],
    )


def _insert(queue: Queue, items: Sequence[SendRow]) -> Op[list[int]]:
    """New rows; their ids ascend in the order of the items."""
    ids: list[int] = []
    position = 0
    for size in SIZES:
        while len(items) - position >= size:
            params: list[Any] = [queue.lane, queue.now]
            for item in items[position : position + size]:
                params += _columns(queue, item)
            rows = yield INSERTS[size], params
            # RETURNING promises no order, AUTOINCREMENT does: the first row got the least id.
            ids += sorted(row[0] for row in rows)
            position += size
    return ids
