"""The bugs that a campaign must find can be made: nobody has renamed them, or their text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.mutants import EXPECTED, mutant_of
from tests.model.mutants import build


@pytest.mark.parametrize("name", list(EXPECTED))
def test_the_bug_can_be_made(name: str, tmp_path: Path) -> None:
    build(mutant_of(name), tmp_path)
