"""Where a consumer of PostgreSQL reads on."""

from __future__ import annotations

import time
from typing import Any

from fairlead.backends.postgres.memory import Hints

NOW = 1_900_000_000_000_000
HOUR = 3_600_000_000


def row(id: int, channel: str, due_at: int) -> tuple[Any, ...]:
    return (id, channel, b"", None, None, 0, None, 0, due_at)


def hints() -> Hints:
    """Of a consumer that has just received at NOW, past many dead entries."""
    found = Hints()
    found.took(time.monotonic(), True, True, NOW, 1_000_000, 1)
    return found


def test_it_reads_on_behind_what_was_given() -> None:
    found = hints()
    found.given([row(1, "c", NOW - 9), row(2, "c", NOW - 5)], [], {})
    assert found.near(None, 1, False) == [("c", 0, NOW - 5, 2)]


def test_a_promoted_message_does_not_lead_it_past_what_is_due() -> None:
    found = hints()
    found.given([row(1, "c", NOW + HOUR), row(2, "d", NOW - 5)], [], {})
    found.took(time.monotonic(), False, False, 0, 0, 1)  # a short way tells no time
    found.given([row(3, "c", NOW + HOUR)], [], {})
    [(_, _, due, id), other] = found.near(None, 9, False)
    assert id == 3
    assert NOW <= due < NOW + HOUR
    assert other == ("d", 0, NOW - 5, 2)
