"""The tests themselves: none asks how fast something was, and make selects them by markers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS}
GENEROUS = 30  # seconds: a deadline below tells a slow machine from a fast one


class Times:
    """What in one file is a reading of a clock, and what the time between two of them. Best
    effort: names are those of the whole file, calls are followed inside it."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.readings: set[str] = set()
        self.spans: set[str] = set()
        self.numbers: dict[str, float] = {}
        known = -1
        while known != len(self.readings) + len(self.spans):
            known = len(self.readings) + len(self.spans)
            for node in ast.walk(tree):
                self._learn(node)

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self._name(node.targets[0].id, node.value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    self._name(node.name, inner.value)

    def _name(self, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
            self.numbers[name] = value.value
        elif self.is_span(value):
            self.spans.add(name)
        elif self.is_reading(value):
            self.readings.add(name)

    def is_reading(self, node: ast.AST) -> bool:
        """time.monotonic(), a name for it, or one of them plus something."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.attr in CLOCKS and not node.args
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.is_reading(node.left)
        return self._called(node) in self.readings

    def is_span(self, node: ast.AST) -> bool:
        """A difference of which one side is a reading, or anything made of one."""
        for part in ast.walk(node):
            if (
                isinstance(part, ast.BinOp)
                and isinstance(part.op, ast.Sub)
                and (self.is_reading(part.left) or self.is_reading(part.right))
            ) or self._called(part) in self.spans:
                return True
        return False

    @staticmethod
    def _called(node: ast.AST) -> str:
        if isinstance(node, ast.Call):
            node = node.func
        return node.id if isinstance(node, ast.Name) else ""

    def complaints(self) -> Iterator[tuple[int, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assert):
                for compared in ast.walk(node.test):
                    if isinstance(compared, ast.Compare) and self._is_bound(compared):
                        yield node.lineno, "it asks for a time that has passed; count work instead"
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
                seconds = self._number(node.value.right) if self.is_reading(node.value) else None
                if seconds is not None and 1 <= seconds < GENEROUS:
                    yield node.lineno, f"a deadline of {seconds:g} s is less than {GENEROUS} s"

    def _is_bound(self, node: ast.Compare) -> bool:
        """Must a time be short? (That it must not be short is no matter of speed.)"""
        sides = [node.left, *node.comparators]
        for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
            if isinstance(op, ast.Gt | ast.GtE):
                left, right = right, left
            elif not isinstance(op, ast.Lt | ast.LtE):
                continue
            if self.is_span(left) or (
                self.is_reading(left) and isinstance(right, ast.BinOp) and self.is_reading(right)
            ):
                return True
        return False

    def _number(self, node: ast.expr) -> float | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        return self.numbers.get(node.id) if isinstance(node, ast.Name) else None


@pytest.mark.parametrize(
    "text",
    [
        "start = time.monotonic()\nwork()\nassert time.monotonic() - start < 10",
        "start = perf.perf_counter()\nspent = perf.perf_counter() - start\nassert 3 > spent",
        "def took():\n  a = time.time()\n  return time.time() - a\nassert took() < 3 * took()",
        "a = time.monotonic()\ntimes = [time.monotonic() - a]\nassert max(times) <= 1",
        "start = time.monotonic()\nassert time.monotonic() < start + 60",
        "end = time.monotonic() + 10",
        "SOON = 5\nend = time.monotonic() + SOON",
    ],
)
def test_a_comparison_of_times_is_found(text: str) -> None:
    assert list(Times(ast.parse(text)).complaints())


@pytest.mark.parametrize(
    "text",
    [
        "end = time.monotonic() + 60\nassert time.monotonic() < end, 'it hangs'",
        "asked = time.time()\nassert time.time() - asked >= 2",
        "before = time.time()\nassert before <= found <= time.time()",
        "assert due > 2",
    ],
)
def test_what_a_slow_machine_can_do_is_allowed(text: str) -> None:
    assert not list(Times(ast.parse(text)).complaints())


def test_no_test_compares_times() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}: {why}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, why in Times(ast.parse(path.read_text("utf-8"))).complaints()
    ]
    assert not found, "\n".join(found)


def test_make_selects_by_markers() -> None:
    """A name changes, and a test is no longer run; a marker that is unknown is an error."""
    makefile = (TESTS.parent / "Makefile").read_text("utf-8")
    assert " -k" not in makefile
