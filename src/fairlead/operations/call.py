"""A call that is ready to run, and what all calls of one Database share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fairlead.backends.base import Backend, Memory, Op

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """``start()`` makes a fresh operation each time. ``repeatable`` says that running it twice is
    harmless, so that it may be repeated after a connection broke at an unknown moment."""

    what: str
    start: Callable[[], Op[T]]
    repeatable: bool = False
    needs_schema: bool = True  # False: it is what makes the schema


@dataclass(slots=True)
class Core:
    """A backend, the clock of tests (None: the database's), and what consumers remember."""

    backend: Backend
    clock: Callable[[], int] | None = None
    memories: dict[str, Memory] = field(default_factory=dict[str, Memory])

    def now(self) -> int | None:
        return None if self.clock is None else self.clock()

    def memory(self, queue: str) -> Memory:
        return self.memories.setdefault(queue, Memory())

    def look_again(self, queue: str) -> None:
        """Something of ours now lies before what its consumer has read: forget how far that was."""
        self.memory(queue).extra = None
