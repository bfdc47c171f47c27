"""The settings of a queue and the policy of a channel, as tables.

Each field below is a line of a table (kinds.py). CONTRIBUTING.md has the recipe for a new one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar

from fairturn.core import check, limits
from fairturn.core.errors import InvalidArgument
from fairturn.core.kinds import (
    LINE,
    Bytes,
    Count,
    Flag,
    Kind,
    Line,
    Name,
    Rate,
    Seconds,
    Value,
    table,
)
from fairturn.core.values import EPOCH, Duration, moment

T = TypeVar("T")
By = Literal["create", "pause", "set_limit"]
DAY = 86_400.0


# --- policies -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class PolicyField(Line):
    """One line of the table of policies."""

    phrase: str = ""  # how it is shown where it is not the default


def _policy(default: T, kind: Kind, phrase: str, help: str) -> T:
    line = PolicyField(default, kind, help, phrase=phrase)
    return field(default=default, metadata={LINE: line})


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits of one channel. ``None`` means no limit."""

    max_concurrency: int | None = _policy(
        None, Count(1), "at most {} at once", "leases at the same time"
    )
    rate: str | None = _policy(None, Rate(), "{}", "deliveries, evenly spaced")
    burst: int = _policy(
        1, Count(1), "burst {}", "how many deliveries of the rate may come together"
    )
    weight: int = _policy(1, Count(1, limits.WEIGHT_MAX), "weight {}", "messages per turn")
    paused: bool = _policy(False, Flag(), "paused", "no message is delivered")
    ordered: bool = _policy(
        False,
        Flag(),
        "ordered",
        "no message overtakes one that is leased or waits for its retry",
    )
    max_size: int | None = _policy(
        None,
        Count(1),
        "at most {:,} messages",
        "how many unfinished messages it may hold; a send beyond that raises ChannelFull",
    )


POLICY_FIELDS = table(Policy, PolicyField)


class PolicyRow(NamedTuple):
    """A policy as it is stored: the columns of its lines, in their order."""

    max_concurrency: int | None
    rate_count: int | None
    rate_period_us: int | None
    burst: int
    weight: int
    paused: int
    ordered: int
    max_size: int | None


_NO_POLICY = [None] * len(PolicyRow._fields)


def optional_policy(columns: list[Any]) -> PolicyRow | None:
    """Return a policy from its columns; None if they are NULL: the channel has no own policy."""
    return None if columns == _NO_POLICY else PolicyRow._make(columns)


def policy_row(policy: Policy) -> PolicyRow:
    """Check a policy and return the row that a database stores."""
    row: list[Any] = []
    for name, line in POLICY_FIELDS.items():
        row += line.encode(getattr(policy, name))
    return PolicyRow._make(row)


def policy_value(row: PolicyRow) -> Policy:
    """Return the Policy of a row: the inverse of ``policy_row``."""
    columns = row._asdict()
    return Policy(**{name: line.decode(columns) for name, line in POLICY_FIELDS.items()})


# --- queues -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failed message waits: ``initial * factor ** (attempts - 1)``, at most ``maximum``.

    Seconds; ``factor`` is a whole number so that every database computes the same delay. A task's
    ``retry`` also uses ``max_attempts`` (None: the queue's) and ``jitter``: the random part of each
    delay, so that messages that failed together are not retried together.
    """

    initial: Duration = 1
    factor: int = 2
    maximum: Duration = 3600
    max_attempts: int | None = None
    jitter: float = 0.2


class BackoffKind(Kind):
    """A Backoff, or seconds: three columns. An initial wait of 0 means that there is none."""

    endings = ("_initial_us", "_factor", "_max_us")
    none = (0, 2, 0)

    def encode(self, value: Any, name: str) -> tuple[Value, ...]:
        if not isinstance(value, Backoff):
            value = Backoff(value, 1, value)
        elif value.max_attempts is not None:
            raise InvalidArgument(
                "a queue's max_attempts is a setting of its own: "
                "create(max_attempts=…, backoff=…); Backoff(max_attempts=…) is for a task's retry="
            )
        return (
            check.microseconds(value.initial, "backoff.initial"),
            check.integer(value.factor, "backoff.factor", 1, 100),
            check.microseconds(value.maximum, "backoff.maximum"),
        )

    def decode(self, *stored: Any) -> Any:
        initial, factor, maximum = stored
        return (
            Backoff(initial / limits.SECOND, factor, maximum / limits.SECOND) if initial else None
        )


class PolicyKind(Kind):
    """The policy of the channels that have none of their own: the columns of a policy."""

    def columns(self, name: str) -> tuple[str, ...]:
        # A queue has a `paused` of its own.
        own = {"paused": "channel_paused"}
        return tuple(own.get(column, column) for column in PolicyRow._fields)

    def encode(self, value: Any, name: str) -> tuple[Value, ...]:
        if value is not None and not isinstance(value, Policy):
            raise InvalidArgument(f"{name} must be a fairturn.Policy(…), not {value!r}")
        return policy_row(value or Policy())

    def decode(self, *stored: Any) -> Any:
        return policy_value(PolicyRow._make(stored))


class Meta(Kind):
    """A dict of the user, stored as JSON text."""

    def checker(self, name: str) -> Any:
        return check.meta

    def decode(self, *stored: Any) -> Any:
        (text,) = stored
        return {} if text is None else json.loads(text)


@dataclass(frozen=True, slots=True)
class Setting(Line):
    """One line of the table of queue settings."""

    label: str = ""  # what `fairturn queue show` calls it
    by: By = "create"  # the method that sets it


def _setting(
    default: T,
    kind: Kind,
    label: str,
    help: str,
    means: Mapping[Any, str] | None = None,
    *,
    by: By = "create",
    column: str = "",
) -> T:
    line = Setting(default, kind, help, column, means=means or {}, label=label, by=by)
    return field(default=default, metadata={LINE: line})


@dataclass(frozen=True, slots=True)
class Settings:
    """A queue's settings; durations in seconds."""

    name: str
    lease: float = _setting(30.0, Seconds(), "lease", "how long a worker has for one message")
    max_attempts: int = _setting(
        5, Count(0), "max attempts", "attempts before a message is dead", {0: "no end"}
    )
    backoff: Backoff | None = _setting(
        None,
        BackoffKind(),
        "backoff",
        "the wait after a failure",
        {None: "none: a failed message is ready again immediately"},
    )
    retention: float = _setting(
        0.0, Seconds(), "keeps done messages", "how long done messages are kept", {0: "not at all"}
    )
    result_retention: float = _setting(
        DAY,
        Seconds(),
        "keeps results",
        "how long complete() keeps a message with its result, if retention is 0",
    )
    dead_retention: float | None = _setting(
        None,
        Seconds(),
        "keeps dead messages",
        "how long dead messages are kept",
        {None: "for ever"},
    )
    failure_retention: float = _setting(
        7 * DAY, Seconds(), "keeps the failure log", "how long the failure log is kept"
    )
    dead_letter: str | None = _setting(
        None,
        Name(),
        "dead-letter queue",
        "the queue to which dead messages move",
        {None: "none: they stay here"},
    )
    # MySQL needs a max_allowed_packet above twice a body.
    max_body: int = _setting(16 * 1024**2, Bytes(0, 1024**3), "largest body", "the largest body")
    expires: float | None = _setting(
        None,
        Seconds(),
        "messages expire",
        "messages are deleted this long after they were sent",
        {None: "never"},
    )
    paused: bool = _setting(False, Flag(), "", "no message is delivered", by="pause")
    events: bool = _setting(False, Flag(), "writes events", "write events of this queue")
    max_concurrency: int | None = _setting(
        None,
        Count(1),
        "",
        "leases at the same time, over all channels",
        by="set_limit",
        column="limit_concurrency",
    )
    rate: str | None = _setting(
        None, Rate(), "", "deliveries, over all channels", by="set_limit", column="limit_rate"
    )
    burst: int = _setting(
        1,
        Count(1),
        "",
        "how many deliveries of the rate may come together",
        by="set_limit",
        column="limit_burst",
    )
    policy: Policy = _setting(
        Policy(),
        PolicyKind(),
        "policy of its channels",
        "the policy of the channels without one of their own",
    )
    created_at: datetime = EPOCH
    meta: dict[str, Any] = field(
        default_factory=dict[str, Any],
        hash=False,
        metadata={
            LINE: Setting(
                {}, Meta(), "a dict of your own, at most 64 KiB as JSON; Fairturn does not use it"
            )
        },
    )


QUEUE_SETTINGS = table(Settings, Setting)
# Every column of a queue that holds a setting, with its default.
QUEUE_DEFAULTS: dict[str, Value] = {
    column: value
    for line in QUEUE_SETTINGS.values()
    for column, value in zip(line.columns, line.encode(line.default), strict=True)
}
# The columns of the default policy of its channels, in the order of PolicyRow.
DEFAULT_POLICY = QUEUE_SETTINGS["policy"].columns


def columns(given: Mapping[str, Any], *by: By) -> dict[str, Value]:
    """Return settings as columns of a queue; raise if a method other than ``by`` sets one."""
    found: dict[str, Value] = {}
    for name, value in given.items():
        line = QUEUE_SETTINGS.get(name)
        if line is None or line.by not in by:
            raise InvalidArgument(f"a queue has no setting called {name!r}")
        found.update(zip(line.columns, line.encode(value), strict=True))
    return found


def settings_value(row: Mapping[str, Any]) -> Settings:
    """Return the settings of a queue from its columns."""
    found = {name: line.decode(row) for name, line in QUEUE_SETTINGS.items()}
    return Settings(name=row["name"], created_at=moment(row["created_at"]), **found)


@dataclass(frozen=True, slots=True)
class ChannelStats:
    """One channel that has messages or a policy of its own."""

    channel: str
    ready: int
    scheduled: int
    leased: int
    policy: Policy | None
