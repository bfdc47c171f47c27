"""The pytest plugin: one fixture. It is loaded with every run of pytest where Fairturn is
installed, so it imports Fairturn only when a test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fairturn import App
    from fairturn.testing import AppTest


@pytest.fixture
def fairturn_use() -> Iterator[Callable[..., AppTest]]:
    """``test = fairturn_use(app)``: fairturn.testing.use, undone when the test is over."""
    from fairturn.testing import use

    with ExitStack() as stack:

        def enter(app: App, **options: Any) -> AppTest:
            return stack.enter_context(use(app, **options))

        yield enter
