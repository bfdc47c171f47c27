"""Receiving: the acks it carries, the sweep, the choice of messages, the leases (§4, §2.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fairturn.backends.base import ConsumerState, Receive, Received
from fairturn.backends.memory.core import op
from fairturn.backends.memory.queues import Queues
from fairturn.backends.memory.state import NO_LIMIT, Message, Queue, Rate
from fairturn.backends.memory.verbs import Verbs
from fairturn.backends.verbs import ACK
from fairturn.core import errors, limits
from fairturn.core.settings import PolicyRow

EXPIRED = "lease expired with no attempts left"


class Receiving(Verbs, Queues):
    @op
    def receive(
        self, queue: str, args: Receive, consumer: ConsumerState, now: int | None
    ) -> Received:
        q, now = self._queue(queue), self._now(now)
        if args.permit is not None and not self._alive(args.permit, now):
            raise errors.PermitLost(args.permit)
        leased, lost = self._split(q, args.acks)
        self._apply(q, ACK, leased, now)
        self._sweep(q, limits.SWEEP, now)
        if self.closes_at_once:  # before the choice: it deletes messages and sends others
            self.judge(now)
        if q.columns["paused"]:
            return Received([], None, lost)
        chosen = choose(q, args, consumer, now)
        if not chosen:
            return Received([], retry_after(q, args, now), lost)
        for channel, message in chosen:
            message.state = "l"
            message.attempts += 1
            message.deliveries += 1
            message.token = args.token
            message.lease_until = now + q.lease_us(message, args.lease_us)
            message.permit = args.permit
            message.begun = 1 if q.policy(channel).ordered else message.begun
            message.progress = message.note = None
            message.first_at = now if message.first_at is None else message.first_at
            told = {"attempts": message.attempts, "deliveries": message.deliveries}
            self._tell(q, "leased", message, now, data=told)
        q.count(now, "delivered", len(chosen))
        for channel, given in Counter(channel for channel, _ in chosen).items():
            policy = q.policy(channel)
            rate = Rate.of(policy.rate_count, policy.rate_period_us, policy.burst)
            if rate:
                q.tats[channel] = rate.charged(q.tats.get(channel, 0), now, given)
        if q.limit_rate:
            q.tat = q.limit_rate.charged(q.tat, now, len(chosen))
        return Received([message.row for _, message in chosen], None, lost)

    def _sweep(self, q: Queue, limit: int, now: int) -> Counter[str]:
        """§2.2. Returns counts: ``expired`` and ``leases`` are how many were found, the others how
        many were changed."""
        expired = [m for m in q.messages.values() if m.past_expiry(now)]
        expired = sorted(expired, key=lambda m: (m.expires_at, m.id))[:limit]
        self._delete(q, expired, now)
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
        done["forgotten"] = self._forget(q, limit, now)
        return done


# --- the choice ----------------------------------------------------------------------------------
@dataclass(slots=True)
class Offer:
    """What one channel could deliver in this call."""

    policy: PolicyRow
    messages: list[Message]  # eligible, in order
    slots: int  # by its max_concurrency
    rate: Rate | None
    tat: int
    room: int  # by all its limits


def choose(
    queue: Queue, args: Receive, consumer: ConsumerState, now: int
) -> list[tuple[str, Message]]:
    """The messages to lease, each with its channel. Moves the consumer's position on."""
    offers = {channel: offer for channel, offer in _offers(queue, args, now) if offer.room > 0}
    chosen: list[tuple[str, Message]] = []
    size = 0
    for _ in range(min(args.n, limit_left(queue, now))):
        giving = sorted(channel for channel, offer in offers.items() if offer.messages)
        if not giving:
            break
        if consumer.credit > 0 and consumer.channel in giving:
            channel, credit = consumer.channel, consumer.credit - 1
        else:
            after = (c for c in giving if consumer.channel is None or c > consumer.channel)
            channel = next(after, min(giving))
            credit = offers[channel].policy.weight - 1
        offer = offers[channel]
        message = offer.messages.pop(0)
        size += len(message.body)
        if chosen and args.max_bytes is not None and size > args.max_bytes:
            break
        chosen.append((channel, message))
        consumer.channel, consumer.credit = channel, credit
        offer.room -= 1
        if offer.room == 0:
            del offers[channel]
    return chosen


def retry_after(queue: Queue, args: Receive, now: int) -> int | None:
    """When a receive that found nothing should be repeated (§4.12)."""
    waits = [message.due_at - now for message in queue.select("s")]
    waits += [(message.lease_until or 0) - now for message in queue.select("l")]
    offers = [offer for _, offer in _offers(queue, args, now)]
    for offer in offers:
        closed = offer.rate and offer.rate.allowed(offer.tat, now) == 0
        if offer.rate and closed and offer.slots > 0 and not offer.policy.paused:
            waits.append(offer.rate.wait(offer.tat, now))
    rate = queue.limit_rate
    if offers and rate and rate.allowed(queue.tat, now) == 0 and _limit_slots(queue) > 0:
        waits.append(rate.wait(queue.tat, now))
    return max(min(waits), 0) if waits else None


def _offers(queue: Queue, args: Receive, now: int) -> Iterator[tuple[str, Offer]]:
    """The channels that have eligible messages, with what their policies allow."""
    for channel in {message.channel for message in queue.select("r")}:
        policy = queue.policy(channel)
        messages = _eligible(queue, channel, policy, args, now)
        if messages:
            leased = len(queue.select("l", channel))
            slots = NO_LIMIT if policy.max_concurrency is None else policy.max_concurrency - leased
            rate = Rate.of(policy.rate_count, policy.rate_period_us, policy.burst)
            tat = queue.tats.get(channel, 0)
            room = min(slots, rate.allowed(tat, now) if rate else NO_LIMIT)
            room = 0 if policy.paused else room
            yield channel, Offer(policy, messages, slots, rate, tat, room)


def _eligible(
    queue: Queue, channel: str, policy: PolicyRow, args: Receive, now: int
) -> list[Message]:
    """The eligible messages of a channel, in order. An ordered channel has no gaps (§4.7)."""
    ready = queue.select("r", channel)
    if not policy.ordered:
        return sorted((m for m in ready if _fits(m, args, now)), key=lambda m: m.order)
    if any(m.state == "l" or m.begun for m in queue.select("ls", channel)):
        return []
    run: list[Message] = []
    for message in sorted(ready, key=_in_turn):
        if not _fits(message, args, now):
            break
        run.append(message)
    return run


def _in_turn(message: Message) -> tuple[bool, int, int, int]:
    """The order of an ordered channel: a retry goes first, though it is due later (§4.7)."""
    due = 0 if message.begun else message.due_at
    return not message.begun, -message.priority, due, message.id


def _fits(message: Message, args: Receive, now: int) -> bool:
    """Is a ready message eligible (§4.4)?"""
    return (
        not message.past_expiry(now)
        and args.version in (None, message.version)
        and (args.types is None or message.type in args.types)
        and (args.min_priority is None or message.priority >= args.min_priority)
    )


def _limit_slots(queue: Queue) -> int:
    limit: int | None = queue.columns["limit_concurrency"]
    return NO_LIMIT if limit is None else max(limit - len(queue.select("l")), 0)


def limit_left(queue: Queue, now: int) -> int:
    """How many messages the queue's own limit allows now (§4.3)."""
    rate = queue.limit_rate
    return min(_limit_slots(queue), rate.allowed(queue.tat, now) if rate else NO_LIMIT)
