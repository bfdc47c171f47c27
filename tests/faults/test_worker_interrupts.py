"""Handlers in threads are told to leave by an exception out of nowhere (a time-out, a lost lease):
wherever it strikes, no lock stays locked. Imports, logging and our own pool have locks that
everybody in the process needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.crew import FULL, ROUNDS

TIMES = ROUNDS * 5 if FULL else 40


@pytest.mark.timeout(3600)
def test_no_lock_stays_locked(tmp_path: Path) -> None:
    # In a process of its own: without its locks, one cannot even report a time-out.
    command = [sys.executable, "-m", "tests.faults.interrupts", str(tmp_path / "jobs.db")]
    subprocess.run([*command, str(TIMES)], check=True, timeout=60 + TIMES)
