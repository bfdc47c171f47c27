"""What a worker does with its leases (§5), and permits (§6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fairlead.backends.base import BEGIN, BEGIN_READ, Lease, Op, Row, Rows
from fairlead.backends.sqlite.care import die
from fairlead.backends.sqlite.closing import Ended, close_ended
from fairlead.backends.sqlite.common import (
    ACKED,
    COMPLETED,
    DEFERRED,
    ERRORS,
    FAILED,
    RELEASED,
    SQL,
    Queue,
    Tally,
    clock,
    count,
    count_one,
    find,
    ids_of,
    json_of,
    state_at,
    tally,
)
from fairlead.backends.sqlite.events import tell, tell_due, tell_progress
from fairlead.errors import LeaseLost

# From this many different delivery numbers in one batch on, comparing pairs is cheaper than one
# statement per number.
PAIRS_FROM = 6

# What the verbs need to know of a lease that holds: attempts, max attempts, group.
Held = tuple[int, int, int | None]


class Verbs:
    def ack(
        self, queue: str, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[list[int]]:
        yield BEGIN
        found = yield from find(queue, now)
        counted, ended = tally(), Ended()
        if strict and len(leases) > 1:
            valid, lost = yield from _valid(found, leases)
            _refuse(queue, lost, strict)
            yield from _finish(found, valid, counted, ended)
        else:
            lost = yield from acknowledge(found, leases, counted, ended)
            _refuse(queue, lost, strict)
        yield from close_ended(ended, found.now)
        yield from count(found.id, found.now, counted)
        return lost

    def complete(
        self,
        queue: str,
        leases: Sequence[Lease],
        result: bytes | None,
        result_json: int,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        yield BEGIN
        found = yield from find(queue, now)
        valid, lost = yield from _valid(found, leases)
        _refuse(queue, lost, strict)
        bit = 4 if result_json and result is not None else 0
        yield SQL.complete, (ids_of(valid), found.now, result, bit)
        yield from tell(found, "done", valid)
        yield from count_one(found, COMPLETED, len(valid))
        ended = Ended()
        ended.done(held[2] for held in valid.values())
        yield from close_ended(ended, found.now)
        return lost

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
        yield BEGIN
        found = yield from find(queue, now)
        valid, lost = yield from _valid(found, leases)
        _refuse(queue, lost, strict)
        due = due_us if due_us is not None else found.now + delay_us
        ids = ids_of(valid)
        yield SQL.defer, (ids, state_at(due, found.now), due)
        if not keep_memo:
            yield SQL.set_memo, (ids, memo, 2 if memo_json and memo is not None else 0)
        yield from tell_due(found, "deferred", valid)
        yield from count_one(found, DEFERRED, len(valid))
        return lost

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
        yield BEGIN
        found = yield from find(queue, now)
        valid, lost = yield from _valid(found, leases)
        _refuse(queue, lost, strict)
        dying: list[int] = []
        retries: dict[int, list[int]] = {}  # by due time: few, since back-off reaches its maximum
        for id, (attempts, max_attempts, _) in valid.items():
            if max_attempts and attempts >= max_attempts:
                dying.append(id)
            else:
                delay = backoff(found, attempts) if delay_us is None else delay_us
                retries.setdefault(found.now + delay, []).append(id)
        counted = tally()
        counted[FAILED] = counted[ERRORS] = len(valid)
        doomed = set(dying)
        failed = json_of([[id, int(id in doomed)] for id in valid])
        yield SQL.log_failures, (failed, found.id, found.now, error, details, reference)
        for due, ids in retries.items():
            yield SQL.retry, (ids_of(ids), state_at(due, found.now), due, error)
        if retries:
            yield from tell_due(found, "deferred", (id for ids in retries.values() for id in ids))
        if dying:
            yield from _bury(found, valid, dying, error, counted)
        yield from count(found.id, found.now, counted)
        return lost

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
        yield BEGIN
        found = yield from find(queue, now)
        valid, lost = yield from _valid(found, leases)
        _refuse(queue, lost, strict)
        if valid:
            counted = tally()
            counted[ERRORS] = len(valid)
            failed = json_of([[id, 1] for id in valid])
            yield SQL.log_failures, (failed, found.id, found.now, error, details, reference)
            yield from _bury(found, valid, list(valid), error, counted)
            yield from count(found.id, found.now, counted)
        return lost

    def extend(
        self,
        queue: str,
        leases: Sequence[Lease],
        lease_us: int | None,
        exact: bool,
        strict: bool,
        now: int | None,
    ) -> Op[tuple[list[int], int | None]]:
        yield BEGIN
        found = yield from find(queue, now)
        valid, lost = yield from _valid(found, leases)
        _refuse(queue, lost, strict)
        extend = SQL.extend_exactly if exact else SQL.extend
        rows: Rows = yield extend, (ids_of(valid), found.now, lease_us, found.lease_us)
        until: dict[int, int] = dict(rows)
        extended = [until[id] for id, _ in leases if id in until]
        return lost, extended[-1] if extended else None

    def release(
        self, queue: str, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[list[int]]:
        yield BEGIN
        found = yield from find(queue, now)
        valid, lost = yield from _valid(found, leases)
        _refuse(queue, lost, strict)
        yield SQL.release, (ids_of(valid),)
        yield from count_one(found, RELEASED, len(valid))
        return lost

    def progress(
        self,
        queue: str,
        leases: Sequence[Lease],
        progress: int | None,
        note: str | None,
        strict: bool,
        now: int | None,
    ) -> Op[list[int]]:
        yield BEGIN
        found = yield from find(queue, now)
        valid, lost = yield from _valid(found, leases)
        _refuse(queue, lost, strict)
        yield SQL.progress, (ids_of(valid), progress, note)
        yield from tell_progress(found, valid)
        return lost

    # --- permits ---------------------------------------------------------------------------------
    def permit_create(self, name: str, ttl_us: int, now: int | None) -> Op[int]:
        rows = yield SQL.create_permit, (name, ttl_us, now)
        return rows[0][0]

    def permit_extend(self, permit: int, ttl_us: int, now: int | None) -> Op[bool]:
        yield BEGIN
        at = yield from clock(now)
        rows = yield SQL.extend_permit, (permit, ttl_us, at)
        return bool(rows)

    def permit_close(self, permit: int, now: int | None) -> Op[None]:
        yield SQL.close_permit, (permit,)

    def permits(self, now: int | None) -> Op[Rows]:
        yield BEGIN_READ
        at = yield from clock(now)
        return (yield SQL.permits, (at,))


def acknowledge(
    queue: Queue, leases: Sequence[Lease], counted: Tally, ended: Ended
) -> Op[list[int]]:
    """Finish leased messages: gone, or kept where the queue has a retention. The lost ids."""
    pairs = dict.fromkeys(leases)
    numbers = {delivery for _, delivery in pairs}
    if queue.retention_us > 0 or queue.events or len(numbers) >= PAIRS_FROM:
        valid, lost = yield from _valid(queue, leases)
        yield from _finish(queue, valid, counted, ended)
        return lost
    gone: set[Lease] = set()
    for number in numbers:
        ids = [id for id, delivery in pairs if delivery == number]
        rows: Rows = yield SQL.ack, (ids_of(ids), queue.lane, number)
        gone.update((row[0], number) for row in rows)
        ended.done([row[1] for row in rows if row[1] is not None])
    counted[ACKED] += len(gone)
    return [pair[0] for pair in pairs if pair not in gone] if len(gone) < len(pairs) else []


def _finish(queue: Queue, valid: Mapping[int, Held], counted: Tally, ended: Ended) -> Op[None]:
    """An ack of leases that are known to hold."""
    if queue.retention_us > 0:
        yield SQL.keep, (ids_of(valid), queue.now)
        yield from tell(queue, "done", valid)
    else:
        yield from tell(queue, "deleted", valid)
        yield SQL.delete, (ids_of(valid),)
    counted[ACKED] += len(valid)
    ended.done([held[2] for held in valid.values() if held[2] is not None])


def _bury(
    queue: Queue, valid: Mapping[int, Held], ids: Sequence[int], error: str, counted: Tally
) -> Op[None]:
    """Death, and what it means to the groups of the dead."""
    yield from die(queue, ids, error, counted)
    ended = Ended()
    ended.died(valid[id][2] for id in ids)
    yield from close_ended(ended, queue.now)


def backoff(queue: Queue, attempts: int) -> int:
    """min(initial * factor ^ (attempts - 1), maximum), without computing huge powers."""
    delay = queue.backoff_initial_us
    if queue.backoff_factor > 1 and delay > 0:
        for _ in range(attempts - 1):
            delay *= queue.backoff_factor
            if delay >= queue.backoff_max_us:
                break
    return min(delay, queue.backoff_max_us)


def _valid(queue: Queue, leases: Sequence[Lease]) -> Op[tuple[dict[int, Held], list[int]]]:
    """The leases that hold, by id in the order given; the lost ids."""
    pairs = list(dict.fromkeys(leases))
    rows: list[Row] = []
    numbers = {delivery for _, delivery in pairs}
    if len(numbers) >= PAIRS_FROM:
        rows = yield SQL.valid_leases, (json_of(pairs), queue.lane, queue.max_attempts)
    else:
        for number in numbers:
            ids = ids_of(id for id, delivery in pairs if delivery == number)
            rows += yield SQL.leases_of, (ids, queue.lane, number, queue.max_attempts)
    known: dict[Row, Held] = {row[:2]: row[2:] for row in rows}
    valid = {pair[0]: known[pair] for pair in pairs if pair in known}
    return valid, [pair[0] for pair in pairs if pair not in known]


def _refuse(queue: str, lost: Iterable[int], strict: bool) -> None:
    """Raise before anything is written: your transaction then holds nothing of the call."""
    ids = list(lost)
    if strict and ids:
        raise LeaseLost(queue, ids)
