"""The due times of a schedule: by cron, at an interval, or once. No database, no clock.

A tick is a due time in microseconds since the epoch. ``after(us)`` returns the first tick after a
moment; everything else follows from it, so that all workers compute the same ticks.

Local time jumps twice a year. As with Debian's cron, an expression whose minute and hour do not
begin with ``*`` means times of the day: a time that the jump leaves out is due at the end of the
gap, a time that comes twice is due the first time. All other expressions follow real time:
``0 * * * *`` is every real hour. The library cronsim does the parsing and has this rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import import_module
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from fairturn.core import limits
from fairturn.core.errors import InvalidArgument
from fairturn.core.values import EPOCH, moment

NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EXPRESSION_CHARS = 255
_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields (minute, hour, day of month, month, day of week), or a name such as @daily."""

    expression: str
    timezone: str = "UTC"

    def after(self, us: int) -> int | None:
        try:
            for found in self._ticks(us):
                tick = (found.astimezone(UTC) - EPOCH) // _US
                # In the repeated hour cronsim begins with the first of the two, which is over.
                if tick > us:
                    return tick if tick <= limits.TIME_MAX else None
        except OverflowError:  # beyond the year 9999
            return None
        return None

    def _ticks(self, us: int) -> Iterator[datetime]:
        cronsim: Any = _cronsim()
        fields = NAMED.get(self.expression.lower(), self.expression)
        start = moment(us).astimezone(zone(self.timezone))
        try:
            return cronsim.CronSim(fields, start)
        except cronsim.CronSimError as error:
            raise InvalidArgument(
                f"{self.expression!r} is not a cron expression ({str(error).lower()}): write five "
                'fields, minute hour day month weekday, such as "30 3 * * MON-FRI", or @daily'
            ) from None


@dataclass(frozen=True, slots=True)
class Every:
    """At an interval, counted from the anchor: delays do not add up."""

    every_us: int
    anchor_us: int

    def after(self, us: int) -> int | None:
        passed = max(us - self.anchor_us, 0) // self.every_us
        tick = self.anchor_us + (passed + 1) * self.every_us
        return tick if tick <= limits.TIME_MAX else None


@dataclass(frozen=True, slots=True)
class Once:
    """Once, at a given time."""

    at_us: int

    def after(self, us: int) -> int | None:
        return self.at_us if self.at_us > us else None


Spec = Cron | Every | Once


class Due(NamedTuple):
    """The ticks whose messages are sent now, and the next tick (None: never again)."""

    ticks: list[int]
    next_at: int | None


def _cronsim() -> Any:
    try:
        return import_module("cronsim")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "cron expressions need cronsim, which is not installed: pip install 'cronsim>=2.8'. "
            "Intervals (every=) and single times (at=) do not need it",
            name="cronsim",
        ) from None


def zone(name: Any) -> tzinfo:
    """Return a time zone by its name."""
    if name == "UTC":
        return UTC  # cronsim is faster with it
    try:
        if isinstance(name, str) and name:
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        pass  # no such zone, no zones at all, a path: the error below says so
    raise InvalidArgument(
        f"no time zone is called {name!r} here: use a name such as Europe/Rome or UTC. If no name "
        "works, this system has no time zone data: pip install tzdata"
    )


def cron(expression: Any, timezone: Any) -> Cron:
    """Check an expression and its time zone."""
    if not isinstance(expression, str) or len(expression) > _EXPRESSION_CHARS:
        raise InvalidArgument(
            f"cron must be a string of at most {_EXPRESSION_CHARS} characters, not {expression!r}"
        )
    expression = " ".join(expression.split())
    zone(timezone)
    fields = len(expression.split(" "))
    if expression.startswith("@") and expression.lower() not in NAMED:
        raise InvalidArgument(f"cron={expression!r} is not known: use {', '.join(NAMED)}")
    if fields == 6:
        raise InvalidArgument(
            f"cron={expression!r} has six fields, but there is no field for seconds. Use every= "
            "for intervals below a minute"
        )
    found = Cron(expression, timezone)
    if found.after(0) is None:
        raise InvalidArgument(f"cron={expression!r} is never due: the calendar has no such day")
    return found


# --- what is due ---------------------------------------------------------------------------------


def latest(spec: Spec, tick: int, until: int) -> int:
    """Return the last tick up to ``until``. ``tick`` is an earlier one.

    By binary search: a million ticks may have been missed, and each step of cronsim takes 20 µs.
    """
    low, high = tick, until
    while low < high:
        middle = (low + high) // 2
        found = spec.after(middle)
        if found is not None and found <= until:
            low = found
        else:
            high = middle
    return low


def grace(spec: Spec) -> int:
    """Return how late a tick may be without being missed."""
    most = limits.TICK_GRACE
    return min(most, spec.every_us) if isinstance(spec, Every) else most


def due(spec: Spec, missed: str, next_at: int, now: int, most: int) -> Due:
    """Return what is due at ``now`` of a schedule whose next tick ``next_at`` has come.

    ``missed`` is 's' skip, 'o' once or 'b' backfill. A backfill returns at most ``most`` ticks; the
    rest is due immediately after.
    """
    following = spec.after(next_at)
    if missed == "b":
        ticks = [next_at]
        while following is not None and following <= now and len(ticks) < most:
            ticks.append(following)
            following = spec.after(following)
        return Due(ticks, following)
    tick = next_at
    if following is not None and following <= now:
        tick = latest(spec, following, now)
        following = spec.after(now)
    late = missed == "s" and now - tick > grace(spec)
    return Due([] if late else [tick], following)


def first(spec: Spec, now: int) -> int | None:
    """Return the first tick of a new schedule. The time of ``at`` may be in the past: missed."""
    return spec.at_us if isinstance(spec, Once) else spec.after(now)


# --- as text -------------------------------------------------------------------------------------


def encode(spec: Spec) -> str:
    match spec:
        case Cron():
            return json.dumps({"cron": spec.expression, "timezone": spec.timezone})
        case Every():
            return json.dumps({"every_us": spec.every_us, "anchor_us": spec.anchor_us})
        case Once():
            return json.dumps({"at_us": spec.at_us})


def decode(text: str) -> Spec:
    found: dict[str, Any] = json.loads(text)
    if "cron" in found:
        return Cron(found["cron"], found["timezone"])
    if "every_us" in found:
        return Every(found["every_us"], found["anchor_us"])
    if "at_us" in found:
        return Once(found["at_us"])
    raise InvalidArgument(f"a newer Fairturn has set this schedule ({text}): upgrade this one")


def same(one: Spec, other: Spec) -> bool:
    """Are the times the same? The anchor of an interval does not count: users do not give it."""
    if isinstance(one, Every) and isinstance(other, Every):
        return one.every_us == other.every_us
    return one == other


def local(spec: Spec, us: int) -> datetime:
    """Return a tick in the time zone of the schedule."""
    return moment(us).astimezone(zone(spec.timezone) if isinstance(spec, Cron) else UTC)
