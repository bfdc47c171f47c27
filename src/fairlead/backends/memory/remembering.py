"""What a queue remembers for a while (§19)."""

from __future__ import annotations

from fairlead.backends.memory.core import Core, op
from fairlead.backends.memory.state import Queue, Remembered
from fairlead.backends.remembering import VALUE


class Remembering(Core):
    @op
    def remember(self, queue: str, name: str, value: bytes, keep_us: int, now: int | None) -> None:
        kept = Remembered(self._now(now) + keep_us, value=value)
        self._queue(queue).remembered[VALUE, name] = kept

    @op
    def recall(self, queue: str, name: str, now: int | None) -> bytes | None:
        found = self._queue(queue).recall(VALUE, name, self._now(now))
        return None if found is None else found.value

    def _forget(self, q: Queue, limit: int, now: int) -> int:
        """Delete what has expired; how many."""
        expired = [key for key, kept in q.remembered.items() if kept.expires_at <= now][:limit]
        for key in expired:
            del q.remembered[key]
        return len(expired)
