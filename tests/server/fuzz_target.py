"""A server that is shot at: the real program, its log in a file, and what the system says of it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.server.serve_programs import SECONDS, wait_for

SOON = "0.5s"  # whoever waits for the rest of a request that has none does not wait long


class Target:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        wait_for(
            lambda: "serving SQS on" in self.log or process.poll() is not None, lambda: self.log
        )
        found = re.search(r"serving SQS on (http://\S+?),", self.log)
        assert found is not None, self.log
        self.url = found[1]

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def memory(self) -> int:
        """KiB of its own: without files, which the database's are."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"RssAnon:\s+([0-9]+) kB", status)[0])


@contextlib.contextmanager
def target(database: str, log: Path, *words: str) -> Iterator[Target]:
    bounds = [f"--{name}={SOON}" for name in ("header-seconds", "body-seconds", "keep-alive")]
    command = [sys.executable, "-m", "fairturn", "serve", "--db", database, "--port", "0"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FAIRTURN_")}
    with log.open("wb") as stream:
        process = subprocess.Popen([*command, *bounds, *words], stderr=stream, env=clean)
        try:
            yield Target(process, log)
            process.terminate()
            assert process.wait(SECONDS) == 0, log.read_text(errors="replace")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
