"""The sync and the async facade are twins: names, signatures, annotations, docstrings."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import fairlead
import fairlead.aio.batch
import fairlead.aio.queue
import fairlead.sync.batch
import fairlead.sync.queue

PAIRS: dict[str, tuple[Any, Any]] = {
    "connect": (fairlead.connect, fairlead.connect_async),
    "Database": (fairlead.Database, fairlead.AsyncDatabase),
    "Queue": (fairlead.Queue, fairlead.AsyncQueue),
    "Channel": (fairlead.Channel, fairlead.AsyncChannel),
    "Permit": (fairlead.Permit, fairlead.AsyncPermit),
    "Group": (fairlead.Group, fairlead.AsyncGroup),
    "Schedule": (fairlead.Schedule, fairlead.AsyncSchedule),
    "Batch": (fairlead.sync.batch.Batch, fairlead.aio.batch.AsyncBatch),
    "LeasedMessage": (fairlead.LeasedMessage, fairlead.AsyncLeasedMessage),
    "Messages": (fairlead.sync.queue.Messages, fairlead.aio.queue.AsyncMessages),
}
CLASSES = [name for name, (one, _) in PAIRS.items() if inspect.isclass(one)]

# The methods that do no I/O and are therefore not awaited on either side.
PLAIN = {
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
RENAMED = {"__enter__": "__aenter__", "__exit__": "__aexit__"}


def sync_words(text: str) -> str:
    """An async twin's text in the sync twin's words."""
    text = re.sub(r"\bAsync(?=[A-Z])", "", text)
    return text.replace("Tasks may share", "Threads may share")


def members(cls: type[Any]) -> dict[str, Any]:
    return {
        name: member
        for name, member in vars(cls).items()
        if inspect.isfunction(member) or isinstance(member, property)
    }


def methods() -> list[tuple[str, str]]:
    return [(name, method) for name in CLASSES for method in members(PAIRS[name][0])]


def test_every_public_sync_name_has_an_async_twin():
    for name in ("Database", "Queue", "Channel", "Permit", "LeasedMessage"):
        assert name in fairlead.__all__
        assert f"Async{name}" in fairlead.__all__


@pytest.mark.parametrize("name", CLASSES)
def test_the_same_members(name):
    one, other = (members(cls) for cls in PAIRS[name])
    assert [RENAMED.get(member, member) for member in one] == list(other)


@pytest.mark.parametrize("name", CLASSES)
def test_the_same_attributes(name):
    one, other = (vars(cls).get("__annotations__", {}) for cls in PAIRS[name])
    assert one == {key: sync_words(value) for key, value in other.items()}


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_docstring_of_the_whole(name):
    one, other = PAIRS[name]
    assert inspect.getdoc(one)
    assert inspect.getdoc(one) == sync_words(inspect.getdoc(other) or "")


@pytest.mark.parametrize(("name", "method"), methods())
def test_the_same_method(name, method):
    one = vars(PAIRS[name][0])[method]
    other = vars(PAIRS[name][1])[RENAMED.get(method, method)]
    signature, twin = inspect.signature(one), inspect.signature(other)
    assert [str(p) for p in signature.parameters.values()] == [
        sync_words(str(p)) for p in twin.parameters.values()
    ]
    assert str(signature.return_annotation) == sync_words(str(twin.return_annotation))
    assert inspect.iscoroutinefunction(other) is (method not in PLAIN)
    assert not inspect.iscoroutinefunction(one)
    assert (inspect.getdoc(one) or "") == sync_words(inspect.getdoc(other) or "")


@pytest.mark.parametrize(("name", "method"), [m for m in methods() if m[1][0] != "_"])
def test_every_public_method_is_documented(name, method):
    if method != "call":  # what the other handles of the package use
        assert inspect.getdoc(vars(PAIRS[name][0])[method])


def test_connect_has_the_same_arguments():
    one, other = (inspect.signature(f) for f in PAIRS["connect"])
    assert list(map(str, one.parameters.values())) == list(map(str, other.parameters.values()))


def test_send_takes_what_a_Send_takes():
    """One list of arguments: queue.send(body, …) and Send(body, …)."""
    send = inspect.signature(fairlead.Queue.send).parameters
    value = inspect.signature(fairlead.Send).parameters
    assert list(send)[1:] == list(value)
    for name, parameter in value.items():
        assert send[name].default == parameter.default
        assert send[name].annotation == parameter.annotation
