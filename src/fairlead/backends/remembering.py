"""What a database must be able to remember for a while (docs/semantics.md §19); a part of the seam.

One table holds the names of sends (`once`) and values under names of yours, each with the time at
which it is forgotten. The two kinds of names never meet. What a send does with its name is part of
``Backend.send``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fairlead.backends.base import Op

ONCE, VALUE = "o", "v"  # the kinds of names


class Remembering(Protocol):
    def remember(
        self, queue: str, name: str, value: bytes, keep_us: int, now: int | None
    ) -> Op[None]:
        """Overwrites what was under that name."""
        ...

    def recall(self, queue: str, name: str, now: int | None) -> Op[bytes | None]:
        """None: nothing, or it is forgotten."""
        ...
