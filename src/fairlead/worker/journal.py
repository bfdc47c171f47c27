"""What a worker holds, where it can still be read when the worker is gone.

A file that is mapped into memory: to note something down is to write a few bytes, and whoever else
has the file reads them, however the worker ended. One record for each message, from its receive to
its settling.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

RECORDS = 1 << 15  # what does not fit is not noted; its lease expires, as without a journal
# state, number of the queue, attempts, most attempts, id, delivery
_LAYOUT = struct.Struct("<BxHII4xqq")
SIZE = RECORDS * _LAYOUT.size

FREE = 0
HELD = 1  # waits for a slot
RUNNING = 2  # in this process: it may be what takes it down
ALONE = 3  # in a process of its own, which dies with this one
DONE = 4  # its ack is on its way
SETTLING = 5  # another verdict is


class Record(NamedTuple):
    state: int
    queue: int
    attempts: int
    most: int  # attempts; 0: any number
    id: int
    delivery: int


class Journal:
    """The worker's side: it writes."""

    def __init__(self, file: int, queues: Sequence[str]) -> None:
        self._map = mmap.mmap(file, SIZE)
        self._numbers = {name: number for number, name in enumerate(queues)}
        self._free = list(range(0, SIZE, _LAYOUT.size))
        self._at: dict[int, int] = {}  # by the message's id

    def hold(self, queue: str, id: int, delivery: int, attempts: int, most: int) -> None:
        at = self._at.get(id)
        if at is None:
            if not self._free:
                return
            at = self._at[id] = self._free.pop()
        _LAYOUT.pack_into(self._map, at, HELD, self._numbers[queue], attempts, most, id, delivery)

    def mark(self, id: int, state: int) -> None:
        at = self._at.get(id)
        if at is not None:
            self._map[at] = state

    def forget(self, ids: Iterable[int]) -> None:
        for id in ids:
            at = self._at.pop(id, None)
            if at is not None:
                self._map[at] = FREE
                self._free.append(at)

    def close(self) -> None:
        self._map.close()


def records(file: int) -> Iterator[Record]:
    """What a journal says."""
    with mmap.mmap(file, SIZE, access=mmap.ACCESS_READ) as content:
        for fields in _LAYOUT.iter_unpack(content[:SIZE]):
            if fields[0] != FREE:
                yield Record(*fields)
