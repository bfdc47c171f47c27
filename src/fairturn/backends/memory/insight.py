"""Reading without changing: messages, numbers, outcomes, events (§9, §13.2, §15.3)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from fairturn.backends import base
from fairturn.backends.memory.core import Core, op
from fairturn.backends.memory.state import FINISHED, UNFINISHED, Message, Queue, counters
from fairturn.core import errors
from fairturn.core.rows import (
    EventRow,
    FailureRow,
    HistoryRow,
    OutcomeRow,
    PeekRow,
    StatsRow,
    StepRow,
)


class Insight(Core):
    @op
    def get(self, queue: str, id: int | None, key: str | None, now: int | None) -> PeekRow | None:
        message = self._queue(queue).find(id, key)
        if message is None or message.past_expiry(self._now(now)):
            return None
        return message.peek_row

    @op
    def peek(self, queue: str, peek: base.Peek, now: int | None) -> list[PeekRow]:
        now = self._now(now)
        found = self._queue(queue).select(peek.state or UNFINISHED + FINISHED, peek.channel)
        seen = (m for m in found if m.id > peek.after and not m.past_expiry(now))
        return [m.peek_row for m in seen][: peek.n]

    @op
    def stats(self, queue: str | None, now: int | None) -> list[StatsRow]:
        now = self._now(now)
        queues = self._by_name() if queue is None else [self._queue(queue)]
        return [self._stats(q, now) for q in queues]

    def _stats(self, q: Queue, now: int) -> StatsRow:
        states: Counter[str] = Counter()
        versions: Counter[int] = Counter()
        due: list[int] = []
        for message in q.messages.values():
            if message.past_expiry(now):
                continue
            state = message.state
            if (state == "s" and message.due_at <= now) or (
                state == "l" and message.past_lease(now) and not self._alive(message.permit, now)
            ):
                state = "r"
            if state == "r":
                due.append(message.due_at)
            states[state] += 1
            versions[message.version] += 1
        return StatsRow(
            name=q.name,
            ready=states["r"],
            scheduled=states["s"],
            leased=states["l"],
            held=states["h"],
            done=states["d"],
            dead=states["x"],
            **counters(q.totals),
            oldest_ready=min(due, default=None),
            versions=json.dumps(versions),
        )

    @op
    def history(self, queue: str, since: int, now: int | None) -> list[HistoryRow]:
        minutes = sorted(self._queue(queue).minutes.items())
        return [HistoryRow(at, **counters(counted)) for at, counted in minutes if at >= since]

    @op
    def facts(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> base.Facts | None:
        q, now = self._queue(queue), self._now(now)
        message = q.find(id, key)
        if message is None or message.past_expiry(now):
            return None
        policy = q.policy(message.channel)
        leased = q.select("l", message.channel)
        return base.Facts(
            row=message.peek_row,
            now=now,
            queue=dict(q.columns),
            policy=policy,
            ahead=sum(m.order < message.order for m in q.select("r", message.channel)),
            leased=len(leased),
            leased_queue=len(q.select("l")),
            next_lease_end=min((m.lease_until or 0 for m in leased), default=None),
            tat=q.tats.get(message.channel, 0),
            queue_tat=q.tat,
            blocking_id=self._blocking(q, message) if policy.ordered else None,
        )

    def _blocking(self, q: Queue, message: Message) -> int | None:
        """The message that an ordered channel waits for: leased, scheduled for its retry, or
        retried before this one."""
        others = [m for m in q.select("lsr", message.channel) if m is not message]
        leased = [m.id for m in others if m.state == "l"]
        retried = [m.id for m in others if m.state == "s" and m.begun]
        first = [m.id for m in others if m.state == "r" and m.begun and not message.begun]
        return next(iter(leased + retried + first), None)

    @op
    def failures(self, queue: str, id: int | None, key: str | None, n: int) -> list[FailureRow]:
        newest_first = reversed(self._queue(queue).failures)
        return [
            failure.row
            for failure in newest_first
            if id in (None, failure.row.message_id) and key in (None, failure.row.key)
        ][:n]

    @op
    def trace(self, key: str) -> list[StepRow]:
        steps: list[StepRow] = []
        for q in self._by_name():
            for m in q.messages.values():
                if m.key == key:
                    steps.append(StepRow(m.created_at, q.name, "message", m.id, m.state, ""))
            for f, killed in q.failures:
                if f.key == key:
                    state = "x" if killed else "r"
                    steps.append(StepRow(f.at, q.name, "error", f.message_id, state, f.error))
        return sorted(steps, key=lambda step: (step.at, step.message_id))

    @op
    def outcomes(
        self, queue: str, ids: Sequence[int], keys: Sequence[str], now: int | None
    ) -> list[OutcomeRow]:
        q, now = self._queue(queue), self._now(now)
        rows: list[OutcomeRow] = []
        for holder in self._by_name():
            for m in holder.messages.values():
                if m.past_expiry(now) or not (m.id in ids or m.key in keys):
                    continue
                if holder is q:
                    rows.append(m.outcome_row)
                elif m.died_in is q and m.id in ids:
                    rows.append(m.outcome_row._replace(state="x"))
        return rows

    @op
    def events(
        self, after: str | None, queue: str | None, kinds: Sequence[str] | None, limit: int
    ) -> tuple[list[EventRow], str]:
        if queue is not None:
            self._queue(queue)
        kept = self._state.events
        last = kept[-1].cursor if kept else after or "0-0"
        if after is None:
            return [], last
        position = _number(after or "0-0")
        earlier = [event.cursor for event in kept if _number(event.cursor) <= position]
        if earlier and after not in ("", earlier[-1]):
            raise errors.CursorLost
        found = [
            event
            for event in kept[len(earlier) :]
            if queue in (None, event.queue) and (kinds is None or event.kind in kinds)
        ]
        given = found[:limit]
        return given, last if len(given) == len(found) else given[-1].cursor


def _number(cursor: str) -> int:
    """The number of the event of a cursor."""
    number, _, at = cursor.partition("-")
    if not (number.isascii() and number.isdigit() and at.isascii() and at.isdigit()):
        raise errors.InvalidArgument(f"{cursor!r} is no cursor of this database's events")
    return int(number)
