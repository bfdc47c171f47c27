"""Async tests on every backend, each with a loop of its own that must be quiet at the end."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn.execution.sync import wait_hub
from tests import servers
from tests.conformance import yours
from tests.worker.bench import Bench

BACKENDS = ["sqlite", "postgresql", "mysql"]
_ready: set[str] = set()  # databases that are migrated and have the users' table


def _prepare(backend: str, url: str) -> None:
    if url in _ready:
        return
    with fairturn.connect(url) as db:
        db.migrate()
    with yours.plain(backend, url) as mine:
        mine.begin()
        mine.execute("CREATE TABLE IF NOT EXISTS effect (queue VARCHAR(50), n INT)")
        mine.commit()
    _ready.add(url)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def url(backend: str, tmp_path: Path) -> str:
    if backend == "sqlite":
        url = f"sqlite:///{tmp_path}/worker.db"
    else:
        url = (servers.postgres_url if backend == "postgresql" else servers.mysql_url)("worker")
    _prepare(backend, url)
    return url


@pytest.fixture
def bench(backend: str, url: str, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(wait_hub, "LINGER", 0.01)  # or a thread would outlive each wait
    return Bench(backend, url)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test: its bench is opened before and closed after, in the same loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    wanted = inspect.signature(pyfuncitem.function).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    asyncio.run(_run(pyfuncitem.function, arguments))
    return True


async def _run(test: Any, arguments: dict[str, Any]) -> None:
    bench: Bench | None = arguments.get("bench")
    if bench is not None:
        await bench.open()
    try:
        await test(**arguments)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:  # what was told to end may still be ending
            await asyncio.wait(left, timeout=30)
        left = {task for task in left if not task.done()}
        assert not left, f"tasks were left behind: {left}"
    finally:
        if bench is not None:
            await bench.close()
