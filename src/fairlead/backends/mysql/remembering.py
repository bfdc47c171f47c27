"""What a queue remembers for a while, on MySQL (docs/semantics.md, 19)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from fairlead.backends.base import Op, SendRow
from fairlead.backends.mysql.calling import Caller

NAMES = 1000  # of one CALL


class Remembering(Caller):
    def remember(
        self, queue: str, name: str, value: bytes, keep_us: int, now: int | None
    ) -> Op[None]:
        params = (queue.encode(), name.encode(), value, keep_us, now)
        yield self.call("remember_row", 5), params

    def recall(self, queue: str, name: str, now: int | None) -> Op[bytes | None]:
        rows = yield self.call("recall", 3), (queue.encode(), name.encode(), now)
        return rows[0][0] if rows else None


@dataclass(slots=True)
class Names:
    """The names of a batched send: which of its items are sent under them."""

    firsts: dict[str, int] = field(default_factory=dict[str, int])  # name -> the first item
    held: dict[str, int] = field(default_factory=dict[str, int])  # name -> an earlier message

    @classmethod
    def of(cls, items: Sequence[SendRow]) -> Names:
        names = cls()
        for i, item in enumerate(items):
            if item[16] is not None:
                names.firsts.setdefault(item[16], i)
        return names

    def duplicate(self, i: int, name: str | None) -> bool:
        return name is not None and (name in self.held or self.firsts[name] != i)

    def id(self, i: int, name: str | None, outcomes: Sequence[tuple[int, str]]) -> int:
        """What the item is answered with, once all that are sent have ids."""
        if name is None:
            return outcomes[i][0]
        return self.held.get(name) or outcomes[self.firsts[name]][0]


def take(prefix: str, names: Names, items: Sequence[SendRow], lane: int, now: int) -> Op[None]:
    """Take the names that are free, in one order, so that two calls never wait in a circle."""
    wanted = sorted((name.encode(), now + items[i][17]) for name, i in names.firsts.items())
    for start in range(0, len(wanted), NAMES):
        some = json.dumps([(name.hex(), at) for name, at in wanted[start : start + NAMES]])
        [(held,)] = yield f"CALL {prefix}once_take(%s, %s, %s)", (lane, some, now)
        for name, id in json.loads(held):
            names.held[bytes.fromhex(name).decode()] = id


def give(
    prefix: str, names: Names, lane: int, outcomes: Sequence[tuple[int, str]] | None
) -> Op[None]:
    """Write the messages down that were sent under the names; None: nothing was sent."""
    ours = [(name, i) for name, i in names.firsts.items() if name not in names.held]
    for start in range(0, len(ours), NAMES):
        some = [
            (name.encode().hex(), 0 if outcomes is None else outcomes[i][0])
            for name, i in ours[start : start + NAMES]
        ]
        yield f"CALL {prefix}once_sent(%s, %s)", (lane, json.dumps(some))
