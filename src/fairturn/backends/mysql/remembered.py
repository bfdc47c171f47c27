"""What a queue remembers for a while, on MySQL (docs/semantics.md, 19)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from fairturn.backends.mysql.procedures import Caller
from fairturn.backends.steps import Op
from fairturn.core.rows import SendRow

NAMES = 1000  # of one CALL


class Remembering(Caller):
    def remember(
        self, queue: str, name: str, value: bytes, keep_us: int, now: int | None
    ) -> Op[None]:
        params = (queue.encode(), name.encode(), value, keep_us, now)
        yield self.call("remember_row", 5), params

    def recall(self, queue: str, name: str, now: int | None) -> Op[bytes | None]:
        rows = yield self.call("recall", 3), (queue.encode(), name.encode(), now)
        return next((value for (value,) in rows), None)


@dataclass(slots=True)
class Names:
    """The once names of a send of many messages."""

    firsts: dict[str, int] = field(default_factory=dict[str, int])  # by name, the first item
    held: dict[str, int] = field(default_factory=dict[str, int])  # by name, an earlier message

    @classmethod
    def of(cls, items: Sequence[SendRow]) -> Names:
        names = cls()
        for i, item in enumerate(items):
            if item.once is not None:
                names.firsts.setdefault(item.once, i)
        return names

    def duplicates(self, items: Sequence[SendRow]) -> dict[int, int]:
        """The items that are not sent, by position; their ids are found later."""
        return {
            i: 0
            for i, item in enumerate(items)
            if item.once is not None and (item.once in self.held or self.firsts[item.once] != i)
        }

    def id(self, i: int, name: str | None, outcomes: Sequence[tuple[int, str]]) -> int:
        """The id in the outcome of an item, when all sent items have ids."""
        if name is not None and name in self.held:
            return self.held[name]
        id, _ = outcomes[i if name is None else self.firsts[name]]
        return id


def take(prefix: str, names: Names, items: Sequence[SendRow], lane: int, now: int) -> Op[None]:
    """Take the free names, in one order: so two calls never wait for each other."""
    firsts = ((name.encode(), items[i].once_us or 0) for name, i in names.firsts.items())
    wanted = sorted((name, now + keep_us) for name, keep_us in firsts)
    for start in range(0, len(wanted), NAMES):
        some = json.dumps([(name.hex(), at) for name, at in wanted[start : start + NAMES]])
        [(held,)] = yield f"CALL {prefix}once_take(%s, %s, %s)", (lane, some, now)
        for name, id in json.loads(held):
            names.held[bytes.fromhex(name).decode()] = id


def give(
    prefix: str, names: Names, lane: int, outcomes: Sequence[tuple[int, str]] | None
) -> Op[None]:
    """Store the ids of the messages under the taken names; None: nothing was sent."""
    ours: list[tuple[str, int]] = []
    for name, i in names.firsts.items():
        if name not in names.held:
            id, _ = (0, None) if outcomes is None else outcomes[i]
            ours.append((name.encode().hex(), id))
    for start in range(0, len(ours), NAMES):
        some = json.dumps(ours[start : start + NAMES])
        yield f"CALL {prefix}once_sent(%s, %s)", (lane, some)
