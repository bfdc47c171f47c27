"""One of an ordered channel at a time, and none after one that was not taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairturn.relay.destination import Later, Parcel
from fairturn.relay.ordered_batches import OrderedBatches


@dataclass
class Fake:
    id: int
    channel: str
    ordered: bool


messages = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30)


@given(messages, st.sets(st.integers(0, 29)))
def test_batches(given_: list[tuple[str, bool]], refused: set[int]) -> None:
    """Channels in capitals are ordered."""
    every: list[Any] = [
        Fake(i, channel.upper() if ordered else channel, ordered)
        for i, (channel, ordered) in enumerate(given_)
    ]
    batches = OrderedBatches([Parcel(message, 0) for message in every])
    brought: list[int] = []
    taken: list[int] = []
    for batch in batches:
        ordered = [p.message.channel for p in batch if p.message.ordered]
        assert len(ordered) == len(set(ordered))
        for parcel in batch:
            brought.append(parcel.message.id)
            refuse = parcel.message.id in refused
            batches.judged(parcel, Later("no") if refuse else None)
            if not refuse:
                taken.append(parcel.message.id)
    held_back = [parcel.message.id for parcel in batches.held_back]
    assert sorted(brought + held_back) == [message.id for message in every]
    for channel in "ABC":
        run = [m.id for m in every if m.channel == channel]
        first = next((i for i, id in enumerate(run) if id in refused), len(run))
        assert [id for id in taken if id in run] == run[:first]
        assert [id for id in held_back if id in run] == run[first + 1 :]
