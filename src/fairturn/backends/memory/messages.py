"""Messages without a lease: cancel, reschedule and promote (§7); redrive, discard and move (§8)."""

from __future__ import annotations

from fairturn.backends.base import Reschedule
from fairturn.backends.memory.core import op
from fairturn.backends.memory.receives import Receiving
from fairturn.backends.memory.state import FINISHED, Message, Queue
from fairturn.core import limits
from fairturn.core.values import BODY_JSON


class Messages(Receiving):
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
        self, queue: str, id: int | None, key: str | None, change: Reschedule, now: int | None
    ) -> str:
        q, now = self._queue(queue), self._now(now)
        message = q.find(id, key)
        if message is None or message.state not in "srl":
            return "n"
        if message.state == "l":
            return "l"
        if change.due_us is not None:
            message.schedule(change.due_us, now)
        elif change.delay_us is not None:
            message.schedule(now + change.delay_us, now)
        if change.rank is not None:
            message.priority = -change.rank
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

    @op
    def move(self, queue: str, to: str | None, limit: int, now: int | None) -> int:
        q, now = self._queue(queue), self._now(now)
        target = None if to is None else self._queue(to)
        self._sweep(q, limits.SWEEP, now)
        ready = [message for message in q.select("r") if not message.past_expiry(now)]
        going = [(m, target or self._home(m, q)) for m in ready]
        moved = [(message, home) for message, home in going if home is not None][:limit]
        for message, home in moved:
            self._renew(message, home, now)
        self._delete(q, [message for message, _ in moved], now)
        return len(moved)

    def _home(self, message: Message, q: Queue) -> Queue | None:
        """The queue where the message died, if it still exists and is another one."""
        home = message.died_in
        return home if home is not q and any(home is one for one in self._by_name()) else None

    def _renew(self, message: Message, target: Queue, now: int) -> None:
        """Send the message to the target as a new one."""
        self._state.last_id += 1
        expires = target.columns["expires_us"]
        new = Message(
            id=self._state.last_id,
            channel=message.channel,
            body=message.body,
            headers=message.headers,
            key=None,
            version=message.version,
            type=message.type,
            priority=message.priority,
            due_at=now,
            created_at=now,
            json=message.json & BODY_JSON,
            state="r",
            lease_us=message.lease_us,
            max_attempts=message.max_attempts,
            expires_at=None if expires is None else now + expires,
        )
        target.messages[new.id] = new
        target.count(now, "sent")
        self._tell(target, "created", new, now, now)
