"""Closing groups (§12.5 to §12.8).

There is one writer at a time: nobody else can end or send a member meanwhile. So a group closes in
the transaction that ends its last member. A call collects the groups of the members that it ends
(`Ended`) and checks each group once, when all its rows are written. Whether a group is complete is
read from the rows, never from its counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fairturn.backends.base import ABORTED, CANCELLED, ENDED
from fairturn.backends.sqlite.common import CANCELLED as CANCELLED_COUNTER
from fairturn.backends.sqlite.common import (
    SENT,
    SQL,
    Queue,
    count,
    count_one,
    find_if_any,
    json_of,
    tally,
)
from fairturn.backends.sqlite.events import tell_due
from fairturn.backends.steps import Op

WORDS = {ENDED: "ended", CANCELLED: "cancelled", ABORTED: "aborted"}


@dataclass(slots=True)
class Counts:
    done: int = 0
    died: int = 0


class Ended(dict[int, Counts]):
    """The groups whose members ended in one call: how many were done, how many died."""

    def done(self, groups: Iterable[int | None]) -> None:
        self._add(groups, 1, 0)

    def died(self, groups: Iterable[int | None]) -> None:
        self._add(groups, 0, 1)

    def left(self, groups: Iterable[int | None]) -> None:
        """Members were deleted, moved or replaced: counted as neither."""
        self._add(groups, 0, 0)

    def _add(self, groups: Iterable[int | None], done: int, died: int) -> None:
        for group in groups:
            if group is not None:
                counts = self.setdefault(group, Counts())
                counts.done += done
                counts.died += died


class Group(NamedTuple):
    """An open group: the columns of open_group and end_members."""

    id: int
    name: str
    queue: str
    on_dead: str
    started_at: int | None
    end_id: int | None
    end_delay_us: int | None
    abort_id: int | None
    abort_delay_us: int | None
    sent: int
    done: int
    dead: int


def close_ended(ended: Ended, now: int) -> Op[bool]:
    """Update the counts of these groups and close those that are complete now. True if one was
    closed."""
    if not ended:
        return False
    left = json_of([[group, counts.done, counts.died] for group, counts in ended.items()])
    rows = yield SQL.end_members, (left,)
    closed = False
    for *columns, is_open, complete in sorted(rows):
        group = Group._make(columns)
        if not is_open:
            continue
        if group.on_dead == "a" and ended[group.id].died:
            yield from close(group, ABORTED, now)
        elif complete:
            yield from close(group, ENDED, now)
        else:
            continue
        closed = True
    return closed


def close(group: Group, outcome: str, now: int) -> Op[None]:
    """Close an open group. Its end or its abort message is sent, the other one deleted. If it is
    cancelled or aborted, its unfinished members are deleted."""
    if outcome != ENDED:
        yield from _delete_members(group, now)
    yield SQL.close_group, (group.id, outcome, now)
    queue = yield from find_if_any(group.queue, now)
    if queue is None:
        return  # it was dropped, with the end and abort messages
    entry = json.dumps(
        {
            "name": group.name,
            "outcome": WORDS[outcome],
            "sent": group.sent,
            "done": group.done,
            "dead": group.dead,
        },
        ensure_ascii=False,
    )
    end, abort = (group.end_id, group.end_delay_us), (group.abort_id, group.abort_delay_us)
    (released, delay_us), (deleted, _) = (end, abort) if outcome == ENDED else (abort, end)
    if deleted is not None:
        yield SQL.delete_work, (deleted, queue.lane)
    if released is not None:
        yield from _release(queue, released, delay_us, entry)
    if queue.events:
        yield SQL.tell_closed, (now, queue.name, entry.encode())


def _delete_members(group: Group, now: int) -> Op[None]:
    queues = yield SQL.count_members, (group.id,)
    for queue_id, number in queues:
        counted = tally()
        counted[CANCELLED_COUNTER] = number
        yield from count(queue_id, now, counted)
    yield SQL.tell_members, (group.id, now)
    yield SQL.delete_members, (group.id,)
    yield SQL.leave_group, (group.id,)


def _release(queue: Queue, work: int, delay_us: int | None, entry: str) -> Op[None]:
    """Send the end or abort message (§12.8), unless it was cancelled, replaced or purged."""
    expires_at = None if queue.expires_us is None else queue.now + queue.expires_us
    headers = f'"fairturn.group":{entry}'
    rows = yield SQL.release_work, (work, queue.lane, queue.now, delay_us, expires_at, headers)
    if rows:
        yield from count_one(queue, SENT, 1)
        yield from tell_due(queue, "created", [work])
