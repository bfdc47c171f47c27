"""The verbs on PostgreSQL, and the changes of messages without a lease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairturn.backends.base import Reschedule
from fairturn.backends.postgres.literals import lease_arrays
from fairturn.backends.steps import Op
from fairturn.backends.verbs import Applied, Extend, Fail, Kill, Lease, Verb


class Verbs:
    statements: dict[str, str]

    def apply_verb(
        self, queue: str, verb: Verb, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[Applied]:
        name = verb.name
        fields: tuple[Any, ...] = verb
        if isinstance(verb, Fail):
            fields = (*verb, 0)
        elif isinstance(verb, Kill):  # the same statement, with its flag set
            name, fields = "fail", (verb.error, None, verb.details, verb.reference, 1)
        params = (queue, *lease_arrays(leases), *fields, int(strict), now)
        rows = yield self.statements[name], params
        if isinstance(verb, Extend):
            [(lost, until)] = rows
            return Applied([int(id) for id in lost.split(",")] if lost else [], until)
        return Applied([id for (id,) in rows])

    def cancel(
        self, queue: str, id: int | None, key: str | None, force: bool, now: int | None
    ) -> Op[str]:
        [(outcome,)] = yield self.statements["cancel"], (queue, id, key, int(force), now)
        return outcome

    def reschedule(
        self, queue: str, id: int | None, key: str | None, change: Reschedule, now: int | None
    ) -> Op[str]:
        [(outcome,)] = yield self.statements["reschedule"], (queue, id, key, *change, now)
        return outcome

    def promote(self, queue: str, within_us: int, limit: int, now: int | None) -> Op[int]:
        [(promoted,)] = yield self.statements["promote"], (queue, within_us, limit, now)
        return promoted

    def redrive(
        self, queue: str, to: str | None, limit: int, delay_us: int, now: int | None
    ) -> Op[int]:
        [(redriven,)] = yield self.statements["redrive"], (queue, to, limit, delay_us, now)
        return redriven

    def move(self, queue: str, to: str | None, limit: int, now: int | None) -> Op[int]:
        [(moved,)] = yield self.statements["move"], (queue, to, limit, now)
        return moved

    def discard(self, queue: str, state: str, limit: int, now: int | None) -> Op[int]:
        [(discarded,)] = yield self.statements["discard"], (queue, state, limit, now)
        return discarded
