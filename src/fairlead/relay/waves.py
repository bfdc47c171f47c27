"""In what order messages are handed over: decisions only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.relay.destination import Outcome, Parcel


class Waves:
    """What a receive gave, in waves that may go to a destination together.

    Of an ordered channel there is one message in each wave, and none after one that was not handed
    over: a destination may take the second of a batch and refuse the first. All others are in the
    first wave."""

    def __init__(self, parcels: Sequence[Parcel]) -> None:
        self._first: list[Parcel] = []
        self._runs: dict[str, list[Parcel]] = {}
        for parcel in parcels:
            if parcel.message.ordered:
                self._runs.setdefault(parcel.message.channel, []).append(parcel)
            else:
                self._first.append(parcel)
        self.held_back: list[Parcel] = []  # their turn did not come

    def __iter__(self) -> Iterator[list[Parcel]]:
        wave, self._first = self._first, []
        while True:
            wave += [run.pop(0) for run in self._runs.values()]
            if not wave:
                return
            yield wave
            self._runs = {channel: run for channel, run in self._runs.items() if run}
            wave = []

    def judged(self, parcel: Parcel, outcome: Outcome) -> None:
        """Tell what became of one of the wave."""
        if outcome is not None and parcel.message.ordered:
            self.held_back += self._runs.pop(parcel.message.channel, [])

    def stop(self) -> None:
        """No more waves: the destination is down."""
        for run in self._runs.values():
            self.held_back += run
        self._runs.clear()
