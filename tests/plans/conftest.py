"""Benches: databases with a crowd of messages, too dear for each test to have its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


class Benches:
    """One bench of each file. A test may leave something behind that those after it in the file
    can live with, and those before it cannot: if they come later (the workers of ``pytest -n``
    take tests from each other), the bench is made anew."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Any, int]] = {}
        self._made = 0

    def bench(self, request: pytest.FixtureRequest, make: Callable[[str], Any]) -> Any:
        """``make`` gets the name of a database that nobody has had."""
        file, line = str(request.path), request.function.__code__.co_firstlineno
        bench, last = self._open.get(file, (None, 0))
        if bench is None or line < last:
            if bench is not None:
                bench.driver.close()
            self._made += 1
            bench = make(f"plans{self._made}")
        self._open[file] = bench, line
        return bench

    def close(self) -> None:
        for bench, _ in self._open.values():
            bench.driver.close()


@pytest.fixture(scope="session")
def benches() -> Iterator[Benches]:
    benches = Benches()
    yield benches
    benches.close()
