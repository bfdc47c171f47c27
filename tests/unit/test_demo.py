"""The demo: complete, honest, and its next steps work."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from fairturn.cli.app import run
from fairturn.cli.demo.measure import percentile
from tests.unit.test_cli_program import Terminal

pytestmark = pytest.mark.programs


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo keeps its database: let it lie where the test's things lie."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("FAIRTURN_URL", raising=False)


def test_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["demo", "--seconds", "3"])
    out = capsys.readouterr().out
    assert code == 0, out
    assert "\x1b" not in out
    assert out.count("✓") == 7
    assert "crashed and forgot" in out
    assert "quiet tenants wait" in out
    commands = re.findall(r"^  fairturn (.*?)(?:  #|$)", out, re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        assert run(shlex.split(command)) == 0, command
    assert "scheduled" in capsys.readouterr().out


def test_json_has_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--seconds", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {check["check"]: check["ok"] for check in found["checks"]} == dict.fromkeys(
        ("fair", "limit", "rate", "crash", "dead", "unique", "nothing lost"), True
    )
    assert found["tenants"]["noisy"]["sent"] == 6000
    assert found["messages_per_second"] > 0
    for tenant in found["tenants"].values():
        assert tenant["sent"] == tenant["done"] + tenant["dead"] + tenant["waiting"]
    assert found["tenants"]["quiet-ben"]["dead"] == 1
    assert found["tenants"]["quiet-cleo"]["waiting"] == 1


def test_in_a_terminal() -> None:
    terminal = Terminal("demo", "--seconds", "3")
    terminal.until("waiting (log)")
    terminal.until("Try next")
    assert terminal.end() == 0
    assert "█" in terminal.seen


def test_on_a_database_of_yours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/mine.db"
    assert run(["demo", "--seconds", "3", "--db", url]) == 0
    assert run(["demo", "--seconds", "3", "--db", url]) == 2
    assert "queue drop demo" in capsys.readouterr().err


def test_percentiles() -> None:
    assert percentile([], 0.5) is None
    assert percentile([3.0], 0.95) == 3
    assert percentile(range(100), 0.95) == 95
