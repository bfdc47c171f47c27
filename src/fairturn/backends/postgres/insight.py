"""Reading without changing, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairturn.backends.base import Facts, Peek
from fairturn.backends.postgres.literals import numbers, queue_dict
from fairturn.backends.steps import Op
from fairturn.core.errors import InvalidArgument, QueueNotFound
from fairturn.core.rows import (
    EventRow,
    FailureRow,
    HistoryRow,
    OutcomeRow,
    PeekRow,
    StatsRow,
    StepRow,
    peek_row,
)


class Cursor(NamedTuple):
    """A position in the events: the last one read, by its transaction, number and time. After a
    failover or a restore another event may have its numbers, but not its time. A reader that began
    with "now" keeps its first snapshot until it has passed all transactions that were open then."""

    tx: str = "0"
    id: int = 0
    at: int | None = None
    since: str | None = None
    timeline: str | None = None

    @classmethod
    def of(cls, text: str) -> Cursor:
        if not text:
            return cls()
        try:
            tx, id, at, *snapshot = text.split("-")
            since, timeline = snapshot or (None, None)
            return cls(str(int(tx)), int(id), int(at) if at else None, since, timeline)
        except ValueError:
            raise InvalidArgument(
                f'{text!r} is not a cursor of events: pass event.cursor, or "" for the beginning'
            ) from None

    def moved(self, tx: str, id: int, at: int) -> Cursor:
        if self.since is not None:
            _, first_unknown, *_ = self.since.split(":")  # of a pg_snapshot
            if int(tx) < int(first_unknown):
                return self._replace(tx=tx, id=id, at=at)
        return Cursor(tx, id, at)

    def __str__(self) -> str:
        snapshot = f"-{self.since}-{self.timeline}" if self.since else ""
        return f"{self.tx}-{self.id}-{'' if self.at is None else self.at}{snapshot}"


class Insight:
    statements: dict[str, str]

    def get(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> Op[PeekRow | None]:
        rows = yield self.statements["get"], (queue, id, key, now)
        if not rows:
            yield from self._found(queue)
        return next(map(PeekRow._make, rows), None)

    def _found(self, queue: str) -> Op[None]:
        """Raise if there is no such queue: a statement has found no rows."""
        rows = yield self.statements["queues"], (queue,)
        if not rows:
            raise QueueNotFound(queue)

    def peek(self, queue: str, peek: Peek, now: int | None) -> Op[list[PeekRow]]:
        params = (queue, peek.after, peek.state, peek.channel, now, peek.n)
        rows = yield self.statements["peek"], params
        if not rows:
            yield from self._found(queue)
        return [*map(peek_row, rows)]

    def stats(self, queue: str | None, now: int | None) -> Op[list[StatsRow]]:
        rows = yield self.statements["stats"], (queue, now)
        return [StatsRow._make(row) for row in rows]

    def history(self, queue: str, since: int, now: int | None) -> Op[list[HistoryRow]]:
        rows = yield self.statements["history"], (queue, since)
        if not rows:
            yield from self._found(queue)
        return [HistoryRow._make(row) for row in rows]

    def facts(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> Op[Facts | None]:
        rows = yield self.statements["facts"], (queue, id, key, now)
        if not rows:
            return None
        [row] = rows
        width = len(PeekRow._fields)
        clock, columns, *rest = row[width:]
        return Facts.of(PeekRow._make(row[:width]), clock, queue_dict(columns), rest)

    def failures(self, queue: str, id: int | None, key: str | None, n: int) -> Op[list[FailureRow]]:
        rows = yield self.statements["failures"], (queue, id, key, n)
        if not rows:
            yield from self._found(queue)
        return [FailureRow._make(row) for row in rows]

    def outcomes(
        self, queue: str, ids: Sequence[int], keys: Sequence[str], now: int | None
    ) -> Op[list[OutcomeRow]]:
        rows = yield self.statements["outcomes"], (queue, numbers(ids), list(keys), now)
        return [OutcomeRow._make(row) for row in rows]

    def events(
        self, after: str | None, queue: str | None, kinds: Sequence[str] | None, limit: int
    ) -> Op[tuple[list[EventRow], str]]:
        if after is None:
            [row] = yield self.statements["events_now"], (queue,)
            return [], str(Cursor._make(row))
        cursor = Cursor.of(after)
        wanted = None if kinds is None else list(kinds)
        params = (cursor.tx, cursor.id, limit, queue, wanted)
        params += (cursor.at, cursor.since, cursor.timeline)
        rows = yield self.statements["events"], params
        events: list[EventRow] = []
        for tx, id, at, kind, *rest in rows:
            cursor = cursor.moved(tx, id, at)
            if kind is not None:
                events.append(EventRow(str(cursor), at, kind, *rest))
        return events, str(cursor)

    def trace(self, key: str) -> Op[list[StepRow]]:
        rows = yield self.statements["trace"], (key,)
        return [StepRow._make(row) for row in rows]
