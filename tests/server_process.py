"""One real, private, throwaway server of the tests: started, killed, started again, stopped.

Nothing is left running. Every server is the child of a keeper (keeper.py), which ends when the test
session's process is gone, however it went, and takes the server with it.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from tests.keeper import alive, run_as

KEEPER = Path(__file__).resolve().with_name("keeper.py")
START_SECONDS = 60.0
TICK = 0.02


class Missing(RuntimeError):
    """Something is not installed. tests/conftest.py skips the test, and the run ends with one line
    that names ``install``."""

    def __init__(self, what: str, install: str) -> None:
        super().__init__(f"{what}: install {install}")
        self.install = install


class MissingBinary(Missing):
    """A server's program is not installed. With FAIRTURN_REQUIRE_SERVERS the test fails."""

    def __init__(self, name: str, package: str) -> None:
        super().__init__(f"{name} is not installed, and this test needs a real server", package)


_permitted = True


def permit(permitted: bool) -> None:
    """Whether the test that runs now may use servers: whether it has the marker ``server``."""
    global _permitted
    _permitted = permitted


def check_permitted() -> None:
    if not _permitted:
        raise RuntimeError("this test uses a server: it needs the marker `server`")


def find_binary(name: str, package: str) -> str:
    """The path of a program, also where Debian keeps PostgreSQL's."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        versions = glob.glob(f"/usr/lib/postgresql/*/bin/{name}")
        versions.sort(key=lambda path: [int(n) for n in path.split("/")[4].split(".")])
        found = versions[-1] if versions else None
    if found is None:
        raise MissingBinary(name, package)
    return found


def free_port() -> int:
    """One that the kernel gives to no outgoing connection: who is killed finds it free again."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [port for port in range(10_000, 65_536) if not low <= port <= high]
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.SystemRandom().choice(ports)))
            return probe.getsockname()[1]


def _unprivileged() -> str | None:
    """Whom to run as: servers that refuse root are started as postgres, or nobody."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise RuntimeError("running as root, and there is neither a user postgres nor nobody")


def memory_disk() -> str | None:
    """A place in memory for what need not outlive the machine, if it has room."""
    with contextlib.suppress(OSError):
        room = os.statvfs("/dev/shm")
        if room.f_bavail * room.f_frsize > 4 * 1024**3:
            return "/dev/shm"
    return None


def run_step(command: list[str], user: str | None, cwd: Path) -> None:
    """A step of preparation: silent unless it fails."""
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, **run_as(user)
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def descendants(pid: int) -> list[int]:
    """A process and all below it, from /proc."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
                parents.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        todo += parents.get(one, [])
    return found


def wait_until(condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds:.0f} s")
        time.sleep(TICK)


class Server:
    """One server in a directory of its own. ``kill9()`` and ``start()`` as often as you like."""

    kind: ClassVar[str]
    stop_signal: ClassVar[int] = signal.SIGTERM
    death_signal: ClassVar[int] = signal.SIGKILL
    lazy: ClassVar[dict[str, str]] = {}  # settings that save waiting for the disk

    def __init__(
        self,
        *,
        watch: int | None = None,
        settings: dict[str, str] | None = None,
        durable: bool = True,
        place: Path | None = None,
    ) -> None:
        check_permitted()
        self.watch = watch or os.getpid()  # the process whose end is also the server's
        self.settings = {**({} if durable else self.lazy), **(settings or {})}
        self.port = 0
        self.pid = 0
        self._keeper: subprocess.Popen[bytes] | None = None
        self.user = self._user()
        parent = place or (None if durable else memory_disk())
        self.directory = Path(tempfile.mkdtemp(prefix=f"fairturn-{self.kind}-", dir=parent))
        if self.user is not None:
            entry = pwd.getpwnam(self.user)
            os.chown(self.directory, entry.pw_uid, entry.pw_gid)
        try:
            self.prepare()
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    # What each kind says about itself.
    def _user(self) -> str | None:
        return _unprivileged()

    def prepare(self) -> None:
        """Make the data directory, once."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def ready(self) -> bool:
        raise NotImplementedError

    # The same for all.
    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    def start(self) -> None:
        """Start, or start again after kill9(), on the same port; returns when it accepts."""
        keep_port = self.port != 0
        for attempt in range(5):
            if not keep_port:
                self.port = free_port()
            self._launch()
            try:
                wait_until(lambda: not alive(self.pid) or self.ready(), f"{self.kind} accepts")
            except BaseException:
                self.stop(keep=True)
                raise
            if alive(self.pid):
                return
            self._reap()
            if attempt == 4:
                break
            time.sleep(0.2)  # the port was taken, or the kernel still frees what we killed
        raise RuntimeError(f"{self.kind} did not start:\n{self.log_tail()}")

    def _launch(self) -> None:
        order = {
            "watch": self.watch,
            "directory": str(self.directory),
            "log": str(self.log),
            "command": self.command(),
            "user": self.user,
            "stop_signal": int(self.stop_signal),
            "death_signal": int(self.death_signal),
        }
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER), json.dumps(order)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._keeper.stdout is not None
        line = self._keeper.stdout.readline()
        if not line:
            raise RuntimeError(f"the keeper of {self.kind} did not start:\n{self.log_tail()}")
        self.pid = int(line)

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else "(no log)"

    def kill9(self) -> None:
        """SIGKILL the server and all its processes at once, like the OOM killer on a bad day."""
        for pid in descendants(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(self.pid), f"{self.kind} dies")
        self._reap()

    def _reap(self) -> None:
        if self._keeper is not None:
            self._keeper.wait(30)
            assert self._keeper.stdout is not None
            self._keeper.stdout.close()
            self._keeper = None

    def stop(self, *, keep: bool = False) -> None:
        """Stop for good and remove the directory."""
        if self._keeper is not None:
            self._keeper.terminate()
            self._reap()
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def accepts(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False
