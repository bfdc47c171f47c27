"""Finds changed source files, for ``fairturn worker --reload``. It polls the file system."""

from __future__ import annotations

import os
from pathlib import Path

SKIPPED = {"__pycache__", "node_modules"}


class Sources:
    """The ``.py`` files below a directory, without hidden directories and virtual environments."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = self._scan()

    def changed(self) -> list[str]:
        """Return the files that were changed, added or deleted since the last call, relative to the
        directory."""
        before, self._seen = self._seen, self._scan()
        files = before.keys() | self._seen.keys()
        return sorted(file for file in files if before.get(file) != self._seen.get(file))

    def _scan(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for directory, below, files in os.walk(self._root):
            if "pyvenv.cfg" in files:  # a virtual environment
                below.clear()
                continue
            below[:] = [name for name in below if not name.startswith(".") and name not in SKIPPED]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(directory, name)
                    try:
                        stat = os.stat(path)
                    except OSError:  # deleted meanwhile
                        continue
                    found[os.path.relpath(path, self._root)] = (stat.st_mtime_ns, stat.st_size)
        return found
