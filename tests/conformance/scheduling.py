"""What the tests of schedules share: a door on one, and how its messages tell their ticks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.conformance.door import Door

HOUR, DAY = 3600, 86_400
# The clock starts on 17 March 2030, a Sunday, at 17:46:40 UTC.
HOURLY, NIGHTLY = "0 * * * *", "0 3 * * *"
FIRST_HOUR = 13 * 60 + 20  # seconds from the start to 18:00


class ScheduleDoor:
    """Looks like a sync Schedule."""

    def __init__(self, door: Door, name: str) -> None:
        self.door = door
        self.inner = door.inner.schedule(name)
        self.name = name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.door.do(self.inner, name, args, kwargs)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def told(message: Any) -> Any:
    """What a message learns about its schedule."""
    return message.headers["fairturn.schedule"]


def ticks(messages: Any) -> list[str]:
    """The ticks of messages, without date and offset."""
    return [told(message)["tick"][11:19] for message in messages]
