"""`make run` and `make test` set up one environment in two sizes, in whichever order."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What make looks at in a bare clone."""
    for name in ("pyproject.toml", "Makefile"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def would_run(clone: Path, goal: str) -> str:
    command = ["make", "-n", "-C", str(clone), goal]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def installed(clone: Path, *stamps: str) -> None:
    (clone / ".venv" / "bin").mkdir(parents=True)
    for name in ("bin/pip", *stamps):
        (clone / ".venv" / name).touch()


@pytest.mark.parametrize("goal", ["test", "check"])
def test_from_a_bare_clone(clone: Path, goal: str) -> None:
    run, tests = would_run(clone, "run"), would_run(clone, goal)
    assert "-m venv" in run
    assert "-e '.[cli,server]'" in run
    assert "--group" not in run
    assert "Installing" in run
    assert "-m venv" in tests
    assert "--group dev" in tests


def test_the_second_adds_only_what_the_first_has_not(clone: Path) -> None:
    installed(clone, ".installed-cli")
    assert "pip install" not in would_run(clone, "run")
    tests = would_run(clone, "test")
    assert "--group dev" in tests
    assert "-m venv" not in tests
    assert "touch .venv/.installed .venv/.installed-cli" in tests


def test_after_the_tests_nothing_is_missing(clone: Path) -> None:
    installed(clone, ".installed", ".installed-cli")
    for goal in ("run", "test"):
        assert "pip install" not in would_run(clone, goal)
