"""Messages that wait or are finished (§7, §8)."""

from __future__ import annotations

from fairlead.backends.memory.core import Core, op
from fairlead.backends.memory.state import FINISHED


class Messages(Core):
    @op
    def cancel(
        self, queue: str, id: int | None, key: str | None, force: bool, now: int | None
    ) -> str:
        q, now = self._queue(queue), self._now(now)
        message = q.find(id, key)
        if message is None or (message.state in FINISHED and not force):
            return "n"
        if message.state == "l" and not force:
            return "l"
        self._delete(q, [message], now)
        q.count(now, "cancelled")
        return "c"

    @op
    def reschedule(
        self,
        queue: str,
        id: int | None,
        key: str | None,
        due_us: int | None,
        delay_us: int | None,
        rank: int | None,
        now: int | None,
    ) -> str:
        q, now = self._queue(queue), self._now(now)
        message = q.find(id, key)
        if message is None or message.state not in "srl":
            return "n"
        if message.state == "l":
            return "l"
        if delay_us is not None and due_us is None:
            due_us = now + delay_us
        if due_us is not None:
            message.schedule(due_us, now)
        if rank is not None:
            message.priority = -rank
        self._tell(q, "deferred", message, now, message.due_at)
        return "c"

    @op
    def promote(self, queue: str, within_us: int, limit: int, now: int | None) -> int:
        q, now = self._queue(queue), self._now(now)
        new = (m for m in q.select("s") if m.first_at is None and not m.past_expiry(now))
        soon = [m for m in new if m.due_at <= now + within_us]
        soon = sorted(soon, key=lambda m: (m.due_at, m.id))[:limit]
        for message in soon:
            message.state = "r"
        return len(soon)

    @op
    def redrive(
        self, queue: str, to: str | None, limit: int, delay_us: int, now: int | None
    ) -> int:
        q, now = self._queue(queue), self._now(now)
        target = q if to is None else self._queue(to)
        dead = self._finished(q, "x")[:limit]
        for message in dead:
            message.attempts = message.begun = 0
            message.finished_at = message.first_at = None
            message.schedule(now + delay_us, now)
            if target is not q:
                message.died_in = None
                self._move(q, target, message, now)
            else:
                self._tell(q, "deferred", message, now, message.due_at)
        return len(dead)

    @op
    def discard(self, queue: str, state: str, limit: int, now: int | None) -> int:
        q, now = self._queue(queue), self._now(now)
        finished = self._finished(q, state)[:limit]
        self._delete(q, finished, now)
        q.count(now, "cancelled", len(finished))
        return len(finished)
