"""The pytest plugin: its fixture, in runs of pytest of its own."""

from __future__ import annotations

import importlib
import tomllib

import pytest

from tests.docs.pages import ROOT, blocks

pytest_plugins = ["pytester"]

APP = """
import fairturn

app = fairturn.App("sqlite:////nowhere/at/all.db")
ran = []

@app.task
def hello(name: str) -> None:
    ran.append(name)
"""
TEST = """
import pytest
from jobs import app, hello, ran

own = app.databases

@pytest.mark.parametrize("n", range(4))
def test_a_block_of_its_own(fairturn_use, n):
    test = fairturn_use(app)
    test.assert_nothing_sent()
    hello.send(f"ann {n}")
    test.drain()
    assert ran[-1] == f"ann {n}"

def test_nested(fairturn_use):
    outer, inner = fairturn_use(app), fairturn_use(app)
    hello.send("ann")
    assert (len(inner.sent()), len(outer.sent())) == (1, 0)

def test_undone():
    assert app.databases is own

def test_undone_after_a_failure(fairturn_use):
    fairturn_use(app)
    assert False
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run pytest with this plugin and no others, whether the installed Fairturn names it or not."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return lambda *args: pytester.runpytest_subprocess("-p", "pytest_fairturn", *args)


def test_the_fixture_is_undone_when_the_test_is_over(run, pytester):
    pytester.makepyfile(jobs=APP, test_jobs=TEST)
    run().assert_outcomes(passed=6, failed=1)
    # The same in another order: what failed has left nothing behind.
    run("test_jobs.py::test_undone_after_a_failure", "test_jobs.py::test_undone").assert_outcomes(
        passed=1, failed=1
    )


def test_the_fixture_with_xdist(run, pytester):
    pytester.makepyfile(jobs=APP, test_jobs=TEST)
    run("-p", "xdist.plugin", "-n", "2").assert_outcomes(passed=6, failed=1)


def test_it_costs_nothing_where_it_is_not_used(run, pytester):
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_imported():
            assert "pytest_fairturn" in sys.modules
            assert "fairturn" not in sys.modules
        """
    )
    run().assert_outcomes(passed=1)


def test_the_fixture_says_what_it_is(run):
    run("--fixtures").stdout.fnmatch_lines(["fairturn_use*", "*fairturn.testing.use, undone*"])


def test_the_plugin_is_an_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    [module] = project["project"]["entry-points"]["pytest11"].values()
    assert hasattr(importlib.import_module(module), "fairturn_use")
    packed = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert f"src/{module}.py" in packed


def test_the_tests_on_the_page_pass(run, pytester):
    """docs/testing.md only defines them."""
    found = [block.text for block in blocks(ROOT / "docs" / "testing.md")]
    shop = next(text for text in found if "fairturn.App(" in text)
    tests = next(text for text in found if "fairturn_use" in text)
    pytester.makepyfile(shop=shop, test_shop=f"from shop import *\n\n{tests}")
    run().assert_outcomes(passed=2)
