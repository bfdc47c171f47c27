"""A call that is ready to run, and what all calls of one Database share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fairlead.backends.base import Backend, Memory, Op

T = TypeVar("T")
SETTLE = 100  # marks that a call settles on its way


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """``start()`` makes a fresh operation each time. ``repeatable`` says that running it twice is
    harmless, so that it may be repeated after a connection broke at an unknown moment. ``after`` is
    run when it has committed, on connections of our own only: what a later sweep would do too.
    ``until``: the moment (of time.monotonic) up to which repeating it is harmless."""

    what: str
    start: Callable[[], Op[T]]
    repeatable: bool = False
    needs_schema: bool = True  # False: it is what makes the schema
    after: Call[Any] | None = None
    until: float = math.inf


@dataclass(slots=True)
class Core:
    """A backend, the clock of tests (None: the database's), and what consumers remember."""

    backend: Backend
    clock: Callable[[], int] | None = None
    waker: Any = None  # where the facade sleeps until something changes …
    hub: Any = None  # … and waits for outcomes
    grouped: bool = False  # a group has been met, so what ends a message may end a group
    memories: dict[str, Memory] = field(default_factory=dict[str, Memory])

    def now(self) -> int | None:
        return None if self.clock is None else self.clock()

    def memory(self, queue: str) -> Memory:
        return self.memories.setdefault(queue, Memory())

    def settle(self, grouped: bool) -> Call[Any] | None:
        """What has to follow a call that may have ended members of a group (semantics §12.10)."""
        if grouped:
            self.grouped = True
        if not self.grouped:
            return None
        return Call("settle", lambda: self.backend.settle(SETTLE, self.now()), repeatable=True)

    def look_again(self, queue: str) -> None:
        """Something of ours now lies before what its consumer has read: forget how far that was."""
        self.memory(queue).extra = None
