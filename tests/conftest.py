"""For every test: a printed seed, markers, no leaks, and servers that are stopped at the end."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import server_process, servers, tiers

HERE = Path(__file__).parent
REQUIRED = "FAIRTURN_REQUIRE_SERVERS" in os.environ  # a missing server is a failure, not a skip
SERVERS = ("postgresql", "mysql", "pgbouncer", "rabbitmq")


def pytest_report_header() -> str:
    return f"seed: {_seed()} (set FAIRTURN_SEED to repeat it)"


def _seed() -> int:
    """One seed for the session: the environment's, or drawn once and handed to the workers."""
    if "FAIRTURN_SEED" not in os.environ:
        os.environ["FAIRTURN_SEED"] = str(random.SystemRandom().randrange(2**32))
    return int(os.environ["FAIRTURN_SEED"])


def pytest_configure(config: pytest.Config) -> None:
    _seed()
    # No test fails because the machine is slow.
    settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("tests")
    memory = servers.memory_disk()
    if memory is not None:
        # SQLite waits for the disk at every commit; its tests take half the time in memory.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory)


# --- markers ------------------------------------------------------------------------------------


def _on_a_server(value: Any) -> bool:
    """Does this parameter of a test name a server? Or has it a backend, or is it of a kind?"""
    for name in ("backend", "kind"):
        value = getattr(value, name, value)
    return isinstance(value, str) and value.startswith(SERVERS)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Where a folder or a parameter decides it, nobody needs to write a marker down."""
    if tiers.is_deep(item.path.relative_to(HERE)):
        item.add_marker("deep")
    callspec = getattr(item, "callspec", None)
    if callspec is not None and any(map(_on_a_server, callspec.params.values())):
        item.add_marker("server")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    server_process.permit(item.get_closest_marker("server") is not None)


# --- what is not installed ----------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """A test that needs what is not installed is skipped."""
    if call.excinfo is None or not isinstance(error := call.excinfo.value, server_process.Missing):
        return
    if REQUIRED and isinstance(error, servers.MissingBinary):
        return
    item.user_properties.append(("install", error.install))
    try:
        pytest.skip(str(error))
    except pytest.skip.Exception:
        call.excinfo = pytest.ExceptionInfo.from_current()


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    yield
    skipped = [
        [value for name, value in report.user_properties if name == "install"]
        for report in terminalreporter.getreports("skipped")
    ]
    missing = sorted({name for names in skipped for name in names})
    if missing:
        count = sum(map(bool, skipped))
        terminalreporter.write_line(
            f"{count} tests were skipped because something is missing. To run them, install: "
            f"{', '.join(missing)}.",
            yellow=True,
        )


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.collect()
    gc.freeze()  # thousands of tests: the collector need not look at them again and again


def pytest_sessionfinish(session: pytest.Session) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ and servers.session_directory().exists():
        servers.stop_shared()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers that are the same for this test and seed, whatever runs before it."""
    print(f"FAIRTURN_SEED={_seed()}")
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
