"""Facts that stand on the pages and in the code alike."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import fairturn
from fairturn.core import limits
from tests.docs.pages import ROOT

DOCS = ROOT / "docs"
_UNITS = {
    "": 1,
    "KiB": 1024,
    "MiB": 1024**2,
    "s": limits.SECOND,
    "day": 86_400 * limits.SECOND,
    "days": 86_400 * limits.SECOND,
}


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_of_the_promises_exists() -> None:
    text = (DOCS / "promises.md").read_text("utf-8")
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", text)
    for path, name in named:
        assert name in functions(ROOT / path), f"{path}::{name} does not exist"
    sections = re.split(r"^## (\d+)\. ", text, flags=re.MULTILINE)[1:]
    assert [int(number) for number in sections[::2]] == list(range(1, 13))
    for number, section in zip(sections[::2], sections[1::2], strict=True):
        assert "::test_" in section, f"promise {number} has no test"


def test_every_promise_test_is_named() -> None:
    """A test that calls itself the test of a promise is on the page."""
    text = (DOCS / "promises.md").read_text("utf-8")
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in sorted(functions(path)):
            if name.startswith("test_promise_"):
                assert f"{path.relative_to(ROOT)}::{name}" in text, name


def test_the_table_of_bounds_is_limits_py() -> None:
    text = (DOCS / "operations.md").read_text("utf-8")
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([\d,]+) ?(\w*) \|", text, flags=re.MULTILINE)
    shown = {name: int(number.replace(",", "")) * _UNITS[unit] for name, number, unit in rows}
    real = {name: value for name, value in vars(limits).items() if name.isupper()}
    del real["SECOND"]
    assert shown == real


def test_every_error_is_in_the_tutorial() -> None:
    text = (DOCS / "tutorial.md").read_text("utf-8")
    for name in fairturn.__all__:
        found = getattr(fairturn, name)
        if isinstance(found, type) and issubclass(found, fairturn.FairturnError):
            assert f"`{name}`" in text or f"fairturn.{name}" in text, name
