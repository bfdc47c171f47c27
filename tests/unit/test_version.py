"""The version has one source: ``__version__`` in src/fairturn/__init__.py."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import fairturn

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_the_package_takes_its_version_from_the_code() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    source = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert source == Path(fairturn.__file__)
    lines = re.findall(r'^__version__ = "(.+)"$', source.read_text("utf-8"), flags=re.MULTILINE)
    assert lines == [fairturn.__version__]


def test_the_version_is_written_nowhere_else() -> None:
    files = [ROOT / "pyproject.toml", *(ROOT / "src").rglob("*.py")]
    found = [str(file) for file in files if f'"{fairturn.__version__}"' in file.read_text("utf-8")]
    assert found == [fairturn.__file__]


def test_it_is_a_version_of_semantic_versioning() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", fairturn.__version__)
