"""Looking, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.backends.base import PEEK_ROW, Facts, Op, Row, Rows
from fairlead.backends.postgres.literals import numbers, queue_dict
from fairlead.errors import InvalidArgument, QueueNotFound


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far the events have been read: transaction and number. A reader that began with "now"
    carries its first snapshot until all that was open then is behind it."""

    tx: str
    id: int
    since: str | None = None

    @classmethod
    def of(cls, text: str) -> Cursor:
        try:
            tx, id, *since = (text or "0-0").split("-")
            return cls(str(int(tx)), int(id), since[0] if since else None)
        except (ValueError, IndexError):
            raise InvalidArgument(
                f'{text!r} is not a cursor of events: pass event.cursor, or "" for the beginning'
            ) from None

    def at(self, tx: str, id: int) -> Cursor:
        since = self.since
        if since is not None and int(tx) >= int(since.split(":")[1]):
            since = None
        return Cursor(tx, id, since)

    def __str__(self) -> str:
        return f"{self.tx}-{self.id}" + (f"-{self.since}" if self.since else "")


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

    def outcomes(
        self, queue: str, ids: Sequence[int], keys: Sequence[str], now: int | None
    ) -> Op[Rows]:
        return (yield self.statements["outcomes"], (queue, numbers(ids), list(keys), now))

    def events(
        self, after: str | None, queue: str | None, kinds: Sequence[str] | None, limit: int
    ) -> Op[tuple[Rows, str]]:
        if after is None:
            [(open, snapshot)] = yield self.statements["events_now"], (queue,)
            return [], str(Cursor(open, 0, snapshot))
        cursor = Cursor.of(after)
        rows = yield (
            self.statements["events"],
            (
                cursor.tx,
                cursor.id,
                limit,
                queue,
                None if kinds is None else list(kinds),
                cursor.since,
            ),
        )
        events: Rows = []
        for tx, id, *event in rows:
            cursor = cursor.at(tx, id)
            if event[1] is not None:
                events.append((str(cursor), *event))
        return events, str(cursor)

    def trace(self, key: str) -> Op[Rows]:
        return (yield self.statements["trace"], (key,))
