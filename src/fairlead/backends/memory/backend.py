"""Every operation of the seam on plain Python records, as docs/semantics.md words it.

Nothing here is fast or clever: a receive takes one message after the other, a count is a loop.
That makes it the oracle the databases are compared with, and a database for your unit tests. An
operation checks everything before it changes anything, so one that raises has done nothing.
"""

from __future__ import annotations

import copy
import functools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from fairlead import errors, limits
from fairlead.backends import base
from fairlead.backends.base import Lease, Op, Row, Rows
from fairlead.backends.memory.choice import choose, retry_after
from fairlead.backends.memory.state import (
    FINISHED,
    UNFINISHED,
    Failure,
    Message,
    Permit,
    Policy,
    Queue,
    Rate,
    State,
    counters,
)
from fairlead.values import BODY_JSON, MEMO_JSON, RESULT_JSON

P = ParamSpec("P")
T = TypeVar("T")
EXPIRED = "lease expired with no attempts left"


def op(
    method: Callable[Concatenate[MemoryBackend, P], T],
) -> Callable[Concatenate[MemoryBackend, P], Op[T]]:
    """Make a plain method an operation: a generator that has no statement to yield."""

    @functools.wraps(method)
    def operation(self: MemoryBackend, /, *args: P.args, **kwargs: P.kwargs) -> Op[T]:
        yield from ()
        return method(self, *args, **kwargs)

    return operation


class MemoryBackend:
    dialect = "memory"

    def __init__(self, clock: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._clock = clock
        self._state = State()

    def snapshot(self) -> object:
        """Everything there is, for a later ``restore``: the model's transaction."""
        return copy.deepcopy(self._state)

    def restore(self, snapshot: object) -> None:
        assert isinstance(snapshot, State)
        self._state = copy.deepcopy(snapshot)

    def translate(self, code: str, message: str) -> Exception | str | None:
        return None

    def migrations(self) -> list[tuple[str, str]]:
        return []

    @op
    def migrate(self) -> list[str]:
        return []

    @op
    def check(self) -> None:
        pass

    @op
    def clock(self) -> int:
        return self._clock()

    # --- queues ------------------------------------------------------------------------------
    @op
    def queue_create(self, name: str, columns: Mapping[str, base.Value], now: int | None) -> bool:
        if name in self._state.queues:
            return False
        self._state.queues[name] = Queue(name, self._now(now), {**base.QUEUE_DEFAULTS, **columns})
        return True

    @op
    def queue_set(self, name: str, columns: Mapping[str, base.Value], now: int | None) -> None:
        self._queue(name).columns.update(columns)

    @op
    def queues(self, name: str | None) -> list[dict[str, Any]]:
        return [
            {"name": queue.name, "created_at": queue.created_at, **queue.columns}
            for queue in self._by_name()
            if name in (None, queue.name)
        ]

    @op
    def queue_purge(self, name: str, reset: bool, now: int | None) -> None:
        queue = self._queue(name)
        self._state.purged.append(len(queue.messages))
        queue.messages.clear()
        if reset:
            queue.totals.clear()
            queue.minutes.clear()
            queue.failures.clear()

    @op
    def queue_drop(self, name: str, now: int | None) -> bool:
        queue = self._state.queues.pop(name, None)
        if queue is None:
            return False
        self._state.purged.append(len(queue.messages))
        return True

    # --- policies ----------------------------------------------------------------------------
    @op
    def policy_set(self, queue: str, channel: str, policy: base.PolicyRow, now: int | None) -> None:
        self._queue(queue).policies[channel] = Policy(*policy)

    @op
    def policy_clear(self, queue: str, channel: str, now: int | None) -> bool:
        return self._queue(queue).policies.pop(channel, None) is not None

    @op
    def channels(self, queue: str, limit: int, now: int | None) -> Rows:
        q = self._queue(queue)
        names = {message.channel for message in q.select(UNFINISHED)} | set(q.policies)
        return [
            (
                channel,
                *(len(q.select(state, channel)) for state in "rsl"),
                *q.policies.get(channel, (None,) * len(base.POLICY_COLUMNS)),
            )
            for channel in sorted(names)[:limit]
        ]

    # --- sending -----------------------------------------------------------------------------
    @op
    def send(
        self, queue: str, items: Sequence[base.SendRow], now: int | None
    ) -> list[tuple[int, str]]:
        q, now = self._queue(queue), self._now(now)
        for item in items:
            if len(item[1]) > q.columns["max_body"]:
                raise errors.BodyTooLarge(len(item[1]), q.columns["max_body"])
        last = {item[6]: i for i, item in enumerate(items) if item[6] is not None}
        plan: list[tuple[Message | None, str]] = []  # who holds the item's key, and what follows
        for i, item in enumerate(items):
            holder = None if item[6] is None else q.find(None, item[6])
            if last.get(item[6], i) != i:
                plan.append((None, base.COLLAPSED))
            elif holder is None or holder.state == "x":
                plan.append((holder, base.SENT))
            elif item[7] == "e":
                plan.append((holder, base.CONFLICT))
            elif item[7] == "i":
                plan.append((holder, base.DUPLICATE))
            else:
                plan.append((holder, base.REFUSED if holder.state == "l" else base.REPLACED))
        if any(outcome == base.CONFLICT for _, outcome in plan):
            return [(holder.id if holder else 0, outcome) for holder, outcome in plan]
        new = Counter(
            item[0] for item, (_, outcome) in zip(items, plan, strict=True) if outcome == base.SENT
        )
        full = {channel for channel, count in new.items() if not self._fits(q, channel, count)}
        if full:
            return [
                (0, base.FULL if item[0] in full and outcome == base.SENT else outcome)
                for item, (_, outcome) in zip(items, plan, strict=True)
            ]
        ids = [
            self._send_one(q, item, holder, outcome, now)
            for item, (holder, outcome) in zip(items, plan, strict=True)
        ]
        q.count(now, "sent", sum(new.values()))
        return [(ids[last.get(item[6], i)], plan[i][1]) for i, item in enumerate(items)]

    def _fits(self, q: Queue, channel: str, new: int) -> bool:
        bound = q.policy(channel).max_size
        return bound is None or len(q.select(UNFINISHED, channel)) + new <= bound

    def _send_one(
        self, q: Queue, item: base.SendRow, holder: Message | None, outcome: str, now: int
    ) -> int:
        if outcome == base.COLLAPSED:
            return 0
        if holder is not None and outcome in (base.DUPLICATE, base.REFUSED):
            return holder.id
        (channel, body, is_json, rank, due, delay, key, _) = item[:8]
        (version, type_, headers, lease_us, max_attempts, expires) = item[8:]
        if expires is None:
            expires = q.columns["expires_us"]
        message = Message(
            id=0,
            channel=channel,
            body=body,
            headers=headers,
            key=key,
            version=version,
            type=type_,
            priority=-rank,
            due_at=0,
            created_at=now,
            json=BODY_JSON if is_json else 0,
            state="",
            lease_us=lease_us,
            max_attempts=max_attempts,
            expires_at=None if expires is None else now + expires,
        )
        message.schedule(now + delay if due is None else due, now)
        if holder is not None and outcome == base.REPLACED:
            message.id, message.deliveries = holder.id, holder.deliveries
            if holder.state != "d":
                message.created_at = holder.created_at
        else:
            self._state.last_id += 1
            message.id = self._state.last_id
            if holder is not None:  # a dead one
                holder.key = None
        q.messages[message.id] = message
        return message.id

    # --- receiving ---------------------------------------------------------------------------
    @op
    def receive(
        self, queue: str, args: base.Receive, memory: base.Memory, now: int | None
    ) -> base.Received:
        q, now = self._queue(queue), self._now(now)
        if args.permit is not None and not self._alive(args.permit, now):
            raise errors.PermitLost(args.permit)
        leased, lost = self._split(q, args.acks)
        self._ack(q, leased, now)
        self._sweep(q, limits.SWEEP, now)
        if q.columns["paused"]:
            return base.Received([], None, lost)
        chosen = choose(q, args, memory, now)
        if not chosen:
            return base.Received([], retry_after(q, args, now), lost)
        for channel, message in chosen:
            message.state = "l"
            message.attempts += 1
            message.deliveries += 1
            message.lease_until = now + q.lease_us(message, args.lease_us)
            message.permit = args.permit
            message.begun = 1 if q.policy(channel).ordered else message.begun
        q.count(now, "delivered", len(chosen))
        for channel, given in Counter(channel for channel, _ in chosen).items():
            policy = q.policy(channel)
            rate = Rate.of(policy.rate_count, policy.rate_period_us, policy.burst)
            if rate:
                q.tats[channel] = rate.charged(q.tats.get(channel, 0), now, given)
        if q.limit_rate:
            q.tat = q.limit_rate.charged(q.tat, now, len(chosen))
        return base.Received([message.row for _, message in chosen], None, lost)

    # --- the verbs ---------------------------------------------------------------------------
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
            else:
                del q.messages[message.id]
        q.count(now, "acked", len(leased))

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
        strict: bool,
        now: int | None,
    ) -> tuple[list[int], int | None]:
        q, leased, lost = self._leased(queue, leases, strict)
        now = self._now(now)
        until: int | None = None
        for message in leased:
            until = max(message.lease_until or 0, now + q.lease_us(message, lease_us))
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

    # --- waiting and finished messages -------------------------------------------------------
    @op
    def cancel(
        self, queue: str, id: int | None, key: str | None, force: bool, now: int | None
    ) -> str:
        q = self._queue(queue)
        message = q.find(id, key)
        if message is None or (message.state in FINISHED and not force):
            return "n"
        if message.state == "l" and not force:
            return "l"
        del q.messages[message.id]
        q.count(self._now(now), "cancelled")
        return "c"

    @op
    def reschedule(
        self,
        queue: str,
        id: int | None,
        key: str | None,
        due_us: int | None,
        delay_us: int | None,
        rank: int | None,
        now: int | None,
    ) -> str:
        message, now = self._queue(queue).find(id, key), self._now(now)
        if message is None or message.state not in "srl":
            return "n"
        if message.state == "l":
            return "l"
        if delay_us is not None and due_us is None:
            due_us = now + delay_us
        if due_us is not None:
            message.schedule(due_us, now)
        if rank is not None:
            message.priority = -rank
        return "c"

    @op
    def redrive(
        self, queue: str, to: str | None, limit: int, delay_us: int, now: int | None
    ) -> int:
        q, now = self._queue(queue), self._now(now)
        target = q if to is None else self._queue(to)
        dead = self._finished(q, "x")[:limit]
        for message in dead:
            message.attempts = message.begun = 0
            message.finished_at = None
            message.schedule(now + delay_us, now)
            if target is not q:
                self._move(q, target, message, now)
        return len(dead)

    @op
    def discard(self, queue: str, state: str, limit: int, now: int | None) -> int:
        q = self._queue(queue)
        finished = self._finished(q, state)[:limit]
        self._delete(q, finished)
        q.count(self._now(now), "cancelled", len(finished))
        return len(finished)

    # --- permits -----------------------------------------------------------------------------
    @op
    def permit_create(self, name: str, ttl_us: int, now: int | None) -> int:
        now = self._now(now)
        self._state.last_permit += 1
        permit = Permit(self._state.last_permit, name, now, now + ttl_us)
        self._state.permits[permit.id] = permit
        return permit.id

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
    def permits(self, now: int | None) -> Rows:
        now = self._now(now)
        return [
            (permit.id, permit.name, permit.created_at, permit.expires_at, self._leases(permit.id))
            for permit in self._state.permits.values()
            if self._alive(permit.id, now)
        ]

    # --- insight -----------------------------------------------------------------------------
    @op
    def get(self, queue: str, id: int | None, key: str | None, now: int | None) -> Row | None:
        message = self._queue(queue).find(id, key)
        if message is None or message.past_expiry(self._now(now)):
            return None
        return message.peek_row

    @op
    def peek(
        self,
        queue: str,
        n: int,
        state: str | None,
        channel: str | None,
        after: int,
        now: int | None,
    ) -> Rows:
        now = self._now(now)
        found = self._queue(queue).select(
            UNFINISHED + FINISHED if state is None else state, channel
        )
        return [m.peek_row for m in found if m.id > after and not m.past_expiry(now)][:n]

    @op
    def stats(self, queue: str | None, now: int | None) -> Rows:
        now = self._now(now)
        queues = self._by_name() if queue is None else [self._queue(queue)]
        return [self._stats(q, now) for q in queues]

    def _stats(self, q: Queue, now: int) -> Row:
        states: Counter[str] = Counter()
        versions: Counter[int] = Counter()
        due: list[int] = []
        for message in q.messages.values():
            if message.past_expiry(now):
                continue
            state = message.state
            if (state == "s" and message.due_at <= now) or (
                state == "l" and message.past_lease(now) and not self._alive(message.permit, now)
            ):
                state = "r"
            if state == "r":
                due.append(message.due_at)
            states[state] += 1
            versions[message.version] += 1
        by_state = (states[state] for state in "rslhdx")
        return (
            q.name,
            *by_state,
            *counters(q.totals),
            min(due, default=None),
            json.dumps(versions),
        )

    @op
    def history(self, queue: str, since: int, now: int | None) -> Rows:
        minutes = sorted(self._queue(queue).minutes.items())
        return [(at, *counters(counted)) for at, counted in minutes if at >= since]

    @op
    def facts(
        self, queue: str, id: int | None, key: str | None, now: int | None
    ) -> base.Facts | None:
        q, now = self._queue(queue), self._now(now)
        message = q.find(id, key)
        if message is None or message.past_expiry(now):
            return None
        policy = q.policy(message.channel)
        leased = q.select("l", message.channel)
        return base.Facts(
            row=message.peek_row,
            now=now,
            queue=dict(q.columns),
            policy=policy,
            ahead=sum(m.order < message.order for m in q.select("r", message.channel)),
            leased=len(leased),
            leased_queue=len(q.select("l")),
            next_lease_end=min((m.lease_until or 0 for m in leased), default=None),
            tat=q.tats.get(message.channel, 0),
            queue_tat=q.tat,
            blocking_id=self._blocking(q, message) if policy.ordered else None,
        )

    def _blocking(self, q: Queue, message: Message) -> int | None:
        """What an ordered channel waits for: a lease, a retry on its way, one that goes first."""
        others = [m for m in q.select("lsr", message.channel) if m is not message]
        leased = [m.id for m in others if m.state == "l"]
        retried = [m.id for m in others if m.state == "s" and m.begun]
        first = [m.id for m in others if m.state == "r" and m.begun and not message.begun]
        return next(iter(leased + retried + first), None)

    @op
    def failures(self, queue: str, id: int | None, key: str | None, n: int) -> Rows:
        newest_first = reversed(self._queue(queue).failures)
        return [
            failure[:-1]
            for failure in newest_first
            if id in (None, failure.message_id) and key in (None, failure.key)
        ][:n]

    @op
    def trace(self, key: str) -> Rows:
        steps: Rows = []
        for q in self._by_name():
            for m in q.messages.values():
                if m.key == key:
                    steps.append((m.created_at, q.name, "message", m.id, m.state, ""))
            for f in q.failures:
                if f.key == key:
                    state = "x" if f.killed else "r"
                    steps.append((f.at, q.name, "error", f.message_id, state, f.error))
        return sorted(steps, key=lambda step: (step[0], step[3]))

    # --- care --------------------------------------------------------------------------------
    @op
    def maintain(self, limit: int, now: int | None) -> tuple[int, int, int, int, bool]:
        now = self._now(now)
        done: Counter[str] = Counter()
        more = False
        for q in self._by_name():
            kinds = self._maintain_queue(q, limit, now)
            more = more or max(kinds.values()) >= limit
            done += kinds
        lanes = self._state.purged
        more = more or any(rows >= limit for rows in lanes)
        done["purged"] += sum(min(rows, limit) for rows in lanes)
        self._state.purged = [rows - limit for rows in lanes if rows > limit]
        for permit in list(self._state.permits):
            if not self._alive(permit, now) and not self._leases(permit):
                del self._state.permits[permit]
        purged = done["done"] + done["dead"] + done["failures"] + done["purged"]
        return done["promoted"], done["recovered"], done["killed"], purged, more

    def _maintain_queue(self, q: Queue, limit: int, now: int) -> Counter[str]:
        kinds = self._sweep(q, limit, now)
        done_kept = q.columns["retention_us"] or limits.RESULT_RETENTION
        dead_kept = q.columns["dead_retention_us"]
        for kind, state, kept in ("done", "d", done_kept), ("dead", "x", dead_kept):
            if kept is not None:
                finished = self._finished(q, state)
                old = [m for m in finished if (m.finished_at or 0) + kept <= now][:limit]
                self._delete(q, old)
                kinds[kind] = len(old)
        failures, q.failures = q.failures, []
        for failure in failures:
            if failure.at + q.columns["failure_retention_us"] > now or kinds["failures"] >= limit:
                q.failures.append(failure)
            else:
                kinds["failures"] += 1
        kept = now - limits.HISTORY_RETENTION
        q.minutes = {at: counted for at, counted in q.minutes.items() if at > kept}
        q.tats = {channel: tat for channel, tat in q.tats.items() if tat > now}
        return kinds

    def _sweep(self, q: Queue, limit: int, now: int) -> Counter[str]:
        """§2.2; what was done, and under ``expired`` and ``leases`` what was met."""
        expired = [m for m in q.messages.values() if m.past_expiry(now)]
        expired = sorted(expired, key=lambda m: (m.expires_at, m.id))[:limit]
        self._delete(q, expired)
        q.count(now, "expired", sum(m.deliveries == 0 for m in expired))

        leases = [m for m in q.select("l") if m.past_lease(now)]
        leases = sorted(leases, key=lambda m: (m.lease_until, m.id))[:limit]
        done = Counter(expired=len(expired), leases=len(leases))
        for message in leases:
            permit = self._alive(message.permit, now)
            if permit:
                message.lease_until = permit.expires_at
                continue
            self._state.permits.pop(message.permit or 0, None)
            if q.attempts_left(message):
                message.end_lease()
                message.state, message.recovered = "r", 1
                done["recovered"] += 1
            else:
                self._log(q, message, EXPIRED, None, None, True, now)
                self._die(q, message, EXPIRED, now)
                done["killed"] += 1
        q.count(now, "recovered", done["recovered"])

        due = [m for m in q.select("s") if m.due_at <= now]
        for message in sorted(due, key=lambda m: (m.due_at, m.id))[:limit]:
            message.state = "r"
            done["promoted"] += 1
        return done

    # --- what several operations share -------------------------------------------------------
    def _now(self, now: int | None) -> int:
        return self._clock() if now is None else now

    def _queue(self, name: str) -> Queue:
        queue = self._state.queues.get(name)
        if queue is None:
            raise errors.QueueNotFound(name)
        return queue

    def _by_name(self) -> list[Queue]:
        return [queue for _, queue in sorted(self._state.queues.items())]

    def _alive(self, permit: int | None, now: int) -> Permit | None:
        found = self._state.permits.get(permit or 0)
        return found if found and found.expires_at > now else None

    def _leases(self, permit: int) -> int:
        return sum(m.permit == permit for q in self._by_name() for m in q.select("l"))

    def _leased(
        self, queue: str, leases: Sequence[Lease], strict: bool
    ) -> tuple[Queue, list[Message], list[int]]:
        """The queue, the messages whose lease is valid, and the ids of the lost ones (§5)."""
        q = self._queue(queue)
        leased, lost = self._split(q, leases)
        if strict and lost:
            raise errors.LeaseLost(queue, lost)
        return q, leased, lost

    def _split(self, q: Queue, leases: Sequence[Lease]) -> tuple[list[Message], list[int]]:
        leased: list[Message] = []
        lost: list[int] = []
        for id, delivery in dict.fromkeys(leases):
            message = q.messages.get(id)
            if message and message.state == "l" and message.deliveries == delivery:
                leased.append(message)
            else:
                lost.append(id)
        return leased, lost

    def _backoff(self, q: Queue, message: Message) -> int:
        initial, factor = q.columns["backoff_initial_us"], q.columns["backoff_factor"]
        return min(initial * factor ** (message.attempts - 1), q.columns["backoff_max_us"])

    def _log(
        self,
        q: Queue,
        message: Message,
        error: str,
        details: bytes | None,
        reference: str | None,
        killed: bool,
        now: int,
    ) -> None:
        m = message
        q.failures.append(
            Failure(q.name, m.id, m.key, m.attempts, now, error, details, reference, killed)
        )
        q.count(now, "errors")

    def _die(self, q: Queue, message: Message, error: str, now: int) -> None:
        """§2.4."""
        q.count(now, "killed")
        message.end_lease()
        message.error = error
        message.finish("x", now)
        target = self._state.queues.get(q.columns["dead_letter"])
        if target is None or target is q:
            return
        message.finished_at = None
        message.attempts = 0
        message.schedule(now, now)
        expires = target.columns["expires_us"]
        message.expires_at = None if expires is None else now + expires
        self._move(q, target, message, now)

    def _move(self, q: Queue, target: Queue, message: Message, now: int) -> None:
        message.key = None
        del q.messages[message.id]
        target.messages[message.id] = message
        target.count(now, "sent")

    def _finished(self, q: Queue, state: str) -> list[Message]:
        return sorted(q.select(state), key=lambda m: (m.finished_at, m.id))

    def _delete(self, q: Queue, messages: Iterable[Message]) -> None:
        for message in messages:
            del q.messages[message.id]
