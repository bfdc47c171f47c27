"""What a send with a key does, by the message that has the key (docs/semantics.md §3.2).

PostgreSQL, and MySQL where it sends one message, decide it in SQL; tests/conformance/test_keys.py
compares all of them with this table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from fairturn.backends.base import (
    COLLAPSED,
    CONFLICT,
    DUPLICATE,
    REFUSED,
    REPLACED,
    SENT,
    Outcome,
)
from fairturn.core.rows import SendRow

# By the state of the message that has the key (None: no message has it), then by on_conflict.
_WAITING = {"e": CONFLICT, "i": DUPLICATE, "r": REPLACED}
_FREE = {"e": SENT, "i": SENT, "r": SENT}
KEY_OUTCOMES: dict[str | None, dict[str, str]] = {
    None: _FREE,
    "x": _FREE,  # a dead message loses its key
    "h": _WAITING,
    "s": _WAITING,
    "r": _WAITING,
    "l": {"e": CONFLICT, "i": DUPLICATE, "r": REFUSED},
    "d": {"e": CONFLICT, "i": DUPLICATE, "r": REPLACED},  # a new run of the same message
}


class Holder(Protocol):
    """The message that has a key."""

    @property
    def id(self) -> int: ...
    @property
    def state(self) -> str: ...


H = TypeVar("H", bound=Holder)


@dataclass(slots=True)
class SendPlan(Generic[H]):
    """What a call does with each of its items, before anything is written."""

    outcomes: list[Outcome]  # with the id 0 where it is not known yet
    new: Sequence[int]  # the positions of the items that become new messages
    replaced: dict[int, H]  # by position
    dead: Sequence[int] = ()  # the ids of the messages that lose their keys

    @property
    def conflicts(self) -> bool:
        return any(outcome == CONFLICT for _, outcome in self.outcomes)


def plan(
    items: Sequence[SendRow], holders: Mapping[str, H], duplicates: Mapping[int, int]
) -> SendPlan[H]:
    """``holders`` by key. ``duplicates``: the positions of items whose once name is taken, with the
    id of the message that was sent under it."""
    last = {item.key: i for i, item in enumerate(items)}
    outcomes: list[Outcome] = []
    new: list[int] = []
    dead: list[int] = []
    replaced: dict[int, H] = {}
    for i, item in enumerate(items):
        holder = None if item.key is None else holders.get(item.key)
        outcome = KEY_OUTCOMES[None if holder is None else holder.state][item.on_conflict]
        if item.key is not None and last[item.key] != i:
            outcomes.append((0, COLLAPSED))
        elif i in duplicates:
            outcomes.append((duplicates[i], DUPLICATE))
        elif outcome == SENT:
            outcomes.append((0, SENT))
            new.append(i)
            if holder is not None:
                dead.append(holder.id)
        else:
            assert holder is not None
            outcomes.append((holder.id, outcome))
            if outcome == REPLACED:
                replaced[i] = holder
    return SendPlan(outcomes, new, replaced, dead)
