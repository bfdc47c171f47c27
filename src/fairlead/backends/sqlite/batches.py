"""Batches (§16): policies, then sends, in one transaction. A statement is no round trip here."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.backends.base import BEGIN, Op, PolicyRow, SendRow
from fairlead.backends.sqlite.closing import Ended, close_ended
from fairlead.backends.sqlite.common import SQL, clock, find
from fairlead.backends.sqlite.sending import Outcome, send_some


class Batches:
    def batch(
        self,
        sets: Sequence[tuple[str, str, PolicyRow]],
        clears: Sequence[tuple[str, str]],
        sends: Sequence[tuple[str, Sequence[SendRow]]],
        now: int | None,
    ) -> Op[list[list[Outcome]]]:
        yield BEGIN
        now = yield from clock(now)
        ids: dict[str, int] = {}
        for queue in (*(change[0] for change in sets), *(change[0] for change in clears)):
            if queue not in ids:
                ids[queue] = (yield from find(queue, now)).id
        for queue, channel, policy in sets:
            yield SQL.set_policy, (ids[queue], channel, *policy)
        for queue, channel in clears:
            yield SQL.clear_policy, (ids[queue], channel)
        ended = Ended()
        outcomes: list[list[Outcome]] = []
        for queue, items in sends:
            outcomes.append((yield from send_some(queue, items, ended, now)))
        yield from close_ended(ended, now)
        return outcomes
