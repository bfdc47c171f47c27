"""Ready messages that go to another queue (§8.3)."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead import limits
from fairlead.backends.base import BEGIN, Op
from fairlead.backends.sqlite.care import expire, recover
from fairlead.backends.sqlite.closing import Ended, close_ended
from fairlead.backends.sqlite.common import (
    SENT,
    SQL,
    Queue,
    count,
    count_one,
    find,
    ids_of,
    tally,
)
from fairlead.backends.sqlite.events import tell, tell_due


class Moving:
    def move(self, queue: str, to: str | None, limit: int, now: int | None) -> Op[int]:
        yield BEGIN
        found = yield from find(queue, now)
        target = None if to is None else (yield from find(to, found.now))
        counted, ended = tally(), Ended()
        yield from expire(found, limits.SWEEP, counted, ended)
        yield from recover(found, limits.SWEEP, counted, ended)
        yield SQL.promote, (found.lane, found.now, limits.SWEEP)
        yield from count(found.id, found.now, counted)
        going: dict[Queue, list[int]] = {}
        if target is not None:
            rows = yield SQL.movable, (found.lane, found.now, limit)
            if rows:
                going[target] = [row[0] for row in rows]
        else:
            rows = yield SQL.movable_home, (found.lane, found.now, limit, found.id)
            for home in {row[2]: None for row in rows}:
                into = yield from find(home, found.now)
                going[into] = [row[0] for row in rows if row[2] == home]
        for into, ids in going.items():
            yield from _renew(into, ids)
        ids = [row[0] for row in rows]
        yield from tell(found, "deleted", ids)
        yield SQL.delete, (ids_of(ids),)
        ended.left(row[1] for row in rows)
        yield from close_ended(ended, found.now)
        return len(ids)


def _renew(target: Queue, ids: Sequence[int]) -> Op[None]:
    """Send them to the target as new messages."""
    expires_at = None if target.expires_us is None else target.now + target.expires_us
    rows = yield SQL.move, (ids_of(ids), target.now, target.lane, expires_at)
    yield from tell_due(target, "created", sorted(row[0] for row in rows))
    yield from count_one(target, SENT, len(rows))
