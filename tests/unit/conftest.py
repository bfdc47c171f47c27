"""The command line in this process, on a SQLite database of the test's own."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Fairturn = Callable[..., Ran]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/cli.db"


@pytest.fixture
def cli(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Fairturn:
    """Run one command in this process, on a database of its own."""
    from fairturn.cli.app import run  # here: the other unit tests do not need the command line

    monkeypatch.setenv("FAIRTURN_URL", url)

    def call(*arguments: str | int, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return call


@pytest.fixture
def emails(cli: Fairturn) -> Fairturn:
    assert cli("queue", "create", "emails").code == 0
    return cli


def received(cli: Fairturn, queue: str = "emails") -> tuple[int, int]:
    """Receive one message; the id and the token of its lease."""
    message = cli("receive", queue, "--json").json
    return message["id"], message["token"]
