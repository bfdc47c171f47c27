"""Fixtures of the servers' tests."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fairturn
from fairturn.server.auth.sigv4 import SignedRequest
from tests import servers
from tests.server.signing import FORMS

if TYPE_CHECKING:
    from tests.server.sqs_bench import Bench

BACKENDS = ["sqlite", "postgresql", "mysql"]
_ready: set[str] = set()  # databases that are migrated


@pytest.fixture(params=FORMS)
def signed(request: pytest.FixtureRequest) -> SignedRequest:
    return FORMS[request.param]()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def url(backend: str, tmp_path: Path) -> str:
    """A migrated database of this backend's, the session's where it is a server."""
    if backend == "sqlite":
        url = f"sqlite:///{tmp_path}/server.db"
    else:
        url = (servers.postgres_url if backend == "postgresql" else servers.mysql_url)("server")
    if url not in _ready:
        with fairturn.connect(url) as db:
            db.migrate()
        _ready.add(url)
    return url


@pytest.fixture
def bench(backend: str, url: str) -> Bench:
    from tests.server.sqs_bench import Bench  # the pure tests need none of it

    return Bench(backend, url)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    wanted = inspect.signature(pyfuncitem.function).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    asyncio.run(_run(pyfuncitem.function, arguments))
    return True


async def _run(test: Any, arguments: dict[str, Any]) -> None:
    """Its bench is opened before and closed after, in the same loop, which must be quiet then."""
    bench: Bench | None = arguments.get("bench")
    if bench is not None:
        await bench.open()
    try:
        await test(**arguments)
    finally:
        if bench is not None:
            await bench.close()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:  # what was told to end may still be ending
        await asyncio.wait(left, timeout=30)
    left = {task for task in left if not task.done()}
    assert not left, f"tasks were left behind: {left}"
