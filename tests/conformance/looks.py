"""A receive that waits in the background, for tests of what wakes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.door import Background

LONG = 60  # seconds nobody should wait for


def receiver(db: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Background]:
    """receiver(queue) -> a receive on our own connection that has looked in vain, twice."""
    backend = db.inner._core.backend
    receive = backend.receive
    looks: list[str] = []

    def counted(queue: str, *args: Any) -> Any:
        received = yield from receive(queue, *args)
        looks.append(queue)
        return received

    monkeypatch.setattr(backend, "receive", counted)

    def start(queue: Any) -> Background:
        before = looks.count(queue.name)
        waiting = db.background(lambda: queue.inner.receive(wait=LONG))
        waiting.until(lambda: looks.count(queue.name) >= before + 2)
        return waiting

    return start
