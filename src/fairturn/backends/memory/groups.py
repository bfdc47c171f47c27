"""Groups (§12)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from fairturn.backends import base
from fairturn.backends.memory.core import Core, op
from fairturn.backends.memory.state import UNFINISHED, Group, Message, Queue, Work
from fairturn.core import errors
from fairturn.core.rows import GroupRow, SendRow

OUTCOMES = {base.ENDED: "ended", base.CANCELLED: "cancelled", base.ABORTED: "aborted"}


class Groups(Core):
    @op
    def group_open(self, opening: base.Opening, now: int | None) -> bool:
        if self._group(opening.name) is not None:
            return False
        q, now = self._queue(opening.queue), self._now(now)
        for item in opening.works:
            if len(item.body) > q.columns["max_body"]:
                raise errors.BodyTooLarge(len(item.body), q.columns["max_body"])
        keys = Counter(item.key for item in opening.works if item.key is not None)
        holders = {key: q.find(None, key) for key in keys}
        taken = [k for k, m in holders.items() if keys[k] > 1 or (m and m.state != "x")]
        if taken:
            raise errors.DuplicateKey(q.name, taken)
        for holder in holders.values():
            if holder is not None:
                holder.key = None
        group = self._group_new(opening.name, q.name, opening.on_dead, now)
        group.end = self._work(q, opening.end, now)
        group.abort = self._work(q, opening.abort, now)
        return True

    @op
    def group_start(self, name: str, now: int | None) -> bool:
        group, now = self._group(name), self._now(now)
        if group is None or group.started_at is not None:
            return False
        group.state, group.started_at = base.RUNNING, now
        for _, message in self._members(group):
            if message.state == "h":
                message.schedule(message.due_at, now)
        if not self._unfinished(group):
            self._close(group, base.ENDED, now)
        return True

    @op
    def group_cancel(self, name: str, now: int | None) -> bool:
        group = self._group(name)
        if group is None:
            return False
        self._close(group, base.CANCELLED, self._now(now))
        return True

    @op
    def group_status(self, name: str, now: int | None) -> GroupRow | None:
        group = self._group(name)
        if group is None:
            closed = [group for group in self._state.groups if group.name == name]
            group = max(closed, key=lambda g: (g.closed_at, g.id), default=None)
        return group and self._group_row(group)

    @op
    def groups(self, limit: int, now: int | None) -> list[GroupRow]:
        opened = [group for group in self._state.groups if group.is_open]
        return [self._group_row(group) for group in sorted(opened, key=lambda g: g.name)[:limit]]

    @op
    def settle(self, limit: int, now: int | None) -> int:
        return 0 if self.closes_at_once else self.judge(self._now(now))

    def judge(self, now: int | None) -> int:
        """§12.5 and §12.7. ``now`` None: the times of the marks."""
        marks, self._state.marks = self._state.marks, {}
        closed = 0
        for group, at in marks.items():
            at = at if now is None else now
            if group.is_open and group.abort_for:
                self._close(group, base.ABORTED, at)
                closed += 1
            elif group.state == base.RUNNING and not self._unfinished(group):
                self._close(group, base.ENDED, at)
                closed += 1
        return closed

    # --- the steps ---------------------------------------------------------------------------
    def _group(self, name: str) -> Group | None:
        """The open group of this name."""
        return next((g for g in self._state.groups if g.is_open and g.name == name), None)

    def _unfinished(self, group: Group) -> bool:
        return any(message.state in UNFINISHED for _, message in self._members(group))

    def _group_new(self, name: str, queue: str, on_dead: str, now: int) -> Group:
        self._state.last_group += 1
        group = Group(self._state.last_group, name, queue, on_dead, now)
        self._state.groups.append(group)
        return group

    def _work(self, q: Queue, item: SendRow | None, now: int) -> Work | None:
        """Store an end or abort message: held, without a group, expiry or count (§12.2)."""
        if item is None:
            return None
        self._state.last_id += 1
        message = Message.of(item, now)
        message.id, message.state = self._state.last_id, "h"
        q.messages[message.id] = message
        return Work(message, item.due_us, item.delay_us)

    def _close(self, group: Group, state: str, now: int) -> None:
        """§12.5 to §12.7."""
        if state != base.ENDED:
            self._delete_members(group, now)
        group.state, group.closed_at = state, now
        self._state.marks.pop(group, None)
        told = {
            "name": group.name,
            "outcome": OUTCOMES[state],
            "sent": group.sent,
            "done": group.done,
            "dead": group.dead,
        }
        q = self._state.queues.get(group.queue)
        if q is not None:
            for work in (group.end, group.abort):
                # If it was purged, cancelled or replaced, it is no longer this object.
                if work is not None and q.messages.get(work.message.id) is work.message:
                    if work is (group.end if state == base.ENDED else group.abort):
                        self._release(q, work, told, now)
                    else:
                        del q.messages[work.message.id]
            self._tell(q, "closed", None, now, data=told)
        group.end = group.abort = None

    def _delete_members(self, group: Group, now: int) -> None:
        for q, message in list(self._members(group)):
            if message.state not in UNFINISHED:
                continue
            if q is not None:
                self._delete(q, [message], now)
                q.count(now, "cancelled")
            else:
                message.group = None  # its queue was purged; maintenance deletes it

    def _release(self, q: Queue, work: Work, told: dict[str, Any], now: int) -> None:
        """Send an end or abort message (§12.8)."""
        message = work.message
        headers: dict[str, Any] = json.loads(message.headers) if message.headers else {}
        message.headers = json.dumps({**headers, "fairturn.group": told}).encode()
        message.created_at = now
        message.schedule(now + work.delay_us if work.due_us is None else work.due_us, now)
        expires = q.columns["expires_us"]
        message.expires_at = None if expires is None else now + expires
        q.count(now, "sent")
        self._tell(q, "created", message, now, message.due_at)

    def _group_row(self, group: Group) -> GroupRow:
        g = group
        states = Counter(message.state for _, message in self._members(group))
        # fmt: off
        return GroupRow(
            g.name, g.queue, g.state, g.created_at, g.started_at, g.closed_at, g.sent, g.done,
            g.dead, states["h"], states["s"] + states["r"], states["l"],
        )
        # fmt: on
