"""The two doors: what their methods have in common, and what the generated one relies on.

The sync door is generated from the async one (test_generated.py), so its names, signatures and
docstrings are not compared here. What both call is written twice, by hand, and is compared."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn.aio.batch import AsyncBatch
from fairturn.aio.queue import AsyncMessages
from fairturn.drivers.mysql.asyncmy import AsyncmyDriver
from fairturn.drivers.mysql.pymysql import PyMysqlDriver
from fairturn.execution.aio import runner as async_runner
from fairturn.execution.aio import waker as async_waker
from fairturn.execution.aio.wait_hub import AsyncHub
from fairturn.execution.sync import runner, waker
from fairturn.execution.sync.wait_hub import Hub

DOORS: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        fairturn.AsyncDatabase,
        fairturn.AsyncQueue,
        fairturn.AsyncChannel,
        fairturn.AsyncPermit,
        fairturn.AsyncGroup,
        fairturn.AsyncSchedule,
        AsyncBatch,
        fairturn.AsyncLeasedMessage,
        AsyncMessages,
    )
}
# The methods that do no I/O and are therefore not awaited.
PLAIN = {
    "token",
    "queue",
    "channel",
    "group",
    "schedule",
    "batch",
    "events",
    "using",
    "lease",
    "__init__",
    "__repr__",
}
# Written by hand on both sides, and used by the same names.
PAIRS: dict[str, tuple[Any, Any]] = {
    "Runner": (runner.Runner, async_runner.AsyncRunner),
    "YourRunner": (runner.YourRunner, async_runner.AsyncYourRunner),
    "Ticket": (waker.Ticket, async_waker.AsyncTicket),
    "Waker": (waker.Waker, async_waker.AsyncWaker),
    "Hub": (Hub, AsyncHub),
    "MySQL driver": (PyMysqlDriver, AsyncmyDriver),
}
FUNCTIONS = {
    "runner_for": (runner.runner_for, async_runner.runner_for),
    "waker_for": (waker.waker_for, async_waker.waker_for),
}


def members(cls: type[Any]) -> dict[str, Any]:
    return {
        name: member
        for name, member in vars(cls).items()
        if inspect.isfunction(member) or isinstance(member, property)
    }


def methods() -> list[tuple[str, str]]:
    return [(name, method) for name, cls in DOORS.items() for method in members(cls)]


def arguments(function: Any) -> list[tuple[str, Any, Any]]:
    """Without their types: those of a Waker's or of a Hub's arguments differ."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_every_public_async_name_has_a_sync_one():
    found = {name for name in fairturn.__all__ if name.startswith("Async")}
    assert {name.removeprefix("Async") for name in found} <= set(fairturn.__all__)
    assert {"AsyncDatabase", "AsyncQueue", "AsyncChannel", "AsyncPermit"} <= found


@pytest.mark.parametrize(("name", "method"), methods())
def test_what_does_io_is_awaited(name, method):
    assert inspect.iscoroutinefunction(members(DOORS[name])[method]) is (method not in PLAIN)


@pytest.mark.parametrize(("name", "method"), [m for m in methods() if m[1][0] != "_"])
def test_every_public_method_is_documented(name, method):
    assert inspect.getdoc(DOORS[name])
    assert inspect.getdoc(members(DOORS[name])[method])


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_methods_with_the_same_arguments(name):
    one, other = (
        {method: found for method, found in members(cls).items() if method[0] != "_"}
        for cls in PAIRS[name]
    )
    assert set(one) == set(other)
    assert one
    for method, function in one.items():
        if isinstance(function, property):
            assert isinstance(other[method], property)
        else:
            assert arguments(function) == arguments(other[method])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_function_with_the_same_arguments(name):
    one, other = FUNCTIONS[name]
    assert arguments(one) == arguments(other)


def test_send_takes_what_a_Send_takes():
    """One list of arguments: queue.send(body, …) and Send(body, …)."""
    send = inspect.signature(fairturn.Queue.send).parameters
    value = inspect.signature(fairturn.Send).parameters
    assert list(send)[1:] == list(value)
    for name, parameter in value.items():
        assert send[name].default == parameter.default
        assert send[name].annotation == parameter.annotation


SOURCE = Path(fairturn.__file__).parent
INSIDES = {"core", "runner", "_core", "_runner", "_door", "_target"}
# The doors and what they are made of; internal.py, which is for the rest; and the database of
# users' tests, which is a door itself.
MAY_LOOK_INSIDE = {"aio", "sync", "execution", "operations", "internal.py", "testing/memory.py"}


def _reached(path: Path) -> list[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return [
        f"{path.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in INSIDES
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]


def test_nobody_reaches_through_a_door():
    """What is behind a Database, a Queue or a message is asked for in internal.py."""
    files = [path.relative_to(SOURCE) for path in sorted(SOURCE.rglob("*.py"))]
    others = [
        path for path in files if not {path.as_posix(), *map(str, path.parents)} & MAY_LOOK_INSIDE
    ]
    assert len(others) > 200
    assert [line for path in others for line in _reached(SOURCE / path)] == []


def test_reaching_through_is_found(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    (tmp_path / "a.py").write_text("self.db._core.waker.wake(None)\nself._core = 1\n")
    assert _reached(tmp_path / "a.py") == ["a.py:1: self.db._core"]
