"""A call that is ready to run, and the state that all calls of a Database share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fairturn.backends.base import Backend, ConsumerState
from fairturn.backends.steps import Op

T = TypeVar("T")
SETTLE = 100  # group marks that are handled after a call


@dataclass(slots=True)  # not frozen: that makes a new one three times as slow
class Call(Generic[T]):
    """One public operation with checked and encoded arguments. ``start()`` returns a new operation
    each time."""

    what: str  # its name in errors
    start: Callable[[], Op[T]]
    repeatable: bool = False  # twice does no harm: run it again if the connection breaks
    needs_schema: bool = True  # False: it runs even if the schema is missing or does not fit
    after: Call[Any] | None = None  # runs after the commit, on our own connections only
    until: float = math.inf  # it is repeatable until this moment (of time.monotonic)


@dataclass(slots=True)
class Core:
    """The backend, the clock, the waker and hub, and the states of the consumers."""

    backend: Backend
    clock: Callable[[], int] | None = None  # of tests; None: the database's
    waker: Any = None
    hub: Any = None
    closed: bool = False
    grouped: bool = False  # groups are in use: the end of a message may complete a group
    consumers: dict[str, ConsumerState] = field(default_factory=dict[str, ConsumerState])

    def now(self) -> int | None:
        return None if self.clock is None else self.clock()

    def consumer(self, queue: str) -> ConsumerState:
        return self.consumers.setdefault(queue, ConsumerState())

    def settle(self, grouped: bool) -> Call[Any] | None:
        """Return the call that closes complete groups, for after a call that may have ended members
        (semantics §12.10). Return None if this Database has met no group. ``grouped``: the caller
        has met one."""
        if grouped:
            self.grouped = True
        if not self.grouped:
            return None
        return Call("settle", lambda: self.backend.settle(SETTLE, self.now()), repeatable=True)

    def look_again(self, queue: str) -> None:
        """Clear the scan hints: a message may be ready before the position of the consumer."""
        self.consumer(queue).extra = None
