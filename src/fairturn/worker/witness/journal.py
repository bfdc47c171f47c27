"""The journal: a list of the messages a worker holds that can be read after the worker's death.

It is a file that is mapped into memory: a change writes a few bytes, and the witness process, which
has the same file, can read them however the worker ended. There is one record for each message,
from its receive until it is settled.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

RECORDS = 1 << 15  # further messages have no record; their leases expire, as without a journal
# state, number of the queue, attempts, max_attempts, id, token
_LAYOUT = struct.Struct("<BxHII4xqq")
SIZE = RECORDS * _LAYOUT.size

FREE = 0
HELD = 1  # waits for a slot
RUNNING = 2  # runs in the worker's process: it may be the cause of the worker's death
OWN_PROCESS = 3  # runs in a process of its own, which ends with the worker
DONE = 4  # its handler has succeeded, its ack is not stored yet
SETTLING = 5  # another verdict is being stored


class Record(NamedTuple):
    state: int
    queue: int
    attempts: int
    max_attempts: int  # 0: no limit
    id: int
    token: int


class Journal:
    """The worker's side, which writes."""

    def __init__(self, file: int, queues: Sequence[str]) -> None:
        self._map = mmap.mmap(file, SIZE)
        self._numbers = {name: number for number, name in enumerate(queues)}
        self._free = list(range(0, SIZE, _LAYOUT.size))
        self._at: dict[int, int] = {}  # positions of the records, by the message's id

    def hold(self, queue: str, id: int, token: int, attempts: int, max_attempts: int) -> None:
        at = self._at.get(id)
        if at is None:
            if not self._free:
                return
            at = self._at[id] = self._free.pop()
        number = self._numbers[queue]
        _LAYOUT.pack_into(self._map, at, HELD, number, attempts, max_attempts, id, token)

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
    """Read the records of a journal."""
    with mmap.mmap(file, SIZE, access=mmap.ACCESS_READ) as content:
        for state, *rest in _LAYOUT.iter_unpack(content[:SIZE]):
            if state != FREE:
                yield Record(state, *rest)
