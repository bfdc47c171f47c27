"""What can be looked at (§9, §13.2, §15.3)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from fairlead import errors
from fairlead.backends import base
from fairlead.backends.base import Row, Rows
from fairlead.backends.memory.core import Core, op
from fairlead.backends.memory.state import FINISHED, UNFINISHED, Message, Queue, counters


class Insight(Core):
    @op
    def get(self, queue: str, id: int | None, key: str | None, now: int | None) -> Row | None:
        message = self._queue(queue).find(id, key)
        if message is None or message.past_expiry(self._now(now)):
            return None
        return message.peek_row

    @op
    def peek(
        self,
        queue: str,
        n: int,
        state: str | None,
        channel: str | None,
        after: int,
        now: int | None,
    ) -> Rows:
        now = self._now(now)
        found = self._queue(queue).select(
            UNFINISHED + FINISHED if state is None else state, channel
        )
        return [m.peek_row for m in found if m.id > after and not m.past_expiry(now)][:n]

    @op
    def stats(self, queue: str | None, now: int | None) -> Rows:
        now = self._now(now)
        queues = self._by_name() if queue is None else [self._queue(queue)]
        return [self._stats(q, now) for q in queues]

    def _stats(self, q: Queue, now: int) -> Row:
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
        by_state = (states[state] for state in "rslhdx")
        return (
            q.name,
            *by_state,
            *counters(q.totals),
            min(due, default=None),
            json.dumps(versions),
        )

    @op
    def history(self, queue: str, since: int, now: int | None) -> Rows:
        minutes = sorted(self._queue(queue).minutes.items())
        return [(at, *counters(counted)) for at, counted in minutes if at >= since]

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
        """What an ordered channel waits for: a lease, a retry on its way, one that goes first."""
        others = [m for m in q.select("lsr", message.channel) if m is not message]
        leased = [m.id for m in others if m.state == "l"]
        retried = [m.id for m in others if m.state == "s" and m.begun]
        first = [m.id for m in others if m.state == "r" and m.begun and not message.begun]
        return next(iter(leased + retried + first), None)

    @op
    def failures(self, queue: str, id: int | None, key: str | None, n: int) -> Rows:
        newest_first = reversed(self._queue(queue).failures)
        return [
            failure[:-1]
            for failure in newest_first
            if id in (None, failure.message_id) and key in (None, failure.key)
        ][:n]

    @op
    def trace(self, key: str) -> Rows:
        steps: Rows = []
        for q in self._by_name():
            for m in q.messages.values():
                if m.key == key:
                    steps.append((m.created_at, q.name, "message", m.id, m.state, ""))
            for f in q.failures:
                if f.key == key:
                    state = "x" if f.killed else "r"
                    steps.append((f.at, q.name, "error", f.message_id, state, f.error))
        return sorted(steps, key=lambda step: (step[0], step[3]))

    @op
    def outcomes(
        self, queue: str, ids: Sequence[int], keys: Sequence[str], now: int | None
    ) -> Rows:
        q, now = self._queue(queue), self._now(now)
        rows: Rows = []
        for holder in self._by_name():
            for m in holder.messages.values():
                if m.past_expiry(now) or not (m.id in ids or m.key in keys):
                    continue
                if holder is q:
                    rows.append(m.outcome_row)
                elif m.died_in is q and m.id in ids:
                    rows.append((*m.outcome_row[:2], "x", *m.outcome_row[3:]))
        return rows

    @op
    def events(
        self, after: str | None, queue: str | None, kinds: Sequence[str] | None, limit: int
    ) -> tuple[Rows, str]:
        if queue is not None:
            self._queue(queue)
        last = self._state.last_event
        if after is None:
            return [], str(last)
        if after and not (after.isascii() and after.isdigit()):
            raise errors.InvalidArgument(f"{after!r} is no cursor of this database's events")
        found = [
            event
            for event in self._state.events
            if event.cursor > int(after or 0)
            and queue in (None, event.queue)
            and (kinds is None or event.kind in kinds)
        ]
        given = found[:limit]
        cursor = last if len(given) == len(found) else given[-1].cursor
        return [(str(event.cursor), *event[1:]) for event in given], str(cursor)
