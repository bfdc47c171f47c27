"""The clock of a client process is moved, and only that one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.faults.clocks import Clocks

pytestmark = pytest.mark.programs
HOURS = 5 * 3600
# One line for each line it reads: wall clock and monotonic clock.
PROGRAM = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"


def test_the_wall_clock_moves_and_the_monotonic_one_does_not(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    if clocks.missing is not None:
        pytest.skip(clocks.missing)
    environment = {**os.environ, **clocks.environment("client")}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seen: list[list[float]] = []
        for offset in (0, HOURS, 0):
            clocks.move("client", offset)
            process.stdin.write("\n")
            process.stdin.flush()
            seen.append([float(word) for word in process.stdout.readline().split()])
        process.stdin.close()
    (wall, steady), (moved, later), (back, last) = seen
    assert round((moved - wall) / HOURS) == 1
    assert round((back - wall) / HOURS) == 0
    assert round((last - steady) / HOURS) == 0
    assert steady <= later <= last
