"""Ready messages that go to another queue (§8.3)."""

from __future__ import annotations

from fairlead import limits
from fairlead.backends.memory.core import op
from fairlead.backends.memory.receiving import Receiving
from fairlead.backends.memory.state import Message, Queue
from fairlead.values import BODY_JSON


class Moving(Receiving):
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
        """Where it died, if that queue is still there and another."""
        home = message.died_in
        return home if home is not q and any(home is one for one in self._by_name()) else None

    def _renew(self, message: Message, target: Queue, now: int) -> None:
        """Send it to the target as a new message."""
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
