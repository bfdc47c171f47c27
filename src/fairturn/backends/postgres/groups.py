"""Groups and batches on PostgreSQL."""

from __future__ import annotations

import re
from typing import Any

from fairturn.backends.base import REPLACED, Batch, Opening, Outcome
from fairturn.backends.postgres.literals import array, send_columns, send_params
from fairturn.backends.steps import BEGIN, Op
from fairturn.core.rows import GroupRow, SendRow
from fairturn.core.settings import PolicyRow

QUEUES = 100  # to which one statement of a batch sends
SETTLED = 100  # marks that a batch handles itself
# What an end or abort message has, in the order of group_make.
_NOT_OF_WORK = {"on_conflict", "expires_us", "max_wait_us", "group", "once", "once_us"}
WORK_COLUMNS = [name for name in SendRow._fields if name not in _NOT_OF_WORK]


class Groups:
    statements: dict[str, str]

    def group_open(self, opening: Opening, now: int | None) -> Op[bool]:
        which = ("e" if opening.end else "") + ("a" if opening.abort else "")
        group = (opening.name, opening.queue, opening.on_dead, which)
        works = send_columns(opening.works)
        columns = [getattr(works, name) for name in WORK_COLUMNS]
        [(created,)] = yield self.statements["group_make"], (*group, *columns, now)
        return created

    def group_start(self, name: str, now: int | None) -> Op[bool]:
        [(started,)] = yield self.statements["group_start"], (name, now)
        return started

    def group_cancel(self, name: str, now: int | None) -> Op[bool]:
        [(cancelled,)] = yield self.statements["group_cancel"], (name, now)
        return cancelled

    def group_status(self, name: str, now: int | None) -> Op[GroupRow | None]:
        rows = yield self.statements["group_status"], (name, 1)
        return next(map(GroupRow._make, rows), None)

    def groups(self, limit: int, now: int | None) -> Op[list[GroupRow]]:
        rows = yield self.statements["group_status"], (None, limit)
        return [GroupRow._make(row) for row in rows]

    def settle(self, limit: int, now: int | None) -> Op[int]:
        [(closed,)] = yield self.statements["settle"], (limit, now)
        return closed

    def batch(self, batch: Batch, now: int | None) -> Op[list[list[Outcome]]]:
        sets, clears, sends = batch
        yield BEGIN
        none = (None,) * len(PolicyRow._fields)
        changes = {(queue, channel): (0, policy) for queue, channel, policy in sets}
        changes |= dict.fromkeys(clears, (1, none))
        if changes:
            # Sets and clears in one order, since they lock gates.
            where = sorted(changes)
            queues, channels = zip(*where, strict=True)
            kinds, policies = zip(*(changes[one] for one in where), strict=True)
            columns = (array(column) for column in zip(*policies, strict=True))
            params = (list(queues), list(channels), array(kinds), *columns)
            yield self.statements["policies"], params
        answers: list[list[Outcome]] = [[] for _ in sends]
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
        """One statement that sends to n queues, one after the other, and closes no group yet."""
        text = self.statements["send_rows"].replace("SELECT *", "SELECT {}, *", 1)
        text = text.rstrip().removesuffix(")") + ", false)"
        width = len(set(re.findall(r"\$\d+", text)))
        return "\nUNION ALL\n".join(
            re.sub(r"\$(\d+)", lambda match, i=i: f"${int(match[1]) + i * width}", text.format(i))
            for i in range(n)
        )
