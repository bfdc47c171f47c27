"""What CONTRIBUTING.md, the hooks and the hosted CI name exists, and they run what make runs."""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
_FILE = r"`((?:src|tests|docs|tools|bench)/[^`\s]+|[A-Z]\w+\.md|Makefile|pyproject\.toml)`"


@cache
def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


@cache
def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


@pytest.mark.parametrize("path", sorted(set(re.findall(_FILE, TEXT))))
def test_every_file_is_there(path: str) -> None:
    assert list(ROOT.glob(re.sub(r"<\w+>|NNN_\w+", "*", path))), path


@pytest.mark.parametrize(("name", "path"), re.findall(rf"`(\w+)` in\s+{_FILE}", TEXT))
def test_every_name_is_in_its_file(name: str, path: str) -> None:
    assert re.search(rf"\b{name}\b", (ROOT / path).read_text("utf-8"))


def test_every_make_target_exists() -> None:
    template = (ROOT / ".github" / "pull_request_template.md").read_text("utf-8")
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", TEXT + template, re.MULTILINE))
    assert {"check", "test", "test-deep", "bench", "mutants", "model", "faults", "fuzz"} <= named
    assert named <= targets(), named - targets()


# --- hooks and hosted CI --------------------------------------------------------------------------


def hooks(stage: str) -> list[dict[str, Any]]:
    config = read(".pre-commit-config.yaml")
    [repo] = config["repos"]
    usual = config["default_stages"]
    return [hook for hook in repo["hooks"] if stage in hook.get("stages", usual)]


def test_the_hooks_run_what_make_check_runs() -> None:
    ran = subprocess.run(["make", "-n", "check"], cwd=ROOT, capture_output=True, text=True)
    for hook in hooks("pre-commit"):
        assert hook["entry"] in ran.stdout.splitlines(), hook["entry"]
    assert [hook["entry"] for hook in hooks("pre-push")] == ["make check"]


def jobs() -> dict[str, Any]:
    return read(".github/workflows/ci.yml")["jobs"]


def test_the_jobs_run_make_targets() -> None:
    steps = [step for job in jobs().values() for step in job["steps"]]
    named = {step["run"].removeprefix("make ") for step in steps if "make" in step.get("run", "")}
    assert "${{ matrix.target }}" in named
    named.remove("${{ matrix.target }}")
    named |= {one["target"] for one in jobs()["test"]["strategy"]["matrix"]["include"]}
    assert {"check", "test", "test-deep"} <= named <= targets()


def test_what_the_package_claims_is_in_the_matrix() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    versions = jobs()["check"]["strategy"]["matrix"]["python"]
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert project["requires-python"] == f">={versions[0]}"
    assert claimed == versions[: len(claimed)]


def test_every_job_ends() -> None:
    for name, job in jobs().items():
        assert job["timeout-minutes"], name
