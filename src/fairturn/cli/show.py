"""Values as JSON documents, and as text for a person."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fairturn.core.kinds import Bytes, Flag, Seconds
from fairturn.core.message import Message
from fairturn.core.settings import (
    POLICY_FIELDS,
    Backoff,
    BackoffKind,
    Policy,
    PolicyKind,
    Setting,
    Settings,
)
from fairturn.core.values import (
    COUNTERS,
    Duration,
    Event,
    GroupStatus,
    Outcome,
    Stats,
    duration_text,
)
from fairturn.doctor.examination import many as many

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

GAUGES = ("ready", "scheduled", "leased", "held", "done", "dead")
STATE_STYLES = {
    "ready": "green",
    "scheduled": "cyan",
    "leased": "yellow",
    "held": "magenta",
    "done": "dim",
    "dead": "red",
}
HOW = {"ended": "ended", "cancelled": "was cancelled", "aborted": "was aborted by a death"}


# --- as JSON ------------------------------------------------------------------------------------
def iso(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def payload(name: str, value: Any) -> dict[str, Any]:
    """Return JSON under its name, and bytes under a name that says how they are encoded."""
    if isinstance(value, bytes):
        return {f"{name}_base64": base64.b64encode(value).decode()}
    return {name: value}


def _facts(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return named values as JSON can hold them: times as text, bytes in base64."""
    found: dict[str, Any] = {}
    for name, value in items:
        found |= payload(name, iso(value) if isinstance(value, datetime) else value)
    return found


def facts(value: DataclassInstance) -> dict[str, Any]:
    """Return a dataclass as a JSON document."""
    return _facts(asdict(value).items())


def _picked(value: object, names: str) -> dict[str, Any]:
    """Return the named attributes as a JSON document. ``new=old`` renames one."""
    pairs = (name.partition("=") for name in names.split())
    return _facts((name, getattr(value, old or name)) for name, _, old in pairs)


def message_facts(message: Message, stored: bool = False) -> dict[str, Any]:
    """Return a message as a JSON document; ``stored`` adds what only peek and get know."""
    names = (
        "id token deliveries queue channel body headers key version type priority due_at "
        "created_at attempts memo lease_until recovered group origin first_delivered_at"
    )
    if stored:
        names += " state result error finished_at expires_at max_attempts progress=progressed note"
    return _picked(message, names)


def progress_facts(message: Message) -> dict[str, Any]:
    return _picked(message, "queue id key channel group note progress=progressed")


def settings_facts(settings: Settings) -> dict[str, Any]:
    found = facts(settings)
    if found["backoff"] is not None:  # the rest of a Backoff is for the retries of tasks
        names = ("initial", "factor", "maximum")
        found["backoff"] = {name: found["backoff"][name] for name in names}
    return found


def stats_facts(stats: Stats) -> dict[str, Any]:
    found = _picked(stats, " ".join((*GAUGES, *COUNTERS, "oldest_ready")))
    return {**found, "versions": {str(version): n for version, n in stats.versions.items()}}


def outcome_facts(outcome: Outcome) -> dict[str, Any]:
    return _picked(outcome, "id state result error progress note")


def event_facts(event: Event) -> dict[str, Any]:
    """Return an event as a JSON document; reading can go on after its ``cursor``."""
    found = _picked(event, "cursor at kind queue id key channel delay")
    return {**found, "data": dict(event.data)}


def group_facts(group: GroupStatus) -> dict[str, Any]:
    found = facts(group)
    return {"group": found.pop("name"), **found}


# --- as text ------------------------------------------------------------------------------------
def span(seconds: float | None) -> str:
    """Return a duration as text: ``30 s``, ``5 min 0 s``."""
    if seconds is None:
        return ""
    if seconds == int(seconds) and seconds < 120:
        return f"{int(seconds)} s"
    return duration_text(round(seconds * 1_000_000))


def clock(at: datetime | None) -> str:
    """Return a time in the local time zone, to the second."""
    return "" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def from_now(at: datetime | None, now: datetime) -> str:
    """Return a time relative to now: ``in 5 min``, ``12 s ago``."""
    if at is None:
        return ""
    seconds = (at - now).total_seconds()
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def age(at: datetime | None, now: datetime) -> str:
    return "" if at is None else span(max((now - at).total_seconds(), 0))


def state(name: str) -> Text:
    return Text(name, style=STATE_STYLES.get(name, ""))


def count(number: int, name: str) -> Text:
    """Return a count in the colour of its state; zero is dim."""
    return Text(f"{number:,}", style=STATE_STYLES.get(name, "") if number else "dim")


def progress(done: float | None, note: str | None) -> str:
    """Return the progress that a worker reported: ``40 % reading page 7``."""
    far = "" if done is None else f"{done * 100:.3g} %"
    return " ".join(part for part in (far, note) if part)


def unfinished(group: GroupStatus) -> str:
    """Return how many members of an open group are in which state."""
    members = ((group.held, "held"), (group.waiting, "waiting"), (group.leased, "leased"))
    counted = ", ".join(f"{number:,} {what}" for number, what in members if number)
    if group.state == "open":
        return f"not started, {counted or 'no members'}"
    return counted or "no unfinished members"


def preview(value: Any, limit: int = 60) -> str:
    """Return the start of a body on one line."""
    if isinstance(value, bytes):
        text = f"{len(value):,} bytes: {value[:limit]!r}"
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def full(value: Any) -> str:
    """Return a whole body: JSON, or the repr of bytes."""
    return repr(value) if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False)


def _seconds(value: Duration) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def backoff(value: Backoff) -> str:
    first, last = span(_seconds(value.initial)), span(_seconds(value.maximum))
    return first if value.factor == 1 else f"{first}, times {value.factor}, at most {last}"


def setting(line: Setting, value: Any) -> str:
    if value in line.means:
        return line.means[value]
    match line.kind:
        case Seconds():
            return span(value)
        case Bytes():
            return f"{value:,} bytes"
        case Flag():
            return "yes" if value else "no"
        case BackoffKind():
            return backoff(value)
        case PolicyKind():
            return policy(value)
        case _:
            return str(value)


def policy(value: Policy | None) -> str:
    """Return the limits of a policy in one line. A pause comes first: it overrides the others."""
    if value is None:
        return ""
    order = sorted(POLICY_FIELDS, key=lambda name: name != "paused")
    parts = {
        name: field.phrase.format(getattr(value, name))
        for name, field in ((name, POLICY_FIELDS[name]) for name in order)
        if getattr(value, name) != field.default
    }
    burst = parts.pop("burst", None)
    if burst is not None and "rate" in parts:
        parts["rate"] += f" {burst}"
    return ", ".join(parts.values()) or "no limit"
