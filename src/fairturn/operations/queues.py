"""Queues (semantics §10, §11) and the policies of their channels (§4.5, §9.4)."""

from __future__ import annotations

from typing import Any

from fairturn.backends.steps import Op
from fairturn.core import check, limits
from fairturn.core.errors import QueueNotFound
from fairturn.core.kinds import Value
from fairturn.core.settings import (
    ChannelStats,
    Policy,
    Settings,
    columns,
    policy_row,
    policy_value,
    settings_value,
)
from fairturn.core.values import Maintained
from fairturn.operations.call import Call, Core


def create(core: Core, queue: str, **settings: Any) -> Call[bool]:
    """A setting that is None gets its default."""
    said = {name: value for name, value in settings.items() if value is not None}
    new = columns(said, "create")
    return Call(
        "create", lambda: core.backend.queue_create(queue, new, core.now()), repeatable=True
    )


def set_(core: Core, queue: str, **settings: Any) -> Call[None]:
    return _set("set", core, queue, columns(settings, "create", "pause"))


def set_limit(core: Core, queue: str, **limit: Any) -> Call[None]:
    return _set("set_limit", core, queue, columns(limit, "set_limit"))


def _set(name: str, core: Core, queue: str, new: dict[str, Value]) -> Call[None]:
    return Call(name, lambda: core.backend.queue_set(queue, new, core.now()), repeatable=True)


def settings(core: Core, queue: str) -> Call[Settings]:
    def start() -> Op[Settings]:
        rows = yield from core.backend.queues(queue)
        if not rows:
            raise QueueNotFound(queue)
        return settings_value(rows[0])

    return Call("settings", start, repeatable=True)


def all_settings(core: Core) -> Call[list[Settings]]:
    def start() -> Op[list[Settings]]:
        rows = yield from core.backend.queues(None)
        return [settings_value(row) for row in rows]

    return Call("settings", start, repeatable=True)


def queues(core: Core) -> Call[list[str]]:
    def start() -> Op[list[str]]:
        rows = yield from core.backend.queues(None)
        return [row["name"] for row in rows]

    return Call("queues", start, repeatable=True)


def purge(core: Core, queue: str, reset: bool) -> Call[None]:
    return Call("purge", lambda: core.backend.queue_purge(queue, reset, core.now()))


def drop(core: Core, queue: str) -> Call[bool]:
    return Call("drop", lambda: core.backend.queue_drop(queue, core.now()))


def maintain(core: Core, limit: int) -> Call[Maintained]:
    check.integer(limit, "limit", 1, limits.COUNT_MAX)

    def start() -> Op[Maintained]:
        return Maintained(*(yield from core.backend.maintain(limit, core.now())))

    return Call("maintain", start, repeatable=True)


# --- channels -------------------------------------------------------------------------------------
def set_policy(core: Core, queue: str, channel: str, policy: Policy) -> Call[None]:
    row = policy_row(policy)
    return Call(
        "set_policy",
        lambda: core.backend.policy_set(queue, channel, row, core.now()),
        repeatable=True,
    )


def clear_policy(core: Core, queue: str, channel: str) -> Call[bool]:
    return Call("clear_policy", lambda: core.backend.policy_clear(queue, channel, core.now()))


def channels(core: Core, queue: str, limit: int) -> Call[list[ChannelStats]]:
    check.integer(limit, "limit", 1, limits.COUNT_MAX)

    def start() -> Op[list[ChannelStats]]:
        rows = yield from core.backend.channels(queue, limit, core.now())
        return [
            ChannelStats(
                row.channel,
                row.ready,
                row.scheduled,
                row.leased,
                None if row.policy is None else policy_value(row.policy),
            )
            for row in rows
        ]

    return Call("channels", start, repeatable=True)
