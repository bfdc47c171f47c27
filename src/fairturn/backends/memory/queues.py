"""Queues (§11), policies (§4.5), and what a queue remembers for a while (§19)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairturn.backends.memory.core import Core, op
from fairturn.backends.memory.state import UNFINISHED, Queue, Remembered
from fairturn.backends.remembered import VALUE
from fairturn.core.kinds import Value
from fairturn.core.rows import ChannelRow
from fairturn.core.settings import QUEUE_DEFAULTS, PolicyRow


class Queues(Core):
    @op
    def queue_create(self, name: str, columns: Mapping[str, Value], now: int | None) -> bool:
        if name in self._state.queues:
            return False
        self._state.queues[name] = Queue(name, self._now(now), {**QUEUE_DEFAULTS, **columns})
        return True

    @op
    def queue_set(self, name: str, columns: Mapping[str, Value], now: int | None) -> None:
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
        """Maintenance deletes the messages later; until then members count in their groups
        (§12.13)."""
        self._state.purged.append([message for _, message in sorted(queue.messages.items())])
        self._state.forgotten.append(len(queue.remembered))

    # --- policies ----------------------------------------------------------------------------
    @op
    def policy_set(self, queue: str, channel: str, policy: PolicyRow, now: int | None) -> None:
        self._policy_set(queue, channel, policy)

    def _policy_set(self, queue: str, channel: str, policy: PolicyRow) -> None:
        self._queue(queue).policies[channel] = policy

    @op
    def policy_clear(self, queue: str, channel: str, now: int | None) -> bool:
        return self._policy_clear(queue, channel)

    def _policy_clear(self, queue: str, channel: str) -> bool:
        return self._queue(queue).policies.pop(channel, None) is not None

    @op
    def channels(self, queue: str, limit: int, now: int | None) -> list[ChannelRow]:
        q = self._queue(queue)
        names = {message.channel for message in q.select(UNFINISHED)} | set(q.policies)
        return [
            ChannelRow(
                channel,
                ready=len(q.select("r", channel)),
                scheduled=len(q.select("s", channel)),
                leased=len(q.select("l", channel)),
                policy=q.policies.get(channel),
            )
            for channel in sorted(names)[:limit]
        ]

    # --- what it remembers -------------------------------------------------------------------
    @op
    def remember(self, queue: str, name: str, value: bytes, keep_us: int, now: int | None) -> None:
        kept = Remembered(self._now(now) + keep_us, value=value)
        self._queue(queue).remembered[VALUE, name] = kept

    @op
    def recall(self, queue: str, name: str, now: int | None) -> bytes | None:
        found = self._queue(queue).recall(VALUE, name, self._now(now))
        return None if found is None else found.value

    def _forget(self, q: Queue, limit: int, now: int) -> int:
        """Delete what has expired; how many."""
        expired = [key for key, kept in q.remembered.items() if kept.expires_at <= now][:limit]
        for key in expired:
            del q.remembered[key]
        return len(expired)
