"""Drain an application in both ways: in the test's thread, and in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import fairturn
from fairturn.testing import Drained, use

NOWHERE = "sqlite:////nowhere/at/all.db"  # opening it would fail


def drain_both(app: fairturn.App, send: Callable[[], Any], **options: Any) -> list[Drained]:
    """By drain() and by drain_async(), each in a block of its own."""
    with use(app) as test:
        send()
        drained = [test.drain(**options)]

    async def main() -> None:
        async with use(app) as test:
            send()
            drained.append(await test.drain_async(**options))

    asyncio.run(main())
    return drained


def raised_by_both(
    app: fairturn.App, send: Callable[[], Any], kind: type[BaseException], **options: Any
) -> None:
    with use(app) as test:
        send()
        with pytest.raises(kind):
            test.drain(**options)

    async def main() -> None:
        async with use(app) as test:
            send()
            with pytest.raises(kind):
                await test.drain_async(**options)

    asyncio.run(main())
