"""Maintenance (§10)."""

from __future__ import annotations

from collections import Counter

from fairturn.backends.memory.core import op
from fairturn.backends.memory.receives import Receiving
from fairturn.backends.memory.state import UNFINISHED, Queue
from fairturn.core import limits


class Care(Receiving):
    @op
    def maintain(self, limit: int, now: int | None) -> tuple[int, int, int, int, bool]:
        now = self._now(now)
        done: Counter[str] = Counter()
        more = False
        for q in self._by_name():
            kinds = self._maintain_queue(q, limit, now)
            more = more or max(kinds.values()) >= limit
            done += kinds
        for lane in self._state.purged:
            more = more or len(lane) >= limit
            done["purged"] += len(lane[:limit])
            for message in lane[:limit]:
                if message.state in UNFINISHED:
                    self._mark(message.group, now)
            del lane[:limit]
        more = more or any(n >= limit for n in self._state.forgotten)
        self._state.forgotten = [n - limit for n in self._state.forgotten if n > limit]
        self._state.purged = [lane for lane in self._state.purged if lane]
        more = self._maintain_groups(limit, now) >= limit or more
        more = self._maintain_events(limit, now) >= limit or more
        for permit in list(self._state.permits):
            if not self._alive(permit, now) and not self._leases(permit):
                del self._state.permits[permit]
        purged = done["done"] + done["dead"] + done["failures"] + done["purged"]
        return done["promoted"], done["recovered"], done["killed"], purged, more

    def _maintain_queue(self, q: Queue, limit: int, now: int) -> Counter[str]:
        kinds = self._sweep(q, limit, now)
        done_kept = q.columns["retention_us"] or q.columns["result_retention_us"]
        dead_kept = q.columns["dead_retention_us"]
        for kind, state, kept in ("done", "d", done_kept), ("dead", "x", dead_kept):
            if kept is not None:
                finished = self._finished(q, state)
                old = [m for m in finished if (m.finished_at or 0) + kept <= now][:limit]
                for message in old:
                    del q.messages[message.id]
                kinds[kind] = len(old)
        failures, q.failures = q.failures, []
        for failure in failures:
            if (
                failure.row.at + q.columns["failure_retention_us"] > now
                or kinds["failures"] >= limit
            ):
                q.failures.append(failure)
            else:
                kinds["failures"] += 1
        kept = now - limits.HISTORY_RETENTION
        q.minutes = {at: counted for at, counted in q.minutes.items() if at > kept}
        q.tats = {channel: tat for channel, tat in q.tats.items() if tat > now}
        return kinds

    def _maintain_groups(self, limit: int, now: int) -> int:
        """Delete groups that closed long ago (§12.12)."""
        closed = [g for g in self._state.groups if g.closed_at is not None]
        old = [g for g in closed if (g.closed_at or 0) + limits.GROUP_RETENTION <= now][:limit]
        for group in old:
            for _, message in self._members(group):
                message.group = None
            self._state.groups.remove(group)
        return len(old)

    def _maintain_events(self, limit: int, now: int) -> int:
        """Delete old events (§15.4)."""
        events = self._state.events
        old = set([e for e in events if e.at + limits.EVENT_RETENTION <= now][:limit])
        self._state.events = [event for event in events if event not in old]
        return len(old)
