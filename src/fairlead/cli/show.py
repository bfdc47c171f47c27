"""Values as JSON documents and as words for a person."""

from __future__ import annotations

import base64
import difflib
import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.text import Text

from fairlead.operations.insight import duration_text
from fairlead.values import (
    COUNTERS,
    Backoff,
    ChannelStats,
    Event,
    Failure,
    GroupStatus,
    Message,
    Outcome,
    Policy,
    Settings,
    Stats,
    Step,
)

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
    """JSON as it is; bytes under a name that says so."""
    if isinstance(value, bytes):
        return {f"{name}_base64": base64.b64encode(value).decode()}
    return {name: value}


def message_facts(message: Message, stored: bool = False) -> dict[str, Any]:
    """A message as a JSON document; ``stored`` adds what only peek and get know."""
    facts: dict[str, Any] = {
        "id": message.id,
        "delivery": message.deliveries,
        "queue": message.queue,
        "channel": message.channel,
        **payload("body", message.body),
        "headers": message.headers,
        "key": message.key,
        "version": message.version,
        "type": message.type,
        "priority": message.priority,
        "due_at": iso(message.due_at),
        "created_at": iso(message.created_at),
        "attempts": message.attempts,
        **payload("memo", message.memo),
        "lease_until": iso(message.lease_until),
        "recovered": message.recovered,
        "group": message.group,
        "origin": message.origin,
        "first_delivered_at": iso(message.first_delivered_at),
    }
    if stored:
        facts |= {
            "state": message.state,
            **payload("result", message.result),
            "error": message.error,
            "finished_at": iso(message.finished_at),
            "expires_at": iso(message.expires_at),
            "max_attempts": message.max_attempts,
            "progress": message.progressed,
            "note": message.note,
        }
    return facts


def progress_facts(message: Message) -> dict[str, Any]:
    names = ("queue", "id", "key", "channel", "group", "note")
    return {name: getattr(message, name) for name in names} | {"progress": message.progressed}


def settings_facts(settings: Settings) -> dict[str, Any]:
    facts: dict[str, Any] = {**asdict(settings), "created_at": iso(settings.created_at)}
    if facts["backoff"] is not None:  # what else a Backoff has is for the retries of tasks
        names = ("initial", "factor", "maximum")
        facts["backoff"] = {name: facts["backoff"][name] for name in names}
    return facts


def stats_facts(stats: Stats) -> dict[str, Any]:
    facts: dict[str, Any] = {name: getattr(stats, name) for name in (*GAUGES, *COUNTERS)}
    facts["oldest_ready"] = iso(stats.oldest_ready)
    facts["versions"] = {str(version): count for version, count in stats.versions.items()}
    return facts


def channel_facts(channel: ChannelStats) -> dict[str, Any]:
    return asdict(channel)


def failure_facts(failure: Failure) -> dict[str, Any]:
    return {**asdict(failure), "at": iso(failure.at)}


def step_facts(step: Step) -> dict[str, Any]:
    return {**asdict(step), "at": iso(step.at)}


def outcome_facts(outcome: Outcome) -> dict[str, Any]:
    return {
        "id": outcome.id,
        "state": outcome.state,
        **payload("result", outcome.result),
        "error": outcome.error,
        "progress": outcome.progress,
        "note": outcome.note,
    }


def event_facts(event: Event) -> dict[str, Any]:
    """All but the last of which may be None; ``cursor`` is where to go on after it."""
    facts = {name: getattr(event, name) for name in ("queue", "id", "key", "channel", "delay")}
    return {
        "cursor": event.cursor,
        "at": iso(event.at),
        "kind": event.kind,
        **facts,
        "data": dict(event.data),
    }


def group_facts(group: GroupStatus) -> dict[str, Any]:
    facts = asdict(group)
    times = {name: iso(facts[name]) for name in ("created_at", "started_at", "closed_at")}
    return {"group": facts.pop("name"), **facts, **times}


# --- as words -----------------------------------------------------------------------------------
def span(seconds: float | None, none: str = "for ever") -> str:
    """A length of time as a person says it."""
    if seconds is None:
        return none
    if seconds == int(seconds) and seconds < 120:
        return f"{int(seconds)} s"
    return duration_text(round(seconds * 1_000_000))


def clock(at: datetime | None) -> str:
    """A moment in local time, to the second."""
    return "" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def from_now(at: datetime | None, now: datetime) -> str:
    """A moment seen from now: ``in 5 min``, ``12 s ago``."""
    if at is None:
        return ""
    seconds = (at - now).total_seconds()
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def age(at: datetime | None, now: datetime) -> str:
    return "" if at is None else span(max((now - at).total_seconds(), 0))


def state(name: str) -> Text:
    return Text(name, style=STATE_STYLES.get(name, ""))


def count(number: int, name: str) -> Text:
    """A count in its state's colour; nothing is dim."""
    return Text(f"{number:,}", style=STATE_STYLES.get(name, "") if number else "dim")


def many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def progress(done: float | None, note: str | None) -> str:
    """How far a worker says it is: ``40 % reading page 7``."""
    far = "" if done is None else f"{done * 100:.3g} %"
    return " ".join(part for part in (far, note) if part)


def unfinished(group: GroupStatus) -> str:
    """Where the members of an open group are."""
    members = ((group.held, "held"), (group.waiting, "waiting"), (group.leased, "leased"))
    counted = ", ".join(f"{number:,} {what}" for number, what in members if number)
    if group.state == "open":
        return f"not started, {counted or 'no members'}"
    return counted or "no unfinished members"


def near(name: str, names: Iterable[str]) -> str | None:
    """What may have been meant."""
    found = difflib.get_close_matches(name, list(names), 1)
    return found[0] if found else None


def preview(value: Any, limit: int = 60) -> str:
    """The start of a body on one line."""
    if isinstance(value, bytes):
        text = f"{len(value):,} bytes: {value[:limit]!r}"
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def full(value: Any) -> str:
    """A whole body as it can be piped on: JSON, or the repr of bytes."""
    return repr(value) if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False)


def backoff(value: Backoff | None) -> str:
    if value is None:
        return "none: a failed message is ready again at once"
    first, last = span(float(value.initial)), span(float(value.maximum))  # pyright: ignore[reportArgumentType]
    return first if value.factor == 1 else f"{first}, times {value.factor}, at most {last}"


def policy(value: Policy | None, none: str = "") -> str:
    """A policy in one line: only what it limits."""
    if value is None:
        return none
    parts: list[str] = []
    if value.paused:
        parts.append("paused")
    if value.max_concurrency is not None:
        parts.append(f"at most {value.max_concurrency} at once")
    if value.rate is not None:
        parts.append(value.rate + (f" burst {value.burst}" if value.burst > 1 else ""))
    if value.weight != 1:
        parts.append(f"weight {value.weight}")
    if value.ordered:
        parts.append("ordered")
    if value.max_size is not None:
        parts.append(f"at most {value.max_size:,} messages")
    return ", ".join(parts) or "no limit"
