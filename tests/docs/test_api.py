"""docs/api.md has every public name, with the signature and the fields that it really has."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import fairturn
from fairturn import KEEP
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs" / "api.md").read_text("utf-8")
CLASSES = (
    fairturn.Database,
    fairturn.Queue,
    fairturn.Channel,
    fairturn.LeasedMessage,
    fairturn.Permit,
    fairturn.Group,
    fairturn.Schedule,
    fairturn.Batch,
    fairturn.BatchQueue,
    fairturn.BatchChannel,
    fairturn.App,
    fairturn.Task,
    fairturn.Context,
    fairturn.Worker,
    fairturn.Middleware,
)
SECTIONS = {"Module", "Async", "Errors"}  # headings that are no names
FOREIGN = {"Any", "None", "AbstractContextManager"}  # of Python itself
INTERNAL = {
    "call",  # how a handle's parts reach its connection
    *("App.add", "App.declare"),
    *("Worker.sleep", "Worker.call_soon", "Worker.database_failed", "Worker.wake"),
}


def section(name: str) -> str:
    """From one heading to the next of any level, on one line."""
    found = re.search(rf"^##+ {name}$.*?(?=^##|\Z)", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert found, f"docs/api.md has no section {name!r}"
    return re.sub(r"\s+", " ", found[0])


def default(value: Any) -> str:
    if value is KEEP:
        return "KEEP"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def signature(name: str, function: Any) -> str:
    """As the page writes it: without self and annotations, texts in double quotes."""
    parts: list[str] = []
    for own, one in inspect.signature(function).parameters.items():
        if own == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        star = {one.VAR_KEYWORD: "**", one.VAR_POSITIONAL: "*"}.get(one.kind, "")
        value = "" if one.default is one.empty else f"={default(one.default)}"
        parts.append(f"{star}{own}{value}")
        if one.kind is one.POSITIONAL_ONLY:
            parts.append("/")
    return f"{name}({', '.join(parts)})"


def methods(cls: type) -> list[tuple[str, Any]]:
    """(name, function) of the public methods that the class itself has; a task's are Sending's."""
    own = vars(fairturn.Sending) if cls is fairturn.Task else vars(cls)
    return [
        (name, value)
        for name, value in own.items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and not {name, f"{cls.__name__}.{name}"} & INTERNAL
    ]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_method_has_its_signature(cls: type) -> None:
    text = section(cls.__name__)
    for name, function in methods(cls):
        assert f"- `{signature(name, function)}`" in text, signature(name, function)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_answer_has_its_type(cls: type) -> None:
    text = section(cls.__name__)
    for name, function in methods(cls):
        answer = str(inspect.signature(function).return_annotation)
        told = "" if answer == "None" else f" → `{answer}`"
        if answer.startswith("Generator["):
            told = " → context manager"
        assert f"- `{signature(name, function)}`{told}:" in text, f"{name} gives {answer}"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_method_on_the_page_exists(cls: type) -> None:
    named = re.findall(r"- `(\w+)\(", section(cls.__name__))
    assert sorted(named) == sorted(name for name, _ in methods(cls))


def test_both_contexts_have_the_same_methods() -> None:
    both = [
        {name: signature(name, function) for name, function in methods(cls)}
        for cls in (fairturn.Context, fairturn.AsyncContext)
    ]
    assert both[0] == both[1]


def test_a_sending_has_the_methods_of_its_task() -> None:
    own = dict(methods(fairturn.Sending))
    text = section("Sending")
    for name, function in own.items():
        assert signature(name, function) == signature(name, getattr(fairturn.Task, name))
        assert f"`{name}`" in text, name


@pytest.mark.parametrize("name", ["current_context", "connect", "connect_async", "migrations"])
def test_every_function_has_its_signature(name: str) -> None:
    assert f"- `{signature(name, getattr(fairturn, name))}`" in section("Module")


@pytest.mark.parametrize("name", fairturn.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert re.search(rf"`{name}[`(]|^##+ {name}$", TEXT, flags=re.MULTILINE), name


def test_every_name_on_the_page_is_public() -> None:
    """What has a heading or a row of its own, and what a method returns."""
    named = set(re.findall(r"^##+ ([A-Z]\w+)$", TEXT, flags=re.MULTILINE)) - SECTIONS
    for cell in re.findall(r"^\| ([^|]+) \|", TEXT, flags=re.MULTILINE):
        named |= set(re.findall(r"`([A-Z][a-z]\w+)(?:\(.*?\))?`", cell))
    for answer in re.findall(r"→\s+`([^`]+)`", TEXT):
        named |= set(re.findall(r"\b[A-Z]\w+", answer)) - FOREIGN
    assert named <= set(fairturn.__all__), named - set(fairturn.__all__)


@pytest.mark.parametrize(
    "name", [name for name in fairturn.__all__ if is_dataclass(getattr(fairturn, name))]
)
def test_every_field_is_there(name: str) -> None:
    if re.search(rf"^### {name}$", TEXT, flags=re.MULTILINE):
        text = section(name)
    else:
        [text] = re.findall(rf"\| `{name}` \| (.*?) \|", section("The others"))
    for field in fields(getattr(fairturn, name)):
        assert f"`{field.name}`" in text, f"{name}.{field.name}"


@pytest.mark.parametrize(
    "name", ["Message", "Outcome", "GroupStatus", "ScheduleStatus", "Stats", "Sent"]
)
def test_every_property_is_there(name: str) -> None:
    own = vars(getattr(fairturn, name)).items()
    for attribute, value in own:
        if isinstance(value, property):
            assert f"`{attribute}`" in TEXT, f"{name}.{attribute}"
