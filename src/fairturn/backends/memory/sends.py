"""Sending to one queue, and batches (§3, §12.3, §14, §16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fairturn.backends import base
from fairturn.backends.keys import KEY_OUTCOMES
from fairturn.backends.memory.core import op
from fairturn.backends.memory.groups import Groups
from fairturn.backends.memory.queues import Queues
from fairturn.backends.memory.state import UNFINISHED, Message, Queue, Remembered
from fairturn.backends.remembered import ONCE
from fairturn.core import errors
from fairturn.core.rows import SendRow


class Sending(Queues, Groups):
    @op
    def send(self, queue: str, items: Sequence[SendRow], now: int | None) -> list[tuple[int, str]]:
        return self._send(queue, items, self._now(now))

    @op
    def batch(self, batch: base.Batch, now: int | None) -> list[list[base.Outcome]]:
        now = self._now(now)
        before = self.snapshot()
        done = False
        try:
            for queue, channel, policy in batch.sets:
                self._policy_set(queue, channel, policy)
            for queue, channel in batch.clears:
                self._policy_clear(queue, channel)
            sent = [self._send(queue, items, now) for queue, items in batch.sends]
            done = not any(o in (base.CONFLICT, base.FULL) for items in sent for _, o in items)
        finally:
            if not done:  # there is no database that could roll back
                self.restore(before)
        return sent

    def _send(self, queue: str, items: Sequence[SendRow], now: int) -> list[tuple[int, str]]:
        q = self._queue(queue)
        for item in items:
            if len(item.body) > q.columns["max_body"]:
                raise errors.BodyTooLarge(len(item.body), q.columns["max_body"])
        last = {item.key: i for i, item in enumerate(items) if item.key is not None}
        plan: list[tuple[Message | None, str]] = []  # who has the item's key; the outcome
        firsts: dict[str, int] = {}  # by once name, the item that is sent under it (§19.1)
        earlier: dict[int, int] = {}  # by item, the message of its once name
        for i, item in enumerate(items):
            holder = None if item.key is None else q.find(None, item.key)
            known = None if item.once is None else q.recall(ONCE, item.once, now)
            if known is not None:
                earlier[i] = known.id
                plan.append((None, base.DUPLICATE))
            elif item.once is not None and firsts.setdefault(item.once, i) != i:
                plan.append((None, base.DUPLICATE))
            elif item.key is not None and last[item.key] != i:
                plan.append((None, base.COLLAPSED))
            else:
                plan.append((holder, KEY_OUTCOMES[holder and holder.state][item.on_conflict]))
        if any(outcome == base.CONFLICT for _, outcome in plan):
            return [(holder.id if holder else 0, outcome) for holder, outcome in plan]
        new = Counter(
            item.channel
            for item, (_, outcome) in zip(items, plan, strict=True)
            if outcome == base.SENT
        )
        full = {channel for channel, count in new.items() if not self._fits(q, channel, count)}
        if full:
            return [
                (0, base.FULL if item.channel in full and outcome == base.SENT else outcome)
                for item, (_, outcome) in zip(items, plan, strict=True)
            ]
        ids = [
            self._send_one(q, item, holder, outcome, now)
            for item, (holder, outcome) in zip(items, plan, strict=True)
        ]
        q.count(now, "sent", sum(new.values()))
        for once, i in firsts.items():
            q.remembered[ONCE, once] = Remembered(now + (items[i].once_us or 0), ids[i])
        for i, item in enumerate(items):
            sent = last.get(item.key or "", firsts.get(item.once or "", i))
            ids[i] = earlier.get(i, ids[sent])
        return [(id, outcome) for id, (_, outcome) in zip(ids, plan, strict=True)]

    def _fits(self, q: Queue, channel: str, new: int) -> bool:
        bound = q.policy(channel).max_size
        return bound is None or len(q.select(UNFINISHED, channel)) + new <= bound

    def _send_one(
        self, q: Queue, item: SendRow, holder: Message | None, outcome: str, now: int
    ) -> int:
        if outcome == base.COLLAPSED:
            return 0
        if outcome in (base.DUPLICATE, base.REFUSED):
            return 0 if holder is None else holder.id
        expires = q.columns["expires_us"] if item.expires_us is None else item.expires_us
        message = Message.of(item, now)
        message.expires_at = None if expires is None else now + expires
        if holder is not None and outcome == base.REPLACED:
            message.id, message.deliveries = holder.id, holder.deliveries
            if holder.state != "d":
                message.created_at = holder.created_at
                self._mark(holder.group, now)  # it may have left that group
        else:
            self._state.last_id += 1
            message.id = self._state.last_id
            if holder is not None:  # a dead one
                holder.key = None
        due = message.due_at
        if item.max_wait_us is not None:
            due = min(due, message.created_at + item.max_wait_us)  # §14
        message.schedule(due, now)
        if item.group is not None:
            self._join(message, item.group, q, now)
        q.messages[message.id] = message
        self._tell(q, "created", message, now, due)
        return message.id

    def _join(self, message: Message, name: str, q: Queue, now: int) -> None:
        """Join the open group of this name, or a new one (§12.3)."""
        group = self._group(name) or self._group_new(name, q.name, "i", now)
        group.sent += 1
        message.group = group
        if group.started_at is None:
            message.state = "h"
