"""What a queue remembers for a while (§19). With one writer at a time nobody races for a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.backends.base import BEGIN, BEGIN_READ, DUPLICATE, Op, SendRow
from fairlead.backends.sqlite.common import SQL, Queue, find, json_of

ONCE, ONCE_US = 16, 17  # positions in a SendRow
# Whoever adds a name takes at most so many forgotten ones away, so that they never pile up and a
# receive need not look for them.
SWEPT = 2


class Remembering:
    def remember(
        self, queue: str, name: str, value: bytes, keep_us: int, now: int | None
    ) -> Op[None]:
        yield BEGIN
        found = yield from find(queue, now)
        yield SQL.forget, (found.lane, found.now, SWEPT)
        yield SQL.remember, (found.lane, name, value, found.now + keep_us)

    def recall(self, queue: str, name: str, now: int | None) -> Op[bytes | None]:
        yield BEGIN_READ
        found = yield from find(queue, now)
        rows = yield SQL.recall, (found.lane, name, found.now)
        return rows[0][0] if rows else None


def settle_names(
    queue: Queue, items: Sequence[SendRow], outcomes: list[tuple[int, str]]
) -> Op[dict[str, int]]:
    """Mark the items whose name was used before, with the message that was sent then; the others'
    names, each with the first item under it (§19.1)."""
    names = {item[ONCE] for item in items if item[ONCE] is not None}
    rows = yield SQL.sent_once, (queue.lane, json_of(sorted(names)), queue.now)
    known: dict[str, int] = dict(rows)
    firsts: dict[str, int] = {}
    for i, item in enumerate(items):
        name = item[ONCE]
        if name is None:
            continue
        if name in known:
            outcomes[i] = (known[name], DUPLICATE)
        elif firsts.setdefault(name, i) != i:
            outcomes[i] = (0, DUPLICATE)
    return firsts


def remember_names(
    queue: Queue,
    items: Sequence[SendRow],
    firsts: Mapping[str, int],
    outcomes: list[tuple[int, str]],
) -> Op[None]:
    """Once the messages have their ids."""
    sent = [[n, outcomes[i][0], queue.now + items[i][ONCE_US]] for n, i in firsts.items()]
    yield SQL.forget, (queue.lane, queue.now, SWEPT * len(sent))
    yield SQL.remember_sent, (queue.lane, json_of(sent))
    for i, item in enumerate(items):
        if item[ONCE] in firsts:
            outcomes[i] = (outcomes[firsts[item[ONCE]]][0], outcomes[i][1])
