"""The verbs on a lease (§5, §13.1), and permits (§6)."""

from __future__ import annotations

from collections.abc import Sequence

from fairturn.backends.memory.core import Core, op
from fairturn.backends.memory.state import Message, Permit, Queue
from fairturn.backends.verbs import (
    Ack,
    Applied,
    Complete,
    Defer,
    Extend,
    Fail,
    Kill,
    Lease,
    Progress,
    Release,
    Verb,
)
from fairturn.core import errors, limits
from fairturn.core.rows import PermitRow
from fairturn.core.values import MEMO_JSON, RESULT_JSON

# The counter of each verb. Deaths and errors are counted in _die and _log.
COUNTERS: dict[type[Verb], str] = {
    Ack: "acked",
    Complete: "completed",
    Defer: "deferred",
    Fail: "failed",
    Release: "released",
}


class Verbs(Core):
    @op
    def apply_verb(
        self, queue: str, verb: Verb, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Applied:
        q, now = self._queue(queue), self._now(now)
        leased, lost = self._split(q, leases)
        if strict and lost:
            raise errors.LeaseLost(queue, lost)
        return Applied(lost, self._apply(q, verb, leased, now))

    def _split(self, q: Queue, leases: Sequence[Lease]) -> tuple[list[Message], list[int]]:
        """The messages whose lease is valid, and the ids of the lost ones (§5)."""
        leased: list[Message] = []
        lost: list[int] = []
        for lease in dict.fromkeys(leases):
            message = q.messages.get(lease.id)
            if message and message.state == "l" and message.token == lease.token:
                leased.append(message)
            else:
                lost.append(lease.id)
        return leased, lost

    def _apply(self, q: Queue, verb: Verb, leased: list[Message], now: int) -> int | None:
        """Apply the verb; extend returns the latest new end."""
        until: int | None = None
        for message in leased:
            match verb:
                case Ack():
                    self._ack(q, message, now)
                case Complete():
                    message.end_lease()
                    message.recovered = message.attempts = 0
                    message.result, message.error = verb.result, None
                    message.set_json(RESULT_JSON, verb.result_json)
                    self._done(q, message, now)
                case Defer():
                    self._defer(q, message, verb, now)
                case Fail():
                    self._fail(q, message, verb, now)
                case Kill():
                    message.recovered = 0
                    self._log(q, message, verb.error, verb.details, verb.reference, True, now)
                    self._die(q, message, verb.error, now)
                case Extend():
                    until = max(until or 0, self._extend(q, message, verb, now))
                case Release():
                    message.end_lease()
                    message.state = "r"
                    message.attempts -= 1
                case Progress():
                    self._progress(q, message, verb, now)
        if type(verb) in COUNTERS:
            q.count(now, COUNTERS[type(verb)], len(leased))
        return until

    def _ack(self, q: Queue, message: Message, now: int) -> None:
        if q.columns["retention_us"] > 0:
            message.end_lease()
            message.recovered = 0
            self._done(q, message, now)
        else:
            self._delete(q, [message], now)
            self._count_done(message, now)

    def _done(self, q: Queue, message: Message, now: int) -> None:
        message.finish("d", now)
        self._tell(q, "done", message, now)
        self._count_done(message, now)

    def _count_done(self, message: Message, now: int) -> None:
        if message.group is not None:
            message.group.done += 1
            self._mark(message.group, now)

    def _defer(self, q: Queue, message: Message, verb: Defer, now: int) -> None:
        message.end_lease()
        message.recovered = message.attempts = 0
        message.schedule(now + verb.delay_us if verb.due_us is None else verb.due_us, now)
        self._tell(q, "deferred", message, now, message.due_at)
        if not verb.keep_memo:
            message.memo = verb.memo
            message.set_json(MEMO_JSON, verb.memo_json)

    def _fail(self, q: Queue, message: Message, verb: Fail, now: int) -> None:
        message.recovered = 0
        dies = not q.attempts_left(message)
        self._log(q, message, verb.error, verb.details, verb.reference, dies, now)
        if dies:
            self._die(q, message, verb.error, now)
            return
        message.end_lease()
        message.error = verb.error
        initial, factor = q.columns["backoff_initial_us"], q.columns["backoff_factor"]
        backoff = min(initial * factor ** (message.attempts - 1), q.columns["backoff_max_us"])
        message.schedule(now + (backoff if verb.delay_us is None else verb.delay_us), now)
        self._tell(q, "deferred", message, now, message.due_at)

    def _extend(self, q: Queue, message: Message, verb: Extend, now: int) -> int:
        until = now + q.lease_us(message, verb.lease_us)
        if verb.exact:
            message.permit = None
        else:
            until = max(message.lease_until or 0, until)
        message.lease_until = until
        return until

    def _progress(self, q: Queue, message: Message, verb: Progress, now: int) -> None:
        message.progress = message.progress if verb.millionths is None else verb.millionths
        message.note = message.note if verb.note is None else verb.note
        fraction = None if message.progress is None else message.progress / limits.PROGRESS
        self._tell(q, "progress", message, now, data={"progress": fraction, "note": message.note})

    # --- permits -----------------------------------------------------------------------------
    @op
    def permit_create(self, id: int, name: str, ttl_us: int, now: int | None) -> None:
        now = self._now(now)
        self._state.permits[id] = Permit(id, name, now, now + ttl_us)

    @op
    def permit_extend(self, permit: int, ttl_us: int, now: int | None) -> bool:
        now = self._now(now)
        alive = self._alive(permit, now)
        if alive:
            alive.expires_at = now + ttl_us
        return alive is not None

    @op
    def permit_close(self, permit: int, now: int | None) -> None:
        self._state.permits.pop(permit, None)

    @op
    def permits(self, now: int | None) -> list[PermitRow]:
        now = self._now(now)
        rows = (
            PermitRow(
                permit.id,
                permit.name,
                permit.created_at,
                permit.expires_at,
                leases=self._leases(permit.id),
            )
            for permit in self._state.permits.values()
            if self._alive(permit.id, now)
        )
        return sorted(rows, key=lambda row: (row.created_at, row.name.encode(), row.id))

    def _leases(self, permit: int) -> int:
        return sum(m.permit == permit for q in self._by_name() for m in q.select("l"))
