"""What a queue remembers for a while (docs/semantics.md §19); a part of the seam.

One table holds the once names of sends and your values under your names, each with the time at
which it is forgotten. The two kinds of names do not conflict. ``Backend.send`` handles the once
names.
"""

from __future__ import annotations

from typing import Protocol

from fairturn.backends.steps import Op

ONCE, VALUE = "o", "v"  # the kinds of names


class Remembering(Protocol):
    def remember(
        self, queue: str, name: str, value: bytes, keep_us: int, now: int | None
    ) -> Op[None]:
        """Store a value under a name, instead of the old one."""
        ...

    def recall(self, queue: str, name: str, now: int | None) -> Op[bytes | None]:
        """The value under a name; None: there is none, or it is forgotten."""
        ...
