"""Run one page: ``python -m tests.docs.runner PAGE`` in an empty directory.

The python blocks share one namespace; ``$ fairlead`` commands of console blocks are run between
them, all in the order of the page. A ``text`` block right after a python block is what it prints.
$FAIRLEAD_DOCS is a JSON list of (pattern, replacement): what stands on the page for a server that
the reader has, and the one that the test has.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.docs.pages import EXACT, Block, blocks, matches


class Differs(AssertionError):
    pass


def substitute(text: str) -> str:
    for pattern, replacement in json.loads(os.environ["FAIRLEAD_DOCS"]):
        text = re.sub(pattern, replacement, text)
    return text


def run_python(block: Block, namespace: dict[str, Any]) -> str:
    # Blank lines in front: a traceback then names the page's own line.
    source = "\n" * (block.line - 1) + substitute(block.text)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, str(block.page), "exec"), namespace)
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
        if not re.match(r"(fairlead|echo|printf|seq) ", command):
            continue  # make, pip, psql: not ours to run here
        done = subprocess.run(
            [shutil.which("bash") or "sh", "-c", substitute(command)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        said = done.stdout + done.stderr
        if done.returncode != 0:
            raise Differs(f"$ {command}\nexited with {done.returncode}:\n{said}")
        if block.page.name in EXACT and not matches(shown, done.stdout):
            raise Differs(f"$ {command}\nthe page shows:\n{shown}\nit printed:\n{done.stdout}")


def check_printed(block: Block, printed: str) -> None:
    if not matches(block.text, printed):
        raise Differs(f"the page shows:\n{block.text}\nit printed:\n{printed}")


def run_page(page: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed, last = "", None
    try:
        for block in blocks(page):
            try:
                if block.language == "python":
                    printed = run_python(block, namespace)
                elif block.language == "console" and block.text.startswith("$ fairlead"):
                    run_console(block)
                elif block.language == "text" and block.follows and last == "python":
                    check_printed(block, printed)
                last = block.language
            except BaseException:
                print(f"{block.place}: this block failed", file=sys.stderr)
                raise
    finally:
        for value in list(namespace.values()):
            if type(value).__name__ == "Database":
                value.close()


if __name__ == "__main__":
    run_page(Path(sys.argv[1]).resolve())
