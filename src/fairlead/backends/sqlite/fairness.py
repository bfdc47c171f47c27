"""Whose turn it is (§4.8): the round-robin over channels, computed in turns and not in messages.

The rule is written as if one message were taken after the other. Between two looks at the memory
(channel, credit) only whole turns happen, so a receive needs to know just three things:

* the *ring*: the channels that are open and have something to give, in byte order from the memory
  on, found one probe each, and no more of them than the batch needs;
* each channel's *room* and *weight*, judged once per call (gates.py);
* each channel's first messages, as many as its turns can take.

First what is left of the last turn; then once round, each channel a turn of `weight` messages;
then, with the whole ring known, as many full rounds as fit into the batch at once, and the rest of
a round. A channel whose supply is unknown is looked up before its turn, all channels of a round in
one statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairlead.backends.base import Memory, Op, Receive, Row
from fairlead.backends.sqlite.common import SQL, Queue, json_of

UNLIMITED = 1 << 62
NO_END = b""  # greater than every text


@dataclass(slots=True)
class Channel:
    """An open channel with something to give, during one receive."""

    name: str
    weight: int
    room: int
    ids: list[int]  # its first messages, in order; at least one
    dry: bool = False  # ids is all it can give
    dealt: int = 0  # how many of ids have been given
    ordered: bool = False
    interval: int = 0  # of its rate; 0: it has none
    base: int = 0  # GCRA: where tat starts from when it gives

    @property
    def empty(self) -> bool:
        return self.room == 0 or (self.dry and self.dealt == len(self.ids))

    def knows(self, number: int) -> bool:
        """Its next `number` messages have been looked up, or it has no more."""
        return self.dry or len(self.ids) - self.dealt >= number


@dataclass(slots=True)
class Turn:
    """Messages a channel gave in one go, and the credit it started with."""

    channel: Channel
    credit: int
    ids: list[int]

    def credit_after(self, given: int) -> int:
        """What is left when the turn stops after `given` messages.

        A channel alone in the ring takes turn after turn in one go, so the credit goes round.
        """
        return self.credit - 1 - (given - 1) % self.credit


@dataclass(slots=True)
class Call:
    """One receive on its way."""

    queue: Queue
    args: Receive
    versions: list[int]  # to look in
    filtered: bool  # versions to merge, types, or expired messages to pass by
    left: int  # messages still wanted
    max_rank: int
    # The parts of the circle not yet walked: (first, last) channel names, both inclusive.
    segments: list[tuple[str, str | bytes]] = field(default_factory=list[tuple[str, str | bytes]])
    known: dict[str, Channel | None] = field(default_factory=dict[str, Channel | None])
    turns: list[Turn] = field(default_factory=list[Turn])
    closed: int = 0  # channels walked past
    spent: bool = False  # the budget for closed channels ran out before the circle was closed
    eligible: bool = False  # some channel has an eligible message
    wake_at: int | None = None  # when the first channel's rate lets something through
    all_versions: list[int] | None = None

    def wake(self, at: int) -> None:
        if self.wake_at is None or at < self.wake_at:
            self.wake_at = at

    def give(self, channel: Channel, most: int, credit: int) -> None:
        """Take up to `most` messages of what is known of the channel."""
        number = min(most, channel.room, self.left, len(channel.ids) - channel.dealt)
        if number > 0:
            ids = channel.ids[channel.dealt : channel.dealt + number]
            self.turns.append(Turn(channel, credit, ids))
            channel.dealt += number
            channel.room -= number
            self.left -= number


def circle(memory: Memory) -> list[tuple[str, str | bytes]]:
    """Once round from the memory: after its channel to the end, then from the start up to it."""
    if memory.channel is None:
        return [("", NO_END)]
    return [(after(memory.channel), NO_END), ("", memory.channel)]


def after(channel: str) -> str:
    """The least string greater than a name: names hold no NUL."""
    return channel + "\0"


def walk(call: Call, first: str, last: str | bytes, limit: int) -> Op[list[Row]]:
    """Channels with something ready, their heads and policies."""
    queue = call.queue
    if call.filtered:
        types = call.args.types
        return (
            yield (
                SQL.walk_filtered,
                (
                    queue.lane,
                    json_of(call.versions),
                    first,
                    last,
                    limit,
                    queue.id,
                    None if types is None else json_of(list(types)),
                    queue.now,
                ),
            )
        )
    return (yield SQL.walk, (queue.lane, call.versions[0], first, last, limit, queue.id))


def supply(call: Call, wanted: Sequence[tuple[Channel, int]]) -> Op[None]:
    """See to it that each channel knows its next `number` messages, or that it has no more."""
    groups: dict[int, dict[str, Channel]] = {}
    for channel, number in wanted:
        number = min(number, channel.room)
        if not channel.knows(number):
            total = channel.dealt + number
            groups.setdefault(total, {})[channel.name] = channel
    if len(groups) > 4:  # many weights: round up rather than send a statement for each
        merged: dict[int, dict[str, Channel]] = {}
        for total, channels in groups.items():
            merged.setdefault(1 << (total - 1).bit_length(), {}).update(channels)
        groups = merged
    for total, channels in groups.items():
        yield from _take(call, channels, total)


def _take(call: Call, channels: dict[str, Channel], number: int) -> Op[None]:
    lane, rank = call.queue.lane, call.max_rank
    if call.filtered:
        types = call.args.types
        fits = (None if types is None else json_of(list(types)), call.queue.now)
        versions, names = json_of(call.versions), json_of(list(channels))
        rows = yield SQL.take_filtered, (lane, versions, names, rank, number, *fits)
    elif len(channels) == 1:
        (channel,) = channels.values()
        rows = yield SQL.take, (lane, call.versions[0], channel.name, rank, number)
        channel.ids = [row[0] for row in rows]
        channel.dry = len(rows) < number
        return
    else:
        names = json_of(list(channels))
        rows = yield SQL.take_each, (lane, call.versions[0], names, rank, number)
    found: dict[str, list[int]] = {name: [] for name in channels}
    for name, id in rows:
        found[name].append(id)
    for name, ids in found.items():
        # Each version gave up to `number`: beyond that the merged order has gaps.
        channels[name].ids = ids[:number]
        channels[name].dry = len(ids) < number


def serve_round(call: Call, channels: Sequence[Channel]) -> Op[None]:
    """Give each channel a turn until the batch is full.

    Supplies as many channels as would fill the batch if all had enough; where some have not, the
    next ones are supplied in their turn.
    """
    served = 0
    while call.left > 0 and served < len(channels):
        wanted: list[tuple[Channel, int]] = []
        left = call.left
        for channel in channels[served:]:
            number = min(channel.weight, channel.room, left)
            wanted.append((channel, number))
            left -= number
            if left <= 0:
                break
        yield from supply(call, wanted)
        for channel, _ in wanted:
            # Where one before it fell short, there is more left for this one than was looked up.
            if not channel.knows(min(channel.weight, channel.room, call.left)):
                break
            call.give(channel, channel.weight, channel.weight)
            served += 1


def second_helpings(call: Call, ring: Sequence[Channel]) -> Op[None]:
    """With the whole ring known and room in the batch: round after round until all is given."""
    while call.left > 0:
        live = [channel for channel in ring if not channel.empty]
        if not live:
            return
        if len(live) == 1:
            yield from supply(call, [(live[0], call.left)])
            call.give(live[0], call.left, live[0].weight)
            continue
        rounds = call.left // sum(channel.weight for channel in live)
        if rounds == 0:
            yield from serve_round(call, live)
            continue
        # One round more than fits whole, for the rest that follows.
        want = [(ch, min(ch.weight * (rounds + 1), call.left)) for ch in live]
        yield from supply(call, want)
        for _ in range(rounds):
            for channel in live:
                call.give(channel, channel.weight, channel.weight)
