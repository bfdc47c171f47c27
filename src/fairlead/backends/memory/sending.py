"""Sending, one call or a batch of them (§3, §12.3, §14, §16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fairlead import errors
from fairlead.backends import base
from fairlead.backends.memory.core import op
from fairlead.backends.memory.groups import Groups
from fairlead.backends.memory.queues import Queues
from fairlead.backends.memory.remembering import Remembering
from fairlead.backends.memory.state import UNFINISHED, Message, Queue, Remembered
from fairlead.backends.remembering import ONCE
from fairlead.values import BODY_JSON


class Sending(Queues, Groups, Remembering):
    @op
    def send(
        self, queue: str, items: Sequence[base.SendRow], now: int | None
    ) -> list[tuple[int, str]]:
        return self._send(queue, items, self._now(now))

    @op
    def batch(
        self,
        sets: Sequence[tuple[str, str, base.PolicyRow]],
        clears: Sequence[tuple[str, str]],
        sends: Sequence[tuple[str, Sequence[base.SendRow]]],
        now: int | None,
    ) -> list[list[tuple[int, str]]]:
        now = self._now(now)
        before = self.snapshot()
        done = False
        try:
            for queue, channel, policy in sets:
                self._policy_set(queue, channel, policy)
            for queue, channel in clears:
                self._policy_clear(queue, channel)
            sent = [self._send(queue, items, now) for queue, items in sends]
            done = not any(o in (base.CONFLICT, base.FULL) for items in sent for _, o in items)
        finally:
            if not done:  # the caller's rollback does not reach this
                self.restore(before)
        return sent

    def _send(self, queue: str, items: Sequence[base.SendRow], now: int) -> list[tuple[int, str]]:
        q = self._queue(queue)
        for item in items:
            if len(item[1]) > q.columns["max_body"]:
                raise errors.BodyTooLarge(len(item[1]), q.columns["max_body"])
        last = {item[6]: i for i, item in enumerate(items) if item[6] is not None}
        plan: list[tuple[Message | None, str]] = []  # who holds the item's key, and what follows
        firsts: dict[str, int] = {}  # of each name the item that is sent under it (§19.1)
        earlier: dict[int, int] = {}  # the message that was sent under an item's name before
        for i, item in enumerate(items):
            holder = None if item[6] is None else q.find(None, item[6])
            known = None if item[16] is None else q.recall(ONCE, item[16], now)
            if known is not None:
                earlier[i] = known.id
                plan.append((None, base.DUPLICATE))
            elif item[16] is not None and firsts.setdefault(item[16], i) != i:
                plan.append((None, base.DUPLICATE))
            elif last.get(item[6], i) != i:
                plan.append((None, base.COLLAPSED))
            elif holder is None or holder.state == "x":
                plan.append((holder, base.SENT))
            elif item[7] == "e":
                plan.append((holder, base.CONFLICT))
            elif item[7] == "i":
                plan.append((holder, base.DUPLICATE))
            else:
                plan.append((holder, base.REFUSED if holder.state == "l" else base.REPLACED))
        if any(outcome == base.CONFLICT for _, outcome in plan):
            return [(holder.id if holder else 0, outcome) for holder, outcome in plan]
        new = Counter(
            item[0] for item, (_, outcome) in zip(items, plan, strict=True) if outcome == base.SENT
        )
        full = {channel for channel, count in new.items() if not self._fits(q, channel, count)}
        if full:
            return [
                (0, base.FULL if item[0] in full and outcome == base.SENT else outcome)
                for item, (_, outcome) in zip(items, plan, strict=True)
            ]
        ids = [
            self._send_one(q, item, holder, outcome, now)
            for item, (holder, outcome) in zip(items, plan, strict=True)
        ]
        q.count(now, "sent", sum(new.values()))
        for once, i in firsts.items():
            q.remembered[ONCE, once] = Remembered(now + items[i][17], ids[i])
        for i, item in enumerate(items):
            ids[i] = earlier.get(i, ids[last.get(item[6], firsts.get(item[16], i))])
        return [(id, outcome) for id, (_, outcome) in zip(ids, plan, strict=True)]

    def _fits(self, q: Queue, channel: str, new: int) -> bool:
        bound = q.policy(channel).max_size
        return bound is None or len(q.select(UNFINISHED, channel)) + new <= bound

    def _send_one(
        self, q: Queue, item: base.SendRow, holder: Message | None, outcome: str, now: int
    ) -> int:
        if outcome == base.COLLAPSED:
            return 0
        if outcome in (base.DUPLICATE, base.REFUSED):
            return 0 if holder is None else holder.id
        (channel, body, is_json, rank, due, delay, key, _) = item[:8]
        (version, type_, headers, lease_us, max_attempts, expires, max_wait, group) = item[8:16]
        if expires is None:
            expires = q.columns["expires_us"]
        message = Message(
            id=0,
            channel=channel,
            body=body,
            headers=headers,
            key=key,
            version=version,
            type=type_,
            priority=-rank,
            due_at=0,
            created_at=now,
            json=BODY_JSON if is_json else 0,
            state="",
            lease_us=lease_us,
            max_attempts=max_attempts,
            expires_at=None if expires is None else now + expires,
        )
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
        due = now + delay if due is None else due
        if max_wait is not None:
            due = min(due, message.created_at + max_wait)  # §14
        message.schedule(due, now)
        if group is not None:
            self._join(message, group, q, now)
        q.messages[message.id] = message
        self._tell(q, "created", message, now, due)
        return message.id

    def _join(self, message: Message, name: str, q: Queue, now: int) -> None:
        """§12.3."""
        group = self._group(name) or self._group_new(name, q.name, "i", now)
        group.sent += 1
        message.group = group
        if group.started_at is None:
            message.state = "h"
