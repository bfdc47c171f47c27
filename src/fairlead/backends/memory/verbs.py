"""The verbs on a lease (§5, §13.1)."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead import limits
from fairlead.backends.base import Lease
from fairlead.backends.memory.core import Core, op
from fairlead.backends.memory.state import Message, Queue
from fairlead.values import MEMO_JSON, RESULT_JSON


class Verbs(Core):
    @op
    def ack(self, queue: str, leases: Sequence[Lease], strict: bool, now: int | None) -> list[int]:
        q, leased, lost = self._leased(queue, leases, strict)
        self._ack(q, leased, self._now(now))
        return lost

    def _ack(self, q: Queue, leased: list[Message], now: int) -> None:
        for message in leased:
            if q.columns["retention_us"] > 0:
                message.end_lease()
                message.recovered = 0
                message.finish("d", now)
                self._tell(q, "done", message, now)
            else:
                self._delete(q, [message], now)
            self._done(message, now)
        q.count(now, "acked", len(leased))

    def _done(self, message: Message, now: int) -> None:
        if message.group is not None:
            message.group.done += 1
            self._mark(message.group, now)

    @op
    def complete(
        self,
        queue: str,
        leases: Sequence[Lease],
        result: bytes | None,
        result_json: int,
        strict: bool,
        now: int | None,
    ) -> list[int]:
        q, leased, lost = self._leased(queue, leases, strict)
        now = self._now(now)
        for message in leased:
            message.end_lease()
            message.recovered = message.attempts = 0
            message.result, message.error = result, None
            message.set_json(RESULT_JSON, result_json)
            message.finish("d", now)
            self._tell(q, "done", message, now)
            self._done(message, now)
        q.count(now, "completed", len(leased))
        return lost

    @op
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
    ) -> list[int]:
        q, leased, lost = self._leased(queue, leases, strict)
        now = self._now(now)
        for message in leased:
            message.end_lease()
            message.recovered = message.attempts = 0
            message.schedule(now + delay_us if due_us is None else due_us, now)
            self._tell(q, "deferred", message, now, message.due_at)
            if not keep_memo:
                message.memo = memo
                message.set_json(MEMO_JSON, memo_json)
        q.count(now, "deferred", len(leased))
        return lost

    @op
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
    ) -> list[int]:
        q, leased, lost = self._leased(queue, leases, strict)
        now = self._now(now)
        for message in leased:
            message.recovered = 0
            if q.attempts_left(message):
                self._log(q, message, error, details, reference, False, now)
                message.end_lease()
                message.error = error
                delay = self._backoff(q, message) if delay_us is None else delay_us
                message.schedule(now + delay, now)
                self._tell(q, "deferred", message, now, message.due_at)
            else:
                self._log(q, message, error, details, reference, True, now)
                self._die(q, message, error, now)
        q.count(now, "failed", len(leased))
        return lost

    @op
    def kill(
        self,
        queue: str,
        leases: Sequence[Lease],
        error: str,
        details: bytes | None,
        reference: str | None,
        strict: bool,
        now: int | None,
    ) -> list[int]:
        q, leased, lost = self._leased(queue, leases, strict)
        now = self._now(now)
        for message in leased:
            message.recovered = 0
            self._log(q, message, error, details, reference, True, now)
            self._die(q, message, error, now)
        return lost

    @op
    def extend(
        self,
        queue: str,
        leases: Sequence[Lease],
        lease_us: int | None,
        exact: bool,
        strict: bool,
        now: int | None,
    ) -> tuple[list[int], int | None]:
        q, leased, lost = self._leased(queue, leases, strict)
        now = self._now(now)
        until: int | None = None
        for message in leased:
            until = now + q.lease_us(message, lease_us)
            if exact:
                message.permit = None
            else:
                until = max(message.lease_until or 0, until)
            message.lease_until = until
        return lost, until

    @op
    def release(
        self, queue: str, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> list[int]:
        q, leased, lost = self._leased(queue, leases, strict)
        for message in leased:
            message.end_lease()
            message.state = "r"
            message.attempts -= 1
        q.count(self._now(now), "released", len(leased))
        return lost

    @op
    def progress(
        self,
        queue: str,
        leases: Sequence[Lease],
        progress: int | None,
        note: str | None,
        strict: bool,
        now: int | None,
    ) -> list[int]:
        q, leased, lost = self._leased(queue, leases, strict)
        now = self._now(now)
        for message in leased:
            message.progress = message.progress if progress is None else progress
            message.note = message.note if note is None else note
            fraction = None if message.progress is None else message.progress / limits.PROGRESS
            told = {"progress": fraction, "note": message.note}
            self._tell(q, "progress", message, now, data=told)
        return lost

    def _backoff(self, q: Queue, message: Message) -> int:
        initial, factor = q.columns["backoff_initial_us"], q.columns["backoff_factor"]
        return min(initial * factor ** (message.attempts - 1), q.columns["backoff_max_us"])
