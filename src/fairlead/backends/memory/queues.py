"""Queues and policies (§11, §4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.backends import base
from fairlead.backends.base import Rows
from fairlead.backends.memory.core import Core, op
from fairlead.backends.memory.state import UNFINISHED, Policy, Queue


class Queues(Core):
    @op
    def queue_create(self, name: str, columns: Mapping[str, base.Value], now: int | None) -> bool:
        if name in self._state.queues:
            return False
        self._state.queues[name] = Queue(name, self._now(now), {**base.QUEUE_DEFAULTS, **columns})
        return True

    @op
    def queue_set(self, name: str, columns: Mapping[str, base.Value], now: int | None) -> None:
        self._queue(name).columns.update(columns)

    @op
    def queues(self, name: str | None) -> list[dict[str, Any]]:
        return [
            {"name": queue.name, "created_at": queue.created_at, **queue.columns}
            for queue in self._by_name()
            if name in (None, queue.name)
        ]

    @op
    def queue_purge(self, name: str, reset: bool, now: int | None) -> None:
        queue = self._queue(name)
        self._to_sweep(queue)
        queue.messages.clear()
        queue.remembered.clear()
        if reset:
            queue.totals.clear()
            queue.minutes.clear()
            queue.failures.clear()

    @op
    def queue_drop(self, name: str, now: int | None) -> bool:
        queue = self._state.queues.pop(name, None)
        if queue is None:
            return False
        self._to_sweep(queue)
        for other in self._by_name():
            for message in other.messages.values():
                if message.died_in is queue:
                    message.died_in = None
        return True

    def _to_sweep(self, queue: Queue) -> None:
        """Out of sight at once; members leave their groups when they are swept (§12.13)."""
        self._state.purged.append([message for _, message in sorted(queue.messages.items())])
        self._state.forgotten.append(len(queue.remembered))

    # --- policies ----------------------------------------------------------------------------
    @op
    def policy_set(self, queue: str, channel: str, policy: base.PolicyRow, now: int | None) -> None:
        self._policy_set(queue, channel, policy)

    def _policy_set(self, queue: str, channel: str, policy: base.PolicyRow) -> None:
        self._queue(queue).policies[channel] = Policy(*policy)

    @op
    def policy_clear(self, queue: str, channel: str, now: int | None) -> bool:
        return self._policy_clear(queue, channel)

    def _policy_clear(self, queue: str, channel: str) -> bool:
        return self._queue(queue).policies.pop(channel, None) is not None

    @op
    def channels(self, queue: str, limit: int, now: int | None) -> Rows:
        q = self._queue(queue)
        names = {message.channel for message in q.select(UNFINISHED)} | set(q.policies)
        return [
            (
                channel,
                *(len(q.select(state, channel)) for state in "rsl"),
                *q.policies.get(channel, (None,) * len(base.POLICY_COLUMNS)),
            )
            for channel in sorted(names)[:limit]
        ]
