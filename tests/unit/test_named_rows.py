"""Rows are read by name: no numeric index reads a column (docs/decisions/008-named-rows.md).

Every subscript with a constant number, and every slice with one, is refused unless it is one of the
few below. A record gets names instead: a NamedTuple (those of the database are in core/rows.py), or
it is unpacked, ``[(created,)] = rows``, which also says how many columns there are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "fairturn"

# Methods that cut a text into pieces, whose order everybody knows.
CUTS = {"split", "rsplit", "splitlines", "partition", "rpartition"}
# Calls that make text, and not one of the above: it may be cut anywhere.
TEXTS = {"str", "hexdigest", "b32encode"}
# Names that stand for text.
TEXT_NAMES = {"help", "statement", "word"}
# What a regular expression found: its groups have numbers.
MATCHES = {"match"}
# Python's own lists, whose places have a meaning: sys.argv, the arguments of an exception or of a
# generic type.
ARGUMENTS = {"argv", "args"}
# Plural names that may stand for one record.
RECORDS = {"columns", "fields", "values", "row"}


def is_number(node: ast.expr | None) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int


def positional(node: ast.Subscript) -> bool:
    """Is it by a constant position?"""
    if isinstance(node.slice, ast.Slice):
        return is_number(node.slice.lower) or is_number(node.slice.upper)
    return is_number(node.slice)


def name_of(node: ast.expr) -> str:
    """The variable, the attribute or the function whose value is subscripted."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call):
        return name_of(node.func)
    if isinstance(node, ast.Subscript):
        return name_of(node.value)
    return node.id if isinstance(node, ast.Name) else ""


class Reader(ast.NodeVisitor):
    """Finds what is read by position. ``texts`` are the names that are declared as str or bytes,
    ``lists`` those that are declared as a list of something: variables in the function at hand,
    attributes anywhere in the file."""

    def __init__(self) -> None:
        self.found: list[ast.Subscript] = []
        self.texts: set[str] = set()
        self.lists: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before = set(self.texts), set(self.lists)
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            self._declare(argument.arg, argument.annotation)
        self.generic_visit(node)
        self.texts, self.lists = before

    def visit_Module(self, node: ast.Module) -> None:
        for found in ast.walk(node):
            if isinstance(found, ast.AnnAssign) and isinstance(found.target, ast.Attribute):
                self._declare(found.target.attr, found.annotation)
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._declare(name_of(node.target), node.annotation)
        self.generic_visit(node)

    def _declare(self, name: str, annotation: ast.expr | None) -> None:
        declared = "" if annotation is None else ast.unparse(annotation)
        kinds = {kind.strip() for kind in declared.split("|")} - {"None"}
        if kinds and kinds <= {"str", "bytes"}:
            self.texts.add(name)
        elif declared.startswith(("list[", "Sequence[", "deque[")) and "[Any" not in declared:
            self.lists.add(name)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if positional(node) and not self.is_honest(node):
            self.found.append(node)
        self.generic_visit(node)

    def is_honest(self, node: ast.Subscript) -> bool:
        value, name = node.value, name_of(node.value)
        if isinstance(value, ast.Call):
            return name in CUTS | TEXTS
        if isinstance(value, ast.JoinedStr):
            return True
        if not isinstance(value, ast.Name | ast.Attribute):
            return False
        if name in MATCHES | ARGUMENTS | TEXT_NAMES | self.texts:
            return True
        if name in RECORDS:
            return False
        plural = name in self.lists or name.endswith("s")
        if isinstance(node.slice, ast.Slice):
            return plural
        last = isinstance(node.slice, ast.UnaryOp) and ast.unparse(node.slice) == "-1"
        return last or (plural and ast.unparse(node.slice) == "0")


def read_by_position(source: str) -> Iterator[ast.Subscript]:
    reader = Reader()
    reader.visit(ast.parse(source))
    yield from reader.found


def test_no_row_is_read_by_position() -> None:
    found: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        for node in read_by_position(path.read_text("utf-8")):
            found.append(f"{file}:{node.lineno}: {ast.unparse(node)}")
    assert not found, "\n".join(["give these names, or unpack them:", *found])


@pytest.mark.parametrize(
    "source",
    [
        "row[6]",
        "self._row[14]",
        "rows[0][0]",
        "rows[-1][0]",
        "rows[1]",
        "row[-1]",
        "row[:6]",
        "row[8:14]",
        "columns[0]",
        "item[15]",
        "items[i][6]",
        "backend.get(id)[0]",
        "(yield statement)[0]",
        "(await queue.send_many([1]))[0]",
        "found['Items'][0]",
        "def f(row: Row): row[0]",
        "def f(columns: Sequence[Any]): columns[0]",
        "def f(row: str): pass\nrow[0]",
    ],
)
def test_it_finds_a_position(source: str) -> None:
    assert len(list(read_by_position(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "rows[0]",
        "rows[-1].id",
        "page[-1]",
        "items[:10]",
        "rows[i]",
        "rows[start : start + 10]",
        "sys.argv[1]",
        "match[2]",
        "text.split(',')[0]",
        "text.partition(':')[2]",
        "def f(name: str | None): name[:80]",
        "words: list[str] = []\nwords[0]",
        "settings['lease']",
    ],
)
def test_it_leaves_the_honest_alone(source: str) -> None:
    assert not list(read_by_position(source))
