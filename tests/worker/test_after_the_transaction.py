"""A message that was acked in its handler's own transaction is done, whatever comes after."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import fairturn
from fairturn import Context


def test_an_error_after_the_transaction_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = fairturn.App(f"sqlite:///{tmp_path / 'after.db'}")
    runs: list[int] = []

    @app.task
    def fails(ctx: Context) -> None:
        runs.append(ctx.attempt)
        with ctx.transaction():
            pass
        raise RuntimeError("too late")

    async def main() -> None:
        app.db.queue("default").create()
        fails.send()
        async with app.worker(), asyncio.timeout(30):
            while "too late" not in caplog.text:
                await asyncio.sleep(0.01)
        await app.close_async()

    with caplog.at_level(logging.ERROR, "fairturn.worker"):
        asyncio.run(main())
    logged = "fails failed after its transaction; its message is acked: RuntimeError: too late"
    assert logged in caplog.text
    assert runs == [1]
    stats = app.db.queue("default").stats()
    assert (stats.total, stats.acked, stats.errors) == (0, 1, 0)
    app.close()
