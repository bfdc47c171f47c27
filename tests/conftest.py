"""For every test: a printed seed, no leaks, and servers that are stopped at the end."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections.abc import Iterator

import pytest

from tests import servers


def pytest_report_header() -> str:
    return f"seed: {_seed()} (set FAIRLEAD_SEED to repeat it)"


def _seed() -> int:
    """One seed for the session: the environment's, or drawn once and handed to the workers."""
    if "FAIRLEAD_SEED" not in os.environ:
        os.environ["FAIRLEAD_SEED"] = str(random.SystemRandom().randrange(2**32))
    return int(os.environ["FAIRLEAD_SEED"])


def pytest_configure(config: pytest.Config) -> None:
    _seed()
    memory = servers.memory_disk()
    if memory is not None:
        # SQLite waits for the disk at every commit; its tests take half the time in memory.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory)


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.collect()
    gc.freeze()  # thousands of tests: the collector need not look at them again and again


def pytest_sessionfinish(session: pytest.Session) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ and servers.session_directory().exists():
        servers.stop_shared()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers that are the same for this test and seed, whatever runs before it."""
    print(f"FAIRLEAD_SEED={_seed()}")
    return random.Random(f"{_seed()} {request.node.nodeid}")


def _sockets() -> set[str]:
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.is_alive()}


def check_leaks(sockets: set[str], threads: set[threading.Thread]) -> None:
    """No thread and no connection is left that was not there before."""

    def left() -> tuple[set[str], set[threading.Thread]]:
        return _sockets() - sockets, _threads() - threads

    for pause in (0.001, 0.01, 0.1, *[0.25] * 20):
        found = left()
        if not any(found):
            return
        time.sleep(pause)  # a thread that was told to end may still be ending
        if pause > 0.01:
            gc.collect()  # late: with thousands of tests it takes a third of a second
    found = left()
    assert not any(found), f"the test left behind: {found}"


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    # What lives as long as the session must be there before the count starts.
    if "session_things" in request.fixturenames:
        request.getfixturevalue("session_things")
    sockets, threads = _sockets(), _threads()
    yield
    check_leaks(sockets, threads)
