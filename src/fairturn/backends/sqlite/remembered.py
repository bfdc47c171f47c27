"""What a queue remembers for a while (§19)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairturn.backends.sqlite.common import SQL, Queue, find, json_of
from fairturn.backends.steps import BEGIN, BEGIN_READ, Op
from fairturn.core.rows import SendRow

# A call that adds a name deletes at most so many expired ones. So they never pile up, and a receive
# need not look for them.
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
        return next((value for (value,) in rows), None)


def settle_names(
    queue: Queue, items: Sequence[SendRow]
) -> Op[tuple[dict[str, int], dict[int, int]]]:
    """The free once names, each with the first item under it. The other items by position, each
    with the message that was sent under its name (0: it is sent in this call); §19.1."""
    names = {item.once for item in items if item.once is not None}
    rows = yield SQL.sent_once, (queue.lane, json_of(sorted(names)), queue.now)
    known: dict[str, int] = dict(rows)
    firsts: dict[str, int] = {}
    duplicates: dict[int, int] = {}
    for i, item in enumerate(items):
        if item.once is None:
            continue
        if item.once in known:
            duplicates[i] = known[item.once]
        elif firsts.setdefault(item.once, i) != i:
            duplicates[i] = 0
    return firsts, duplicates


def remember_names(
    queue: Queue,
    items: Sequence[SendRow],
    firsts: Mapping[str, int],
    outcomes: list[tuple[int, str]],
) -> Op[None]:
    """Store the messages of the free names, when they have their ids."""
    sent: list[tuple[str, int, int]] = []
    ids: dict[str | None, int] = {}
    for name, i in firsts.items():
        ids[name], _ = outcomes[i]
        sent.append((name, ids[name], queue.now + (items[i].once_us or 0)))
    yield SQL.forget, (queue.lane, queue.now, SWEPT * len(sent))
    yield SQL.remember_sent, (queue.lane, json_of(sent))
    for i, item in enumerate(items):
        if item.once in ids:
            _, outcome = outcomes[i]
            outcomes[i] = (ids[item.once], outcome)
