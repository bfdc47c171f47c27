"""The command line as a program: pipes, signals, terminals; and what it makes of what is typed."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn.cli import parsing
from fairturn.cli.app import run
from tests.unit.programs import SECONDS

pytestmark = pytest.mark.programs

PROGRAM = [sys.executable, "-c", "from fairturn.cli import main; main()"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with the queue ``emails``."""
    url = f"sqlite:///{tmp_path}/cli.db"
    with fairturn.connect(url) as db:
        db.queue("emails").create()
    return url


def send(url: str, *bodies: Any) -> None:
    with fairturn.connect(url) as db:
        db.queue("emails").send_many(bodies)


def ready(url: str) -> int:
    with fairturn.connect(url) as db:
        return db.queue("emails").stats().ready


# --- as a program ---------------------------------------------------------------------------------


def program(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    before = options.pop("preexec_fn", lambda: None)

    def interruptible() -> None:
        # Tests that run in the background inherit an ignored Ctrl-C.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        before()

    return subprocess.Popen([*PROGRAM, *arguments], preexec_fn=interruptible, **options)


def test_global_options_may_stand_before_the_command(url: str) -> None:
    ran = subprocess.run(
        [*PROGRAM, "--json", "--db", url, "queue", "list"], capture_output=True, text=True
    )
    assert ran.returncode == 0
    assert [row["queue"] for row in json.loads(ran.stdout)] == ["emails"]


def test_default_database_is_a_file_here(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "FAIRTURN_URL"}
    subprocess.run([*PROGRAM, "queue", "create", "q"], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "fairturn.db").exists()


def test_a_broken_pipe_is_quiet(url: str) -> None:
    send(url, *["a longer line than most"] * 5000)
    child = program(
        "peek", "emails", "-n", "5000", "--json", "--db", url,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    child.stdout.read(10)
    child.stdout.close()
    assert child.stderr is not None
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait(SECONDS) == 141


def open_files(pid: int) -> list[str]:
    return [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()]


def test_interrupt_is_quiet(url: str) -> None:
    child = program(
        "receive", "emails", "--wait", "60", "--db", url,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    deadline = time.monotonic() + SECONDS
    while not any(name.endswith(".db") for name in open_files(child.pid)):
        assert time.monotonic() < deadline, "it never opened the database"
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=SECONDS)
    assert (child.returncode, out, err) == (130, b"", b"")


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
        self.child = program(
            *arguments,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C arrives
        )
        os.close(slave)
        self.seen = ""

    def until(self, text: str, seconds: float = SECONDS) -> None:
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} did not come: {self.seen[-2000:]}"
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    break
        assert text in self.seen

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self) -> int:
        end = time.monotonic() + SECONDS
        while self.child.poll() is None and time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    break
        code = self.child.wait(SECONDS)
        os.close(self.master)
        return code


def test_top_in_a_terminal_ends_with_q(url: str) -> None:
    terminal = Terminal("top", "--every", "0.1", "--db", url)
    terminal.until("emails")
    terminal.type("q")
    assert terminal.end() == 0


def test_top_in_a_terminal_ends_with_ctrl_c(url: str) -> None:
    terminal = Terminal("top", "--every", "0.1", "--db", url)
    terminal.until("emails")
    terminal.type("\x03")
    assert terminal.end() in (0, 130)
    assert "Traceback" not in terminal.seen


@pytest.mark.parametrize(("answer", "left"), [("yes\n", 0), ("no\n", 1)])
def test_a_terminal_is_asked(answer: str, left: int, url: str) -> None:
    send(url, 1)
    terminal = Terminal("queue", "purge", "emails", "--db", url)
    terminal.until("Type yes")
    terminal.type(answer)
    assert terminal.end() == (0 if left == 0 else 2)
    assert ready(url) == left


# --- parsing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("30s", 30),
        ("0.5", 0.5),
        ("500ms", 0.5),
        ("5m", 300),
        ("5 min", 300),
        ("2h", 7200),
        ("7d", 604800),
        ("1h30m", 5400),
        ("0", 0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parsing.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "5y", "-5", "5m5", "5 5", "1e3", "∞"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parsing.duration(text)


def test_other_values() -> None:
    assert parsing.size("256k") == 256 * 1024
    assert parsing.size("1.5MiB") == 1536 * 1024
    assert parsing.backoff("5s") == 5
    assert parsing.backoff("1s:3") == fairturn.Backoff(1, 3)
    assert parsing.backoff("1s:2:1h") == fairturn.Backoff(1, 2, 3600)
    for wrong in ("1s:x:1h", "1:2:3:4"):
        with pytest.raises(ValueError, match="backoff"):
            parsing.backoff(wrong)
    with pytest.raises(ValueError, match="size"):
        parsing.size("big")


# --- bench ----------------------------------------------------------------------------------------


def test_bench_leaves_nothing_behind(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--seconds", "0.05", "--json", "--db", url]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["dialect"] == "sqlite"
    assert len(found["results"]) == 9
    assert all(result["messages_per_second"] > 0 for result in found["results"])
    with fairturn.connect(url) as db:
        assert db.queues() == ["emails"]
    assert run(["bench", "--seconds", "0.05", "--db", url]) == 0
    assert "receive + ack" in capsys.readouterr().out


def test_lines_are_sent_as_they_come(url: str) -> None:
    child = program("send", "emails", "--lines", "--db", url, stdin=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(b"1\n2\n3")
    child.stdin.flush()
    end = time.monotonic() + SECONDS
    while ready(url) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert ready(url) == 2  # the third line has no end yet
    child.stdin.close()
    assert child.wait(SECONDS) == 0
    assert ready(url) == 3


def test_a_reader_that_went_away_costs_no_message(url: str) -> None:
    send(url, *["a longer line than most"] * 5000)
    child = program("receive", "emails", "-n", "5000", "--ack", "--db", url, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.close()
    assert child.wait(SECONDS) == 141
    with fairturn.connect(url) as db:
        assert db.queue("emails").stats().acked == 0
