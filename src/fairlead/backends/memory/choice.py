"""Which messages one receive gives: the round-robin of §4.3 to §4.9 and the wait of §4.12."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.backends.base import Memory, Receive
from fairlead.backends.memory.state import NO_LIMIT, Message, Policy, Queue, Rate


@dataclass(slots=True)
class Offer:
    """What one channel could give in this call."""

    policy: Policy
    messages: list[Message]  # eligible, in order
    slots: int  # by its concurrency
    rate: Rate | None
    tat: int
    room: int  # by everything


def choose(queue: Queue, args: Receive, memory: Memory, now: int) -> list[tuple[str, Message]]:
    """One message after the other, each with its channel; moves the consumer's memory on."""
    offers = {channel: offer for channel, offer in _offers(queue, args, now) if offer.room > 0}
    chosen: list[tuple[str, Message]] = []
    size = 0
    for _ in range(min(args.n, limit_left(queue, now))):
        giving = sorted(channel for channel, offer in offers.items() if offer.messages)
        if not giving:
            break
        if memory.credit > 0 and memory.channel in giving:
            channel, credit = memory.channel, memory.credit - 1
        else:
            after = [c for c in giving if memory.channel is None or c > memory.channel]
            channel = (after or giving)[0]
            credit = offers[channel].policy.weight - 1
        offer = offers[channel]
        message = offer.messages[0]
        size += len(message.body)
        if chosen and args.max_bytes is not None and size > args.max_bytes:
            break
        chosen.append((channel, message))
        memory.channel, memory.credit = channel, credit
        del offer.messages[0]
        offer.room -= 1
        if offer.room == 0:
            del offers[channel]
    return chosen


def retry_after(queue: Queue, args: Receive, now: int) -> int | None:
    """§4.12, for a receive that gave nothing."""
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
    """Every channel that could give something if its policy let it."""
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


def _eligible(queue: Queue, channel: str, policy: Policy, args: Receive, now: int) -> list[Message]:
    """What the channel could give, in order; of an ordered one the run from its head (§4.7)."""
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
    """§4.7: a retry is due later than those behind it, and still goes before them."""
    due = 0 if message.begun else message.due_at
    return not message.begun, -message.priority, due, message.id


def _fits(message: Message, args: Receive, now: int) -> bool:
    """§4.4, of a ready message."""
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
    """§4.3: what the limit over all channels leaves."""
    rate = queue.limit_rate
    return min(_limit_slots(queue), rate.allowed(queue.tat, now) if rate else NO_LIMIT)
