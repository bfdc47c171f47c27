"""The verbs (§5, §13.1), and permits (§6)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from fairturn.backends.sqlite.common import (
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
    find,
    ids_of,
    json_of,
    state_at,
    tally,
)
from fairturn.backends.sqlite.events import tell, tell_due, tell_progress
from fairturn.backends.sqlite.groups.closing import Ended, close_ended
from fairturn.backends.sqlite.maintenance import die
from fairturn.backends.steps import BEGIN, BEGIN_READ, Op, Row, Rows
from fairturn.backends.verbs import (
    ACK,
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
from fairturn.core.errors import LeaseLost
from fairturn.core.rows import PermitRow
from fairturn.core.values import MEMO_JSON, RESULT_JSON

# From this many different tokens in one batch on, comparing pairs is cheaper than one statement per
# token.
PAIRS_FROM = 6


class Held(NamedTuple):
    """A message whose lease is valid: the columns of leases_of and valid_leases."""

    id: int
    attempts: int
    max_attempts: int
    group_id: int | None


Valid = Mapping[int, Held]  # by id, in the order of the leases


class Verbs:
    def apply_verb(
        self, queue: str, verb: Verb, leases: Sequence[Lease], strict: bool, now: int | None
    ) -> Op[Applied]:
        yield BEGIN
        found = yield from find(queue, now)
        counted, ended = tally(), Ended()
        until: int | None = None
        if isinstance(verb, Ack) and (len(leases) == 1 or not strict):
            lost = yield from acknowledge(found, leases, counted, ended)
            _refuse(queue, lost, strict)
        else:
            valid, lost = yield from _valid(found, leases)
            _refuse(queue, lost, strict)
            if valid:
                until = yield from _APPLY[type(verb)](found, verb, valid, counted, ended)
        if ended:
            yield from close_ended(ended, found.now)
        yield from count(found.id, found.now, counted)
        return Applied(lost, until)

    # --- permits ---------------------------------------------------------------------------------
    def permit_create(self, id: int, name: str, ttl_us: int, now: int | None) -> Op[None]:
        yield SQL.create_permit, (id, name, ttl_us, now)

    def permit_extend(self, permit: int, ttl_us: int, now: int | None) -> Op[bool]:
        yield BEGIN
        at = yield from clock(now)
        rows = yield SQL.extend_permit, (permit, ttl_us, at)
        return bool(rows)

    def permit_close(self, permit: int, now: int | None) -> Op[None]:
        yield SQL.close_permit, (permit,)

    def permits(self, now: int | None) -> Op[list[PermitRow]]:
        yield BEGIN_READ
        at = yield from clock(now)
        rows = yield SQL.permits, (at,)
        return [PermitRow._make(row) for row in rows]


def _ack(queue: Queue, verb: Ack, valid: Valid, counted: Tally, ended: Ended) -> Op[None]:
    if queue.retention_us > 0:
        yield SQL.keep, (ids_of(valid), queue.now)
        yield from tell(queue, "done", valid)
    else:
        yield from tell(queue, "deleted", valid)
        yield SQL.delete, (ids_of(valid),)
    counted[ACKED] += len(valid)
    ended.done(held.group_id for held in valid.values())


def _complete(queue: Queue, verb: Complete, valid: Valid, counted: Tally, ended: Ended) -> Op[None]:
    bit = RESULT_JSON if verb.result_json and verb.result is not None else 0
    yield SQL.complete, (ids_of(valid), queue.now, verb.result, bit)
    yield from tell(queue, "done", valid)
    counted[COMPLETED] += len(valid)
    ended.done(held.group_id for held in valid.values())


def _defer(queue: Queue, verb: Defer, valid: Valid, counted: Tally, ended: Ended) -> Op[None]:
    due = queue.now + verb.delay_us if verb.due_us is None else verb.due_us
    ids = ids_of(valid)
    yield SQL.defer, (ids, state_at(due, queue.now), due)
    if not verb.keep_memo:
        bit = MEMO_JSON if verb.memo_json and verb.memo is not None else 0
        yield SQL.set_memo, (ids, verb.memo, bit)
    yield from tell_due(queue, "deferred", valid)
    counted[DEFERRED] += len(valid)


def _fail(queue: Queue, verb: Fail, valid: Valid, counted: Tally, ended: Ended) -> Op[None]:
    dying: list[int] = []
    retries: dict[int, list[int]] = {}  # by due time; few, since the backoff has a maximum
    for id, held in valid.items():
        if held.max_attempts and held.attempts >= held.max_attempts:
            dying.append(id)
        else:
            delay = backoff(queue, held.attempts) if verb.delay_us is None else verb.delay_us
            retries.setdefault(queue.now + delay, []).append(id)
    counted[FAILED] += len(valid)
    yield from _log(queue, verb, valid, dying, counted)
    for due, ids in retries.items():
        yield SQL.retry, (ids_of(ids), state_at(due, queue.now), due, verb.error)
    if retries:
        yield from tell_due(queue, "deferred", (id for ids in retries.values() for id in ids))
    if dying:
        yield from die(queue, dying, verb.error, counted)
        ended.died(valid[id].group_id for id in dying)


def _kill(queue: Queue, verb: Kill, valid: Valid, counted: Tally, ended: Ended) -> Op[None]:
    yield from _log(queue, verb, valid, valid, counted)
    yield from die(queue, list(valid), verb.error, counted)
    ended.died(held.group_id for held in valid.values())


def _log(
    queue: Queue, verb: Fail | Kill, valid: Valid, dying: Collection[int], counted: Tally
) -> Op[None]:
    """Add to the failure log."""
    doomed = set(dying)
    failed = json_of([[id, int(id in doomed)] for id in valid])
    params = (queue.id, queue.now, verb.error, verb.details, verb.reference)
    yield SQL.log_failures, (failed, *params)
    counted[ERRORS] += len(valid)


def _extend(queue: Queue, verb: Extend, valid: Valid, counted: Tally, ended: Ended) -> Op[int]:
    extend = SQL.extend_exactly if verb.exact else SQL.extend
    rows: Rows = yield extend, (ids_of(valid), queue.now, verb.lease_us, queue.lease_us)
    return max(until for _, until in rows)


def _release(queue: Queue, verb: Release, valid: Valid, counted: Tally, ended: Ended) -> Op[None]:
    yield SQL.release, (ids_of(valid),)
    counted[RELEASED] += len(valid)


def _progress(queue: Queue, verb: Progress, valid: Valid, counted: Tally, ended: Ended) -> Op[None]:
    yield SQL.progress, (ids_of(valid), *verb)
    yield from tell_progress(queue, valid)


# What each verb does to messages whose leases are valid; extend returns the latest new end.
_APPLY: dict[type[Verb], Callable[[Queue, Any, Valid, Tally, Ended], Op[int | None]]] = {
    Ack: _ack,
    Complete: _complete,
    Defer: _defer,
    Fail: _fail,
    Kill: _kill,
    Extend: _extend,
    Release: _release,
    Progress: _progress,
}


def acknowledge(
    queue: Queue, leases: Sequence[Lease], counted: Tally, ended: Ended
) -> Op[list[int]]:
    """Ack: delete the messages, or keep them as done if the queue has a retention. The lost ids."""
    tokens = {lease.token for lease in leases}
    if queue.retention_us > 0 or queue.events or len(tokens) >= PAIRS_FROM:
        valid, lost = yield from _valid(queue, leases)
        yield from _ack(queue, ACK, valid, counted, ended)
        return lost
    missing: set[Lease] = set()
    for token in tokens:
        ids = [lease.id for lease in leases if lease.token == token]
        rows: Rows = yield SQL.ack, (ids_of(ids), queue.lane, token)
        ended.done([group for _, group in rows if group is not None])
        counted[ACKED] += len(rows)
        if len(rows) < len(ids):
            acked = {id for id, _ in rows}
            missing.update(Lease(id, token) for id in ids if id not in acked)
    return [lease.id for lease in leases if lease in missing] if missing else []


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
    """The leases that are valid, by id in the order given; the lost ids."""
    rows: list[Row] = []
    tokens = {lease.token for lease in leases}
    if len(tokens) >= PAIRS_FROM:
        pairs = json_of(list(leases))
        rows = yield SQL.valid_leases, (pairs, queue.lane, queue.max_attempts)
    else:
        for token in tokens:
            ids = ids_of(lease.id for lease in leases if lease.token == token)
            rows += yield SQL.leases_of, (ids, queue.lane, token, queue.max_attempts)
    held = {row.id: row for row in map(Held._make, rows)}
    valid: dict[int, Held] = {}
    lost: list[int] = []
    for lease in leases:
        row = held.get(lease.id)
        if row is None:
            lost.append(lease.id)
        else:
            valid[lease.id] = row
    return valid, lost


def _refuse(queue: str, lost: list[int], strict: bool) -> None:
    """Raise before anything is written: so your transaction contains nothing of the call."""
    if strict and lost:
        raise LeaseLost(queue, lost)
