"""Wall clocks of single client processes that can be moved while they run."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock_shim.c")


class Clocks:
    """One file for each process, with the seconds by which its clock is wrong."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._shim = directory / "clock_shim.so"
        self.missing: str | None = None  # why there is none
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            self.missing = "there is no C compiler (install gcc)"
            return
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._shim), str(SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.missing = f"the shim does not compile: {done.stderr[-300:]}"

    def environment(self, name: str) -> dict[str, str]:
        """For the process of this name; empty if clocks cannot be moved."""
        if self.missing is not None:
            return {}
        self.move(name, 0)
        return {"LD_PRELOAD": str(self._shim), "CAMPAIGN_CLOCK": str(self._file(name))}

    def move(self, name: str, seconds: int) -> None:
        # In place: the process has mapped the file.
        with open(self._file(name), "r+b" if self._file(name).exists() else "wb") as file:
            file.write(struct.pack("q", seconds))

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.clock"
