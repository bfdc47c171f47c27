"""The order in which messages are handed over. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairturn.relay.destination import Outcome, Parcel


class OrderedBatches:
    """The messages of one receive, in batches that can be handed over together.

    A batch has at most one message of each ordered channel, and none if an earlier message of the
    channel was not handed over: in one batch, a destination may refuse the first and accept the
    second. All messages of other channels are in the first batch."""

    def __init__(self, parcels: Sequence[Parcel]) -> None:
        self._first: list[Parcel] = []
        self._runs: dict[str, list[Parcel]] = {}
        for parcel in parcels:
            if parcel.message.ordered:
                self._runs.setdefault(parcel.message.channel, []).append(parcel)
            else:
                self._first.append(parcel)
        self.held_back: list[Parcel] = []  # not handed over, because an earlier one was not

    def __iter__(self) -> Iterator[list[Parcel]]:
        batch, self._first = self._first, []
        while True:
            batch += [run.pop(0) for run in self._runs.values()]
            if not batch:
                return
            yield batch
            self._runs = {channel: run for channel, run in self._runs.items() if run}
            batch = []

    def judged(self, parcel: Parcel, outcome: Outcome) -> None:
        """Note the outcome of a parcel of the current batch."""
        if outcome is not None and parcel.message.ordered:
            self.held_back += self._runs.pop(parcel.message.channel, [])

    def stop(self) -> None:
        """Make no more batches, because the destination is down."""
        for run in self._runs.values():
            self.held_back += run
        self._runs.clear()
