"""Queues, their settings, policies and limits, permits, and the care of a whole installation."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fairlead import limits
from fairlead.backends.base import Op, PolicyRow, Value
from fairlead.errors import InvalidArgument, MessageLeased, PermitLost, QueueNotFound
from fairlead.operations import check
from fairlead.operations.call import Call, Core
from fairlead.permits import PermitStatus
from fairlead.values import Backoff, ChannelStats, Duration, Maintained, Moment, Policy, Settings
from fairlead.values import moment as to_moment

# Settings that are durations: the user's name and the column.
_DURATIONS = {
    "lease": "lease_us",
    "retention": "retention_us",
    "dead_retention": "dead_retention_us",
    "failure_retention": "failure_retention_us",
    "expires": "expires_us",
}
_NULLABLE = {"dead_retention", "expires"}


def policy_row(
    max_concurrency: int | None = None,
    rate: str | None = None,
    burst: int = 1,
    weight: int = 1,
    paused: bool = False,
    ordered: bool = False,
    max_size: int | None = None,
) -> PolicyRow:
    """Check a policy and make it what a backend takes."""
    count, period = check.rate(rate)
    return (
        check.optional_integer(max_concurrency, "max_concurrency", 1, limits.COUNT_MAX),
        count,
        period,
        check.integer(burst, "burst", 1, limits.COUNT_MAX),
        check.integer(weight, "weight", 1, limits.WEIGHT_MAX),
        int(check.boolean(paused, "paused")),
        int(check.boolean(ordered, "ordered")),
        check.optional_integer(max_size, "max_size", 1, limits.COUNT_MAX),
    )


def policy_value(row: PolicyRow) -> Policy:
    return Policy(
        row[0],
        check.rate_text(row[1], row[2]),
        row[3],
        row[4],
        bool(row[5]),
        bool(row[6]),
        row[7],
    )


def policy_row_of(policy: Policy) -> PolicyRow:
    return policy_row(
        policy.max_concurrency,
        policy.rate,
        policy.burst,
        policy.weight,
        policy.paused,
        policy.ordered,
        policy.max_size,
    )


_POLICY_KEYS = (
    "max_concurrency",
    "rate_count",
    "rate_period_us",
    "burst",
    "weight",
    "channel_paused",
    "ordered",
    "max_size",
)


def columns(settings: dict[str, Any]) -> dict[str, Value]:
    """The user's settings as a queue's columns."""
    out: dict[str, Value] = {}
    for key, value in settings.items():
        if key in _DURATIONS:
            if value is None and key not in _NULLABLE:
                raise InvalidArgument(f"{key} must be a duration in seconds, not None")
            out[_DURATIONS[key]] = check.optional_microseconds(value, key)
        elif key == "max_attempts":
            out[key] = check.integer(value, key, 0, limits.COUNT_MAX)
        elif key == "max_body":
            out[key] = check.integer(value, key, 0, 1024**3)
        elif key == "dead_letter":
            out[key] = check.optional_name(value, key)
        elif key in ("paused", "events"):
            out[key] = int(check.boolean(value, key))
        elif key == "meta":
            out[key] = check.meta(value)
        elif key == "backoff":
            out.update(_backoff_columns(value))
        elif key == "policy":
            if value is not None and not isinstance(value, Policy):
                raise InvalidArgument(f"policy must be a fairlead.Policy(…), not {value!r}")
            out.update(zip(_POLICY_KEYS, policy_row_of(value or Policy()), strict=True))
        else:
            raise InvalidArgument(f"a queue has no setting called {key!r}")
    return out


def _backoff_columns(value: Backoff | Duration | None) -> dict[str, Value]:
    if value is None:
        value = Backoff(0, 2, 0)
    elif not isinstance(value, Backoff):
        value = Backoff(value, 1, value)
    elif value.max_attempts is not None:
        raise InvalidArgument(
            "a queue's max_attempts is a setting of its own: create(max_attempts=…, backoff=…); "
            "Backoff(max_attempts=…) is for a task's retry="
        )
    return {
        "backoff_initial_us": check.microseconds(value.initial, "backoff.initial"),
        "backoff_factor": check.integer(value.factor, "backoff.factor", 1, 100),
        "backoff_max_us": check.microseconds(value.maximum, "backoff.maximum"),
    }


def settings_value(row: dict[str, Any]) -> Settings:
    def seconds(key: str) -> Any:
        return None if row[key] is None else row[key] / limits.SECOND

    backoff = None
    if row["backoff_initial_us"]:
        backoff = Backoff(
            seconds("backoff_initial_us"), row["backoff_factor"], seconds("backoff_max_us")
        )
    return Settings(
        name=row["name"],
        lease=seconds("lease_us"),
        max_attempts=row["max_attempts"],
        backoff=backoff,
        retention=seconds("retention_us"),
        dead_retention=seconds("dead_retention_us"),
        failure_retention=seconds("failure_retention_us"),
        dead_letter=row["dead_letter"],
        policy=policy_value(tuple(row[key] for key in _POLICY_KEYS)),
        max_body=row["max_body"],
        expires=seconds("expires_us"),
        events=bool(row["events"]),
        paused=bool(row["paused"]),
        max_concurrency=row["limit_concurrency"],
        rate=check.rate_text(row["limit_rate_count"], row["limit_rate_period_us"]),
        burst=row["limit_burst"],
        created_at=to_moment(row["created_at"]),
        meta=json.loads(row["meta"]) if row["meta"] is not None else {},
    )


def create(core: Core, queue: str, settings: dict[str, Any]) -> Call[bool]:
    cols = columns(settings)
    return Call(
        "create", lambda: core.backend.queue_create(queue, cols, core.now()), repeatable=True
    )


def set_(core: Core, queue: str, settings: dict[str, Any]) -> Call[None]:
    cols = columns(settings)
    return Call("set", lambda: core.backend.queue_set(queue, cols, core.now()), repeatable=True)


def set_limit(
    core: Core, queue: str, max_concurrency: int | None, rate: str | None, burst: int
) -> Call[None]:
    count, period = check.rate(rate)
    cols: dict[str, Value] = {
        "limit_concurrency": check.optional_integer(
            max_concurrency, "max_concurrency", 1, limits.COUNT_MAX
        ),
        "limit_rate_count": count,
        "limit_rate_period_us": period,
        "limit_burst": check.integer(burst, "burst", 1, limits.COUNT_MAX),
    }
    return Call(
        "set_limit", lambda: core.backend.queue_set(queue, cols, core.now()), repeatable=True
    )


def settings(core: Core, queue: str) -> Call[Settings]:
    def start() -> Op[Settings]:
        rows = yield from core.backend.queues(queue)
        if not rows:
            raise QueueNotFound(queue)
        return settings_value(rows[0])

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


def set_policy(core: Core, queue: str, channel: str, row: PolicyRow) -> Call[None]:
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
                row[0], row[1], row[2], row[3], None if row[7] is None else policy_value(row[4:])
            )
            for row in rows
        ]

    return Call("channels", start, repeatable=True)


def which(id: int | None, key: str | None) -> tuple[str, int | None]:
    """Exactly one of id= and key=: as words, and the id as a plain int."""
    if (id is None) == (key is None):
        raise InvalidArgument("give id= or key=, exactly one of them")
    if key is not None:
        return f"the message with key {check.name(key, 'key')!r}", None
    id = check.integer(id, "id", 0, 2**63 - 1)
    return f"message {id}", id


def _changed(what: str, op: Callable[[], Op[str]]) -> Op[bool]:
    outcome = yield from op()
    if outcome == "l":
        raise MessageLeased(what)
    return outcome == "c"


def cancel(core: Core, queue: str, id: int | None, key: str | None, force: bool) -> Call[bool]:
    what, id = which(id, key)
    return Call(
        "cancel",
        lambda: _changed(what, lambda: core.backend.cancel(queue, id, key, force, core.now())),
        after=core.settle(False),
    )


def reschedule(
    core: Core,
    queue: str,
    id: int | None,
    key: str | None,
    at: Moment | None,
    delay: Duration | None,
    priority: int | None,
) -> Call[bool]:
    what, id = which(id, key)
    if at is None and delay is None and priority is None:
        raise InvalidArgument("give at=, delay= or priority=: there is nothing to change")
    due_us, delay_us = check.due(delay, at)
    rank = check.optional_integer(priority, "priority", -limits.PRIORITY_MAX, limits.PRIORITY_MAX)
    wait = None if delay is None else delay_us

    def start() -> Op[bool]:
        return _changed(
            what,
            lambda: core.backend.reschedule(
                queue, id, key, due_us, wait, None if rank is None else -rank, core.now()
            ),
        )

    return Call("reschedule", start, repeatable=at is not None)


def promote(core: Core, queue: str, within: Duration, limit: int) -> Call[int]:
    within_us = check.microseconds(within, "within")
    check.integer(limit, "limit", 1, limits.COUNT_MAX)
    # Twice is harmless: what is ready is not scheduled any more.
    return Call(
        "promote",
        lambda: core.backend.promote(queue, within_us, limit, core.now()),
        repeatable=True,
    )


def redrive(
    core: Core, queue: str, limit: int | None, to: str | None, delay: Duration
) -> Call[int]:
    check.optional_name(to, "to")
    most = limits.COUNT_MAX if limit is None else check.integer(limit, "limit", 1, limits.COUNT_MAX)
    delay_us = check.microseconds(delay, "delay")
    return Call("redrive", lambda: core.backend.redrive(queue, to, most, delay_us, core.now()))


def move(core: Core, queue: str, to: str | None, limit: int) -> Call[int]:
    check.optional_name(to, "to")
    if to == queue:
        raise InvalidArgument(
            f"{queue!r} cannot be moved to itself: name another queue, or none, for each message "
            "to go back where it died"
        )
    check.integer(limit, "limit", 1, limits.COUNT_MAX)
    return Call(
        "move",
        lambda: core.backend.move(queue, to, limit, core.now()),
        after=core.settle(False),
    )


def discard(core: Core, queue: str, state: str, limit: int | None) -> Call[int]:
    code = {"done": "d", "dead": "x"}.get(state)
    if code is None:
        raise InvalidArgument('state must be "done" or "dead": only finished ones are discarded')
    most = limits.COUNT_MAX if limit is None else check.integer(limit, "limit", 1, limits.COUNT_MAX)
    return Call("discard", lambda: core.backend.discard(queue, code, most, core.now()))


def permit_create(core: Core, name: str, ttl: Duration) -> Call[int]:
    check.name(name, "permit", empty=True)
    ttl_us = check.microseconds(ttl, "ttl")
    if ttl_us == 0:
        raise InvalidArgument("ttl must be more than 0 seconds: this permit would be over at once")
    return Call(
        "permit",
        lambda: core.backend.permit_create(name, ttl_us, core.now()),
        repeatable=True,
    )


def permit_extend(core: Core, permit: int, ttl: Duration) -> Call[None]:
    ttl_us = check.microseconds(ttl, "ttl")

    def start() -> Op[None]:
        if not (yield from core.backend.permit_extend(permit, ttl_us, core.now())):
            raise PermitLost(permit)

    return Call("extend", start, repeatable=True)


def permit_close(core: Core, permit: int) -> Call[None]:
    return Call("close", lambda: core.backend.permit_close(permit, core.now()), repeatable=True)


def permits(core: Core) -> Call[list[PermitStatus]]:
    def start() -> Op[list[PermitStatus]]:
        rows = yield from core.backend.permits(core.now())
        return [
            PermitStatus(id, name, to_moment(created), to_moment(expires), leases)
            for id, name, created, expires, leases in rows
        ]

    return Call("permits", start, repeatable=True)


def maintain(core: Core, limit: int) -> Call[Maintained]:
    check.integer(limit, "limit", 1, limits.COUNT_MAX)

    def start() -> Op[Maintained]:
        return Maintained(*(yield from core.backend.maintain(limit, core.now())))

    return Call("maintain", start, repeatable=True)
