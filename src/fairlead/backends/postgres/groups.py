"""Groups and batches on PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fairlead.backends.base import (
    BEGIN,
    POLICY_COLUMNS,
    REPLACED,
    Op,
    PolicyRow,
    Row,
    Rows,
    SendRow,
)
from fairlead.backends.postgres.literals import array, or_none, send_params

QUEUES = 100  # whose sends go into one statement
SETTLED = 100  # marks that a batch settles on its way


class Groups:
    statements: dict[str, str]

    def group_open(
        self,
        name: str,
        queue: str,
        on_dead: str,
        end: SendRow | None,
        abort: SendRow | None,
        now: int | None,
    ) -> Op[bool]:
        works = [work for work in (end, abort) if work is not None]
        which = ("e" if end is not None else "") + ("a" if abort is not None else "")
        columns = list(zip(*works, strict=True)) if works else [()] * 16
        numeric = {i: array(columns[i]) for i in (2, 3, 4, 5, 8, 11, 12)}
        rows = yield (
            self.statements["group_make"],
            (
                *(name, queue, on_dead, which),
                list(columns[0]),
                list(columns[1]),
                *(numeric[i] for i in (2, 3, 4, 5)),
                or_none(list(columns[6])),
                numeric[8],
                or_none(list(columns[9])),
                or_none(list(columns[10])),
                numeric[11],
                numeric[12],
                now,
            ),
        )
        return rows[0][0]

    def group_start(self, name: str, now: int | None) -> Op[bool]:
        rows = yield self.statements["group_start"], (name, now)
        return rows[0][0]

    def group_cancel(self, name: str, now: int | None) -> Op[bool]:
        rows = yield self.statements["group_cancel"], (name, now)
        return rows[0][0]

    def group_status(self, name: str, now: int | None) -> Op[Row | None]:
        rows = yield self.statements["group_status"], (name, 1)
        return rows[0] if rows else None

    def groups(self, limit: int, now: int | None) -> Op[Rows]:
        return (yield self.statements["group_status"], (None, limit))

    def settle(self, limit: int, now: int | None) -> Op[int]:
        rows = yield self.statements["settle"], (limit, now)
        return rows[0][0]

    def batch(
        self,
        sets: Sequence[tuple[str, str, PolicyRow]],
        clears: Sequence[tuple[str, str]],
        sends: Sequence[tuple[str, Sequence[SendRow]]],
        now: int | None,
    ) -> Op[list[list[tuple[int, str]]]]:
        yield BEGIN
        none = (None,) * len(POLICY_COLUMNS)
        changes = [(queue, channel, 0, policy) for queue, channel, policy in sets]
        changes += [(queue, channel, 1, none) for queue, channel in clears]
        if changes:
            # Sets and clears in one order: their gates are locked on the way.
            changes.sort(key=lambda change: change[:2])
            queues, channels, kinds, policies = zip(*changes, strict=True)
            columns = (array(column) for column in zip(*policies, strict=True))
            params = (list(queues), list(channels), array(kinds), *columns)
            yield self.statements["policies"], params
        answers: list[list[tuple[int, str]]] = [[] for _ in sends]
        for start in range(0, len(sends), QUEUES):
            some = sends[start : start + QUEUES]
            values: list[Any] = []
            for queue, items in some:
                values += send_params(queue, items, now)
            rows = yield self._send_all(len(some)), tuple(values)
            for i, id, outcome in rows:
                answers[int(start + i)].append((id, outcome))
        if any(outcome == REPLACED for items in answers for _, outcome in items):
            yield self.statements["settle"], (SETTLED, now)
        return answers

    def _send_all(self, n: int) -> str:
        """One statement that sends to n queues, one after the other, and settles no group yet."""
        text = self.statements["send_rows"].replace("SELECT *", "SELECT {}, *", 1)
        text = text.rstrip().removesuffix(")") + ", false)"
        width = len(set(re.findall(r"\$\d+", text)))
        return "\nUNION ALL\n".join(
            re.sub(r"\$(\d+)", lambda m, i=i: f"${int(m[1]) + i * width}", text.format(i))
            for i in range(n)
        )
