"""docs/compatibility.md lists the public modules and names: the code has these, and the pages use
no others."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import fairturn
from tests.docs.pages import PAGES, ROOT, blocks

_ROW = re.compile(r"^\| `(fairturn[\w.]*)` \| (.+?) \| ", flags=re.MULTILINE)
PUBLIC = {
    module: re.findall(r"`(\w+)`", names)
    for module, names in _ROW.findall((ROOT / "docs" / "compatibility.md").read_text("utf-8"))
}
PUBLIC["fairturn"] = [*fairturn.__all__, "__version__"]  # docs/api.md has them, see test_api.py
# They have no code of their own: what else is visible there got there by mistake.
FACADES = (
    "fairturn",
    "fairturn.testing",
    "fairturn.relay",
    "fairturn.relay.sqs",
    "fairturn.relay.dynamodb",
)
SNIPPETS = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]
# Programs that only send should not pay for these.
NOT_LOADED = (
    *("psycopg", "asyncpg", "pymysql", "asyncmy", "sqlite3", "sqlalchemy", "django"),
    *("boto3", "aiormq", "uvicorn", "cyclopts", "rich", "opentelemetry", "cronsim"),
    *("fairturn.cli", "fairturn.server", "fairturn.relay", "fairturn.doctor", "fairturn.testing"),
)


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "fairturn"])
def test_the_page_lists_what_the_module_exports(name: str) -> None:
    assert PUBLIC[name] == sorted(import_module(name).__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_exists_and_is_no_module(name: str) -> None:
    module = import_module(name)
    for public in module.__all__:
        assert not public.startswith("_")
        assert not isinstance(getattr(module, public), ModuleType), f"{name}.{public}"


@pytest.mark.parametrize("name", FACADES)
def test_nothing_else_is_visible_in_a_facade(name: str) -> None:
    module = import_module(name)
    visible = {
        attribute
        for attribute, value in vars(module).items()
        if not attribute.startswith("_") and not isinstance(value, ModuleType)
    }
    assert visible == set(module.__all__)


def used(tree: ast.AST) -> Iterator[str]:
    """The dotted names of Fairturn that a snippet imports or reads as attributes of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{one.name}" for one in node.names)
        elif isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if re.fullmatch(r"fairturn(\.\w+)+", text):
                yield text


def is_public(dotted: str) -> bool:
    """A public module, a package around one, or a public name with attributes of its own."""
    if any(module == dotted or module.startswith(f"{dotted}.") for module in PUBLIC):
        return True
    parts = dotted.split(".")
    return any(parts[cut] in PUBLIC.get(".".join(parts[:cut]), ()) for cut in range(1, len(parts)))


@pytest.mark.parametrize("page", SNIPPETS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_snippets_use_public_names_alone(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            for dotted in used(ast.parse(block.text)):
                if dotted.split(".")[0] == "fairturn":
                    assert is_public(dotted), f"{block.place}: {dotted} is not public"


def test_importing_the_package_loads_no_driver_and_no_program() -> None:
    code = "import sys, fairturn; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert not set(ran.stdout.split()) & set(NOT_LOADED)
