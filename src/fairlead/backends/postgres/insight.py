"""Looking, on PostgreSQL."""

from __future__ import annotations

from fairlead.backends.base import PEEK_ROW, Facts, Op, Row, Rows
from fairlead.backends.postgres.literals import queue_dict
from fairlead.errors import QueueNotFound


class Insight:
    statements: dict[str, str]

    def get(self, queue: str, id: int | None, key: str | None, now: int | None) -> Op[Row | None]:
        rows = yield self.statements["get"], (queue, id, key, now)
        if not rows:
            yield from self._found(queue)
        return rows[0] if rows else None

    def _found(self, queue: str) -> Op[None]:
        """Nothing came back: say so only if the queue exists."""
        rows = yield self.statements["queues"], (queue,)
        if not rows:
            raise QueueNotFound(queue)

    def peek(
        self,
        queue: str,
        n: int,
        state: str | None,
        channel: str | None,
        after: int,
        now: int | None,
    ) -> Op[Rows]:
        rows = yield self.statements["peek"], (queue, after, state, channel, now, n)
        if not rows:
            yield from self._found(queue)
        return rows

    def stats(self, queue: str | None, now: int | None) -> Op[Rows]:
        return (yield self.statements["stats"], (queue, now))

    def history(self, queue: str, since: int, now: int | None) -> Op[Rows]:
        rows = yield self.statements["history"], (queue, since)
        if not rows:
            yield from self._found(queue)
        return rows

    def facts(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> Op[Facts | None]:
        rows = yield self.statements["facts"], (queue, id, key, now)
        if not rows:
            return None
        row, (clock, columns, *rest) = rows[0][: len(PEEK_ROW)], rows[0][len(PEEK_ROW) :]
        return Facts(row, clock, queue_dict(columns), tuple(rest[:8]), *rest[8:])

    def failures(self, queue: str, id: int | None, key: str | None, n: int) -> Op[Rows]:
        rows = yield self.statements["failures"], (queue, id, key, n)
        if not rows:
            yield from self._found(queue)
        return rows

    def trace(self, key: str) -> Op[Rows]:
        return (yield self.statements["trace"], (key,))
