"""Groups (§12): works that wait for the last member."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from fairlead import errors
from fairlead.backends import base
from fairlead.backends.base import Row, Rows
from fairlead.backends.memory.core import Core, op
from fairlead.backends.memory.state import UNFINISHED, Group, Message, Queue, Work
from fairlead.values import BODY_JSON

OUTCOMES = {base.ENDED: "ended", base.CANCELLED: "cancelled", base.ABORTED: "aborted"}


class Groups(Core):
    @op
    def group_open(
        self,
        name: str,
        queue: str,
        on_dead: str,
        end: base.SendRow | None,
        abort: base.SendRow | None,
        now: int | None,
    ) -> bool:
        if self._group(name) is not None:
            return False
        q, now = self._queue(queue), self._now(now)
        works = [item for item in (end, abort) if item is not None]
        for item in works:
            if len(item[1]) > q.columns["max_body"]:
                raise errors.BodyTooLarge(len(item[1]), q.columns["max_body"])
        keys = Counter(item[6] for item in works if item[6] is not None)
        holders = {key: q.find(None, key) for key in keys}
        taken = [k for k, m in holders.items() if keys[k] > 1 or (m and m.state != "x")]
        if taken:
            raise errors.DuplicateKey(queue, taken)
        for holder in holders.values():
            if holder is not None:
                holder.key = None
        group = self._group_new(name, queue, on_dead, now)
        group.end = self._work(q, end, now)
        group.abort = self._work(q, abort, now)
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
    def group_status(self, name: str, now: int | None) -> Row | None:
        group = self._group(name)
        if group is None:
            closed = [group for group in self._state.groups if group.name == name]
            group = max(closed, key=lambda g: (g.closed_at, g.id), default=None)
        return group and self._group_row(group)

    @op
    def groups(self, limit: int, now: int | None) -> Rows:
        opened = [group for group in self._state.groups if group.is_open]
        return [self._group_row(group) for group in sorted(opened, key=lambda g: g.name)[:limit]]

    @op
    def settle(self, limit: int, now: int | None) -> int:
        return 0 if self.closes_at_once else self.judge(self._now(now))

    def judge(self, now: int | None) -> int:
        """Rules 5 and 7; ``now`` None: as of the marks."""
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
        """The open one."""
        return next((g for g in self._state.groups if g.is_open and g.name == name), None)

    def _unfinished(self, group: Group) -> bool:
        return any(message.state in UNFINISHED for _, message in self._members(group))

    def _group_new(self, name: str, queue: str, on_dead: str, now: int) -> Group:
        self._state.last_group += 1
        group = Group(self._state.last_group, name, queue, on_dead, now)
        self._state.groups.append(group)
        return group

    def _work(self, q: Queue, item: base.SendRow | None, now: int) -> Work | None:
        """A held message without a group, an expiry or a count (§12.2)."""
        if item is None:
            return None
        (channel, body, is_json, rank, due, delay, key, _) = item[:8]
        (version, type_, headers, lease_us, max_attempts) = item[8:13]
        self._state.last_id += 1
        message = Message(
            id=self._state.last_id,
            channel=channel,
            body=body,
            headers=headers,
            key=key,
            version=version,
            type=type_,
            priority=-rank,
            due_at=now + delay if due is None else due,
            created_at=now,
            json=BODY_JSON if is_json else 0,
            state="h",
            lease_us=lease_us,
            max_attempts=max_attempts,
            expires_at=None,
        )
        q.messages[message.id] = message
        return Work(message, due, delay)

    def _close(self, group: Group, state: str, now: int) -> None:
        """Rules 5 to 7."""
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
                # Purged, cancelled by hand or replaced, it is no longer this very message.
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
                message.group = None  # its row is out of sight; maintenance sweeps it

    def _release(self, q: Queue, work: Work, told: dict[str, Any], now: int) -> None:
        """Rule 8."""
        message = work.message
        headers: dict[str, Any] = json.loads(message.headers) if message.headers else {}
        message.headers = json.dumps({**headers, "fairlead.group": told}).encode()
        message.created_at = now
        message.schedule(now + work.delay_us if work.due_us is None else work.due_us, now)
        expires = q.columns["expires_us"]
        message.expires_at = None if expires is None else now + expires
        q.count(now, "sent")
        self._tell(q, "created", message, now, message.due_at)

    def _group_row(self, group: Group) -> Row:
        """base.GROUP_ROW."""
        g = group
        states = Counter(message.state for _, message in self._members(group))
        # fmt: off
        return (
            g.name, g.queue, g.state, g.created_at, g.started_at, g.closed_at, g.sent, g.done,
            g.dead, states["h"], states["s"] + states["r"], states["l"],
        )
        # fmt: on
