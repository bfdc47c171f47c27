"""Which source files have changed, for ``fairlead worker --reload``: looked up, not notified."""

from __future__ import annotations

import os
from pathlib import Path

SKIPPED = {"__pycache__", "node_modules"}


class Sources:
    """The ``.py`` files below a directory; not those in hidden directories or virtual ones."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = self._look()

    def changed(self) -> list[str]:
        """The files that changed, came or went since the last look, relative to the directory."""
        before, self._seen = self._seen, self._look()
        files = before.keys() | self._seen.keys()
        return sorted(file for file in files if before.get(file) != self._seen.get(file))

    def _look(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for directory, below, files in os.walk(self._root):
            if "pyvenv.cfg" in files:  # a virtual environment: other people's code
                below.clear()
                continue
            below[:] = [name for name in below if name[0] != "." and name not in SKIPPED]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(directory, name)
                    try:
                        told = os.stat(path)
                    except OSError:  # it went away meanwhile
                        continue
                    found[os.path.relpath(path, self._root)] = (told.st_mtime_ns, told.st_size)
        return found
