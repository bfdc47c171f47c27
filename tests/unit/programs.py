"""Worker programs for the tests: an application in a directory, and ``fairturn worker`` on it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fairturn

SECONDS = 60.0  # for anything to happen, on a busy machine
PROGRAM = [sys.executable, "-m", "fairturn"]
APP = """
import asyncio, os, pathlib, time
import fairturn

app = fairturn.App({url!r})
VERSION = 1


def note(text):
    with open("notes", "a") as notes:
        notes.write(f"{{text}}\\n")


@app.task(queue="emails")
def welcome(to: str) -> None:
    note(f"welcome {{to}} from version {{VERSION}}")


@app.task(queue="emails")
async def patient() -> None:
    note("patient began")
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.02)
    note("patient ended")


@app.task(queue="emails", result=True)
def double(n: int) -> int:
    "Twice as much."
    return 2 * n


@app.task(queue="emails", executor="process")
def apart() -> None:
    note("apart began")
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    note("apart ended")


@app.task(queue="emails")
def giveup() -> None:
    raise fairturn.GiveUp("never")


@app.task(queue="emails", retry=False)
def leave(code: int) -> None:
    os._exit(code)
"""


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """The condition's value as soon as it is true."""
    end = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, f"{what}: not within {SECONDS:.0f} s"
        time.sleep(0.02)
    return found


class Home:
    """A directory with the module ``shop``, whose ``app`` lives in the database ``url``."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.url = url
        self.write(APP.format(url=url))

    def write(self, source: str) -> None:
        """Put a new version there, at once and whole."""
        new = self.path / "new"
        new.write_text(source)
        new.replace(self.path / "shop.py")

    def send(self, task: str, **arguments: Any) -> int:
        with fairturn.connect(self.url) as db:
            return db.queue("emails").send(arguments, type=task).id

    def stats(self) -> fairturn.Stats:
        with fairturn.connect(self.url) as db:
            return db.queue("emails").stats()

    def permits(self) -> list[fairturn.PermitStatus]:
        with fairturn.connect(self.url) as db:
            return db.permits()

    def noted(self, text: str) -> bool:
        """Has a handler noted a line with this?"""
        notes = self.path / "notes"
        return notes.exists() and text in notes.read_text()

    def until_noted(self, text: str) -> None:
        eventually(lambda: self.noted(text), f"the note {text!r}")

    def go(self) -> None:
        """Let the patient task end."""
        (self.path / "go").touch()


class Program:
    """A running ``fairturn worker``, whose log is read as it comes."""

    def __init__(self, home: Home, *arguments: str) -> None:
        self.child = subprocess.Popen(
            [*PROGRAM, "worker", *arguments],
            cwd=home.path,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stderr is not None
        for line in self.child.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def until(self, pattern: str, times: int = 1) -> list[str]:
        """Wait until that many log lines match; their first groups (or whole matches)."""

        def look() -> list[str]:
            found = re.findall(pattern, self.text)
            # (Processes of a supervisor that is gone still write.)
            if len(found) < times and not self._reader.is_alive():
                found = re.findall(pattern, self.text)
                assert len(found) >= times, f"it ended without {pattern!r}:\n{self.text}"
            return found if len(found) >= times else []

        try:
            return eventually(look, pattern)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from None

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def wait(self) -> int:
        code = self.child.wait(SECONDS)
        self._reader.join(SECONDS)
        return code

    def records(self) -> list[dict[str, Any]]:
        """All log lines, each of which must be a JSON object."""
        return [json.loads(line) for line in self.lines]

    def end(self) -> None:
        self.child.kill()  # processes of a supervisor notice, and leave
        self.child.wait(SECONDS)
        assert self.child.stderr is not None
        self._reader.join(SECONDS)
        self.child.stderr.close()


@contextlib.contextmanager
def running(home: Home, *arguments: str) -> Iterator[Program]:
    program = Program(home, "shop:app", *arguments)
    try:
        yield program
    finally:
        program.end()
