"""Run one page: ``python -m tests.docs.runner PAGE`` in an empty directory.

The python blocks share one namespace; ``$ fairturn`` commands of console blocks are run between
them, all in the order of the page. A ``text`` block right after a python block is what it prints.
A block with the name of a file (```` ```python shop.py ````, ```` ```toml fairturn.toml ````) is
written there instead, for the others to use. A command of a ``console background`` block, such as a
worker, runs until the next such block or the end of the page; then it is stopped with SIGTERM and
held against what the block shows. The page goes on when a ``fairturn serve`` among them answers, on
the port $FAIRTURN_SERVE_PORT, whichever the page names.
$FAIRTURN_DOCS is a JSON list of (pattern, replacement): what stands on the page for a server that
the reader has, and the one that the test has.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.docs.pages import EXACT, Block, blocks, matches

# Whose commands are run: make, pip, psql are not ours to run here.
_OURS = re.compile(r"(fairturn|pytest|echo|printf|seq)\b")
_FIRST = ("$ fairturn", "$ pytest")  # of a console block that is run
_SERVE = re.compile(r"fairturn serve\b")
SECONDS = 60  # for a command to end, or to begin, on a busy machine


class Differs(AssertionError):
    pass


def substitute(text: str) -> str:
    for pattern, replacement in json.loads(os.environ["FAIRTURN_DOCS"]):
        text = re.sub(pattern, replacement, text)
    return text


def run_python(block: Block, namespace: dict[str, Any]) -> str:
    # Blank lines in front: a traceback then names the page's own line.
    source = "\n" * (block.line - 1) + substitute(block.text)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        # Not with this file's own `from __future__ import annotations`: the reader has none.
        exec(compile(source, str(block.page), "exec", dont_inherit=True), namespace)
    return out.getvalue()


def commands(block: Block) -> list[tuple[str, str]]:
    """(command, shown output) of a console block."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found and found[-1][0].endswith("\\"):
            found[-1] = (f"{found[-1][0]}\n{line}", "")
        elif found:
            command, shown = found[-1]
            found[-1] = (command, f"{shown}{line}\n")
    return found


def run_console(block: Block) -> None:
    bin = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}", "COLUMNS": "120"}
    for command, shown in commands(block):
        if not _OURS.match(command):
            continue
        done = subprocess.run(
            [shutil.which("bash") or "sh", "-c", substitute(command)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        said = done.stdout + done.stderr
        if done.returncode != 0:
            raise Differs(f"$ {command}\nexited with {done.returncode}:\n{said}")
        if block.page.name in EXACT and not matches(shown, done.stdout):
            raise Differs(f"$ {command}\nthe page shows:\n{shown}\nit printed:\n{done.stdout}")


class Background:
    """The commands that run beside the page."""

    def __init__(self) -> None:
        self._running: list[tuple[str, str, subprocess.Popen[str]]] = []

    def start(self, block: Block) -> None:
        self.stop()
        bin = Path(sys.executable).parent
        environment = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}"}
        for command, shown in commands(block):
            process = subprocess.Popen(
                substitute(command).split(), env=environment, stdout=subprocess.PIPE, text=True
            )
            self._running.append((command, shown, process))
            if _SERVE.match(command):
                self._await_server(process)

    def _await_server(self, process: subprocess.Popen[str]) -> None:
        url = f"http://127.0.0.1:{os.environ['FAIRTURN_SERVE_PORT']}/health"
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                urllib.request.urlopen(url, timeout=SECONDS).close()
                return
            except OSError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise Differs(f"no server answers at {url}: {error}") from error
                time.sleep(0.05)

    def stop(self) -> None:
        while self._running:
            command, shown, process = self._running.pop()
            process.send_signal(signal.SIGTERM)
            printed, _ = process.communicate(timeout=SECONDS)
            if process.returncode != 0:
                raise Differs(f"$ {command}\nexited with {process.returncode}")
            if not matches(shown, printed):
                raise Differs(f"$ {command}\nthe page shows:\n{shown}\nit printed:\n{printed}")

    def kill(self) -> None:
        for _, _, process in self._running:
            process.kill()
            process.communicate()


def write(block: Block, name: str) -> None:
    """A file of the reader's, perhaps a new version of it."""
    Path(name).write_text(substitute(block.text), "utf-8")
    sys.modules.pop(name.removesuffix(".py"), None)
    shutil.rmtree("__pycache__", ignore_errors=True)  # two versions may have the same second
    importlib.invalidate_caches()


def check_printed(block: Block, printed: str) -> None:
    if not matches(block.text, printed):
        raise Differs(f"the page shows:\n{block.text}\nit printed:\n{printed}")


def run_page(page: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed, last = "", None
    background = Background()
    try:
        for block in blocks(page):
            try:
                if block.language in ("python", "toml") and block.tags:
                    write(block, block.tags[0])
                elif block.language == "python":
                    printed = run_python(block, namespace)
                elif block.language == "console" and block.tags == ("background",):
                    background.start(block)
                elif block.language == "console" and block.text.startswith(_FIRST):
                    run_console(block)
                elif block.language == "text" and block.follows and last == "python":
                    check_printed(block, printed)
                last = block.language
            except BaseException:
                print(f"{block.place}: this block failed", file=sys.stderr)
                raise
        background.stop()
    finally:
        background.kill()
        for value in list(namespace.values()):
            if type(value).__name__ in ("App", "Database"):
                value.close()


if __name__ == "__main__":
    run_page(Path(sys.argv[1]).resolve())
