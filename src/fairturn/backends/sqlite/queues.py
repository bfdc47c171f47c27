"""Queues and policies (§11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairturn.backends.sqlite.common import COLUMNS, SETTINGS, SQL, find
from fairturn.backends.steps import BEGIN, BEGIN_READ, Op
from fairturn.core.errors import InvalidArgument, QueueNotFound
from fairturn.core.kinds import Value
from fairturn.core.rows import ChannelRow
from fairturn.core.settings import QUEUE_DEFAULTS, PolicyRow


class Queues:
    def queue_create(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[bool]:
        values = _settings(QUEUE_DEFAULTS, columns)
        yield BEGIN
        if (yield SQL.queue, (name,)):
            return False
        [(lane,)] = yield SQL.new_lane, ()
        yield SQL.create_queue, (name, lane, now, *values)
        yield from _set_meta(name, columns)
        return True

    def queue_set(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[None]:
        _settings(QUEUE_DEFAULTS, columns)  # refuse an unknown setting before any statement
        yield BEGIN
        rows = yield SQL.queue, (name,)
        if not rows:
            raise QueueNotFound(name)
        [row] = rows
        before = dict(zip(COLUMNS, row, strict=True))
        yield SQL.set_queue, (name, *_settings(before, columns))
        yield from _set_meta(name, columns)

    def queues(self, name: str | None) -> Op[list[dict[str, Any]]]:
        if name is None:
            rows = yield SQL.queues, ()
        else:
            rows = yield SQL.queue, (name,)
        return [dict(zip(COLUMNS, row, strict=True)) for row in rows]

    def queue_purge(self, name: str, reset: bool, now: int | None) -> Op[None]:
        yield BEGIN
        queue = yield from find(name, now)
        [(lane,)] = yield SQL.new_lane, ()
        yield SQL.move_queue, (queue.id, lane)
        yield SQL.retire_lane, (queue.lane, queue.now)
        if reset:
            yield SQL.drop_history, (queue.id,)
            yield SQL.drop_failures, (queue.id,)

    def queue_drop(self, name: str, now: int | None) -> Op[bool]:
        yield BEGIN
        try:
            queue = yield from find(name, now)
        except QueueNotFound:
            return False
        yield SQL.retire_lane, (queue.lane, queue.now)
        yield SQL.clear_meta, (name,)
        for statement in (
            SQL.drop_policies,
            SQL.drop_gates,
            SQL.drop_history,
            SQL.drop_failures,
            SQL.drop_queue,
        ):
            yield statement, (queue.id,)
        return True

    def policy_set(self, queue: str, channel: str, policy: PolicyRow, now: int | None) -> Op[None]:
        yield BEGIN
        found = yield from find(queue, now)
        yield SQL.set_policy, (found.id, channel, *policy)

    def policy_clear(self, queue: str, channel: str, now: int | None) -> Op[bool]:
        yield BEGIN
        found = yield from find(queue, now)
        rows = yield SQL.clear_policy, (found.id, channel)
        return bool(rows)

    def channels(self, queue: str, limit: int, now: int | None) -> Op[list[ChannelRow]]:
        yield BEGIN_READ
        found = yield from find(queue, now)
        rows = yield SQL.channels, (found.id, found.lane, limit)
        return [ChannelRow.of(row) for row in rows]


def _set_meta(name: str, columns: Mapping[str, Value]) -> Op[None]:
    if columns.get("meta") is not None:
        yield SQL.set_meta, (name, columns["meta"])
    elif "meta" in columns:
        yield SQL.clear_meta, (name,)


def _settings(before: Mapping[str, Value], columns: Mapping[str, Value]) -> tuple[Value, ...]:
    """All settings in the order of the statements, with the named ones changed."""
    unknown = columns.keys() - QUEUE_DEFAULTS.keys()
    if unknown:
        raise InvalidArgument(f"a queue has no setting {', '.join(sorted(unknown))}")
    return tuple(columns.get(name, before[name]) for name in SETTINGS)
