"""A message to send, its options, and the id that a send returns.

Each field of ``Send`` but the body is a line of a table (kinds.py). CONTRIBUTING.md has the recipe
for a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from fairturn.core import limits
from fairturn.core.kinds import (
    LINE,
    Choice,
    Count,
    Headers,
    Kind,
    Line,
    Name,
    Priority,
    Seconds,
    Time,
    table,
)
from fairturn.core.values import Duration, Moment

T = TypeVar("T")
OnConflict = Literal["error", "ignore", "replace"]


@dataclass(frozen=True, slots=True)
class SendOption(Line):
    """One line of the table of send options."""

    scheduled: bool = False  # may the messages of a schedule have it?
    end_message: bool = True  # may the end and the abort message of a group have it?
    cli: bool = True  # is it an option of `fairturn send`?


def _option(
    default: T,
    kind: Kind,
    help: str,
    column: str = "",
    *,
    scheduled: bool = False,
    end_message: bool = True,
    cli: bool = True,
) -> T:
    line = SendOption(
        default, kind, help, column, scheduled=scheduled, end_message=end_message, cli=cli
    )
    return field(default=default, metadata={LINE: line})


@dataclass(slots=True)
class Send:
    """One message for ``send_many``; the arguments are those of ``send``."""

    body: Any
    channel: str = _option(
        "", Name(empty=True), "usually a tenant; channels take turns", scheduled=True
    )
    priority: int = _option(
        0,
        Priority(-limits.PRIORITY_MAX, limits.PRIORITY_MAX),
        "higher runs first within its channel",
        "rank",
        scheduled=True,
    )
    delay: Duration | None = _option(None, Seconds(), "how much later it is due")
    at: Moment | None = _option(None, Time(), "when it is due", "due")
    key: str | None = _option(None, Name(), "unique in the queue while the message exists")
    on_conflict: OnConflict = _option(
        "error", Choice("error", "ignore", "replace"), "what a send does if its key is taken"
    )
    version: int = _option(
        0, Count(0, limits.VERSION_MAX), "for workers that receive one version", scheduled=True
    )
    type: str | None = _option(None, Name(), "for workers that receive some types", scheduled=True)
    headers: Mapping[str, Any] | None = _option(
        None, Headers(), "a dict of JSON beside the body", scheduled=True
    )
    lease: Duration | None = _option(
        None, Seconds(), "its own lease, instead of the queue's", scheduled=True
    )
    max_attempts: int | None = _option(
        None, Count(0), "its own number, instead of the queue's", scheduled=True
    )
    expires: Duration | None = _option(
        None,
        Seconds(),
        "it is deleted this long after it was sent",
        scheduled=True,
        end_message=False,
    )
    group: str | None = _option(
        None, Name(), "the name of the group it belongs to", end_message=False, cli=False
    )
    debounce: Duration | None = _option(
        None, Seconds(), "each send under its key puts it off by this", "delay", end_message=False
    )
    max_wait: Duration | None = _option(
        None, Seconds(), "but no further than this after the first send", end_message=False
    )
    once: str | None = _option(
        None,
        Name(),
        "a name under which no other message is sent for a while",
        end_message=False,
        cli=False,
    )
    once_for: Duration = _option(
        300, Seconds(), "for how long", "once", end_message=False, cli=False
    )


SEND_OPTIONS = table(Send, SendOption)
SCHEDULED = tuple(name for name, option in SEND_OPTIONS.items() if option.scheduled)


class Sent(int):
    """The id of a sent message, with the outcome of the send.

    ``outcome`` is ``"sent"``, ``"duplicate"`` (the id is that of the existing message; with
    ``once`` that of the first, which may be gone), ``"replaced"``, ``"refused"`` (the message to
    replace is leased) or ``"collapsed"`` (a later item of the call has the same key, and this id).
    """

    outcome: str = "sent"

    @property
    def id(self) -> int:
        return int(self)

    @property
    def created(self) -> bool:
        """True if a new message exists because of this send."""
        return self.outcome == "sent"

    @classmethod
    def of(cls, id: int, outcome: str) -> Sent:
        sent = cls(id)
        if outcome != "sent":
            sent.outcome = outcome
        return sent
