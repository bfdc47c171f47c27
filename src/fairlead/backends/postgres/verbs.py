"""The verbs on PostgreSQL, and what changes waiting and finished messages."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.backends.base import Lease, Op
from fairlead.backends.postgres.literals import leases as pairs


class Verbs:
    statements: dict[str, str]

    def ack(
        self, queue: str, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[list[int]]:
        rows = yield self.statements["ack"], (queue, *pairs(leases), int(strict), now)
        return [row[0] for row in rows]

    def complete(
        self,
        queue: str,
        leases: Sequence[Lease],
        result: bytes | None,
        result_json: int,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        rows = yield (
            self.statements["complete"],
            (queue, *pairs(leases), result, result_json, int(strict), now),
        )
        return [row[0] for row in rows]

    def defer(
        self,
        queue: str,
        leases: Sequence[Lease],
        due_us: int | None,
        delay_us: int,
        keep_memo: bool,
        memo: bytes | None,
        memo_json: int,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        rows = yield (
            self.statements["defer"],
            (
                queue,
                *pairs(leases),
                due_us,
                delay_us,
                int(keep_memo),
                memo,
                memo_json,
                int(strict),
                now,
            ),
        )
        return [row[0] for row in rows]

    def fail(
        self,
        queue: str,
        leases: Sequence[Lease],
        error: str,
        delay_us: int | None,
        details: bytes | None,
        reference: str | None,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        return self._fail(queue, leases, error, delay_us, details, reference, False, strict, now)

    def kill(
        self,
        queue: str,
        leases: Sequence[Lease],
        error: str,
        details: bytes | None,
        reference: str | None,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        return self._fail(queue, leases, error, None, details, reference, True, strict, now)

    def _fail(
        self,
        queue: str,
        leases: Sequence[Lease],
        error: str,
        delay_us: int | None,
        details: bytes | None,
        reference: str | None,
        kill: bool,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        rows = yield (
            self.statements["fail"],
            (
                queue,
                *pairs(leases),
                error,
                delay_us,
                details,
                reference,
                int(kill),
                int(strict),
                now,
            ),
        )
        return [row[0] for row in rows]

    def extend(
        self,
        queue: str,
        leases: Sequence[Lease],
        lease_us: int | None,
        exact: bool,
        strict: bool,
        now: int | None,
    ) -> Op[tuple[list[int], int | None]]:
        rows = yield (
            self.statements["extend"],
            (queue, *pairs(leases), lease_us, int(exact), int(strict), now),
        )
        lost, until = rows[0]
        return [int(id) for id in lost.split(",")] if lost else [], until

    def release(
        self, queue: str, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[list[int]]:
        rows = yield self.statements["release"], (queue, *pairs(leases), int(strict), now)
        return [row[0] for row in rows]

    def progress(
        self,
        queue: str,
        leases: Sequence[Lease],
        progress: int | None,
        note: str | None,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        rows = yield (
            self.statements["progress"],
            (queue, *pairs(leases), progress, note, int(strict), now),
        )
        return [row[0] for row in rows]

    def cancel(
        self, queue: str, id: int | None, key: str | None, force: bool, now: int | None
    ) -> Op[str]:
        rows = yield self.statements["cancel"], (queue, id, key, int(force), now)
        return rows[0][0]

    def reschedule(
        self,
        queue: str,
        id: int | None,
        key: str | None,
        due_us: int | None,
        delay_us: int | None,
        rank: int | None,
        now: int | None,
    ) -> Op[str]:
        params = (queue, id, key, due_us, delay_us, rank, now)
        rows = yield self.statements["reschedule"], params
        return rows[0][0]

    def promote(self, queue: str, within_us: int, limit: int, now: int | None) -> Op[int]:
        rows = yield self.statements["promote"], (queue, within_us, limit, now)
        return rows[0][0]

    def redrive(
        self, queue: str, to: str | None, limit: int, delay_us: int, now: int | None
    ) -> Op[int]:
        rows = yield self.statements["redrive"], (queue, to, limit, delay_us, now)
        return rows[0][0]

    def move(self, queue: str, to: str | None, limit: int, now: int | None) -> Op[int]:
        rows = yield self.statements["move"], (queue, to, limit, now)
        return rows[0][0]

    def discard(self, queue: str, state: str, limit: int, now: int | None) -> Op[int]:
        rows = yield self.statements["discard"], (queue, state, limit, now)
        return rows[0][0]
