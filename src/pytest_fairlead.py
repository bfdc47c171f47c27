"""The pytest plugin: one fixture. It is loaded with every run of pytest where Fairlead is
installed, so it imports Fairlead only when a test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fairlead import App
    from fairlead.testing import AppTest


@pytest.fixture
def fairlead_use() -> Iterator[Callable[..., AppTest]]:
    """``test = fairlead_use(app)``: fairlead.testing.use, undone when the test is over."""
    from fairlead.testing import use

    with ExitStack() as stack:

        def enter(app: App, **options: Any) -> AppTest:
            return stack.enter_context(use(app, **options))

        yield enter
