"""The round over the channels (§4.8), computed by turns, not by messages.

The rule takes one message after the other. But a channel's turn is a run of messages, so a receive
needs to know only three things:

* the *ring*: the open channels with eligible messages, in byte order from the consumer's channel
  on. One index probe finds each; no more of them are read than the batch needs;
* each channel's *room* and *weight*, found once per call (gates.py);
* each channel's first messages, as many as its turns can take.

First comes the rest of the last turn; then one round, with a turn of `weight` messages for each
channel; then, when the whole ring is known, as many full rounds as fit into the batch, and the rest
of a round. The messages of a channel are read before its turn, those of a whole round in one
statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairturn.backends.base import ConsumerState, Receive
from fairturn.backends.sqlite.common import SQL, Queue, json_of
from fairturn.backends.steps import Op, Row

UNLIMITED = 1 << 62
NO_END = b""  # greater than every text


@dataclass(slots=True)
class Channel:
    """An open channel with eligible messages, during one receive."""

    name: str
    weight: int
    room: int
    ids: list[int]  # its first messages, in order; at least one
    dry: bool = False  # it has no messages but ids
    dealt: int = 0  # how many of ids are taken
    ordered: bool = False
    interval: int = 0  # of its rate; 0: it has none
    base: int = 0  # GCRA: the value to which a delivery adds its interval

    @property
    def empty(self) -> bool:
        return self.room == 0 or (self.dry and self.dealt == len(self.ids))

    def knows(self, number: int) -> bool:
        """Are its next `number` messages known, or has it no more?"""
        return self.dry or len(self.ids) - self.dealt >= number


@dataclass(slots=True)
class Turn:
    """Messages taken from a channel at once, and the credit before them."""

    channel: Channel
    credit: int
    ids: list[int]

    def credit_after(self, given: int) -> int:
        """The credit that is left after `given` messages.

        A channel that is alone in the ring takes several turns at once: the credit starts again.
        """
        return self.credit - 1 - (given - 1) % self.credit


@dataclass(slots=True)
class Call:
    """The state of one receive."""

    queue: Queue
    args: Receive
    versions: list[int]  # to look in
    filtered: bool  # several versions, types, or expired messages to skip
    left: int  # messages still wanted
    max_rank: int
    # The parts of the round that are not read yet: (first, last) channel names, both inclusive.
    segments: list[tuple[str, str | bytes]] = field(default_factory=list[tuple[str, str | bytes]])
    known: dict[str, Channel | None] = field(default_factory=dict[str, Channel | None])
    turns: list[Turn] = field(default_factory=list[Turn])
    closed: int = 0  # how many closed channels were read
    spent: bool = False  # too many closed channels: the round was not finished
    eligible: bool = False  # some channel has an eligible message
    wake_at: int | None = None  # when the first channel's rate allows a message
    all_versions: list[int] | None = None

    def wake(self, at: int) -> None:
        if self.wake_at is None or at < self.wake_at:
            self.wake_at = at

    def give(self, channel: Channel, most: int, credit: int) -> None:
        """Take up to `most` of the channel's known messages."""
        number = min(most, channel.room, self.left, len(channel.ids) - channel.dealt)
        if number > 0:
            ids = channel.ids[channel.dealt : channel.dealt + number]
            self.turns.append(Turn(channel, credit, ids))
            channel.dealt += number
            channel.room -= number
            self.left -= number


def circle(consumer: ConsumerState) -> list[tuple[str, str | bytes]]:
    """One round: from behind the consumer's channel to the end, then from the start up to it."""
    if consumer.channel is None:
        return [("", NO_END)]
    return [(after(consumer.channel), NO_END), ("", consumer.channel)]


def after(channel: str) -> str:
    """The least string that is greater than a name: names contain no NUL."""
    return channel + "\0"


def walk(call: Call, first: str, last: str | bytes, limit: int) -> Op[list[Row]]:
    """Channels with ready messages: the first message and the policy of each."""
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
    [version] = call.versions
    return (yield SQL.walk, (queue.lane, version, first, last, limit, queue.id))


def supply(call: Call, wanted: Sequence[tuple[Channel, int]]) -> Op[None]:
    """Read messages until each channel knows its next `number`, or has no more."""
    groups: dict[int, dict[str, Channel]] = {}
    for channel, number in wanted:
        number = min(number, channel.room)
        if not channel.knows(number):
            total = channel.dealt + number
            groups.setdefault(total, {})[channel.name] = channel
    if len(groups) > 4:  # many different weights: round up, to send fewer statements
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
        [channel], [version] = channels.values(), call.versions
        rows = yield SQL.take, (lane, version, channel.name, rank, number)
        channel.ids = [id for (id,) in rows]
        channel.dry = len(rows) < number
        return
    else:
        names, [version] = json_of(list(channels)), call.versions
        rows = yield SQL.take_each, (lane, version, names, rank, number)
    found: dict[str, list[int]] = {name: [] for name in channels}
    for name, id in rows:
        found[name].append(id)
    for name, ids in found.items():
        # Up to `number` of each version were read: behind that the merged order has gaps.
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
            # If one before it had too few, more is left for this one than was read.
            if not channel.knows(min(channel.weight, channel.room, call.left)):
                break
            call.give(channel, channel.weight, channel.weight)
            served += 1


def second_helpings(call: Call, ring: Sequence[Channel]) -> Op[None]:
    """The whole ring is known, and the batch is not full: more rounds."""
    while call.left > 0:
        live = [channel for channel in ring if not channel.empty]
        if not live:
            return
        if len(live) == 1:
            [channel] = live
            yield from supply(call, [(channel, call.left)])
            call.give(channel, call.left, channel.weight)
            continue
        rounds = call.left // sum(channel.weight for channel in live)
        if rounds == 0:
            yield from serve_round(call, live)
            continue
        # One round more than the full ones, for the rest.
        want = [(ch, min(ch.weight * (rounds + 1), call.left)) for ch in live]
        yield from supply(call, want)
        for _ in range(rounds):
            for channel in live:
                call.give(channel, channel.weight, channel.weight)
