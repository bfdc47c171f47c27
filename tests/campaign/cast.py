"""The processes of a campaign: started, killed, frozen, started again, ended."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from tests import server_process, servers
from tests.campaign.faults.clocks import Clocks
from tests.campaign.site import Site

ROOT = Path(__file__).resolve().parents[2]
# Where the package is: a bug may have been put into a copy of it (mutants.py).
PACKAGE = os.environ.get("CAMPAIGN_PACKAGE", str(ROOT / "src"))
PROGRAMS = ("worker", "server", "relay")  # of the command line; the others are roles
SERVING = "serving SQS on"
STOP_SECONDS = 40.0  # for a role to end its last call
_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Actor:
    """One process that comes back under its name whenever it is gone."""

    def __init__(
        self,
        name: str,
        command: Callable[[], list[str]],
        env: dict[str, str],
        log: Path,
        starter: Executor,
    ) -> None:
        self.name = name
        self.busy = threading.Lock()  # of two faults only one kills and starts it
        self._starter = starter
        self._command = command
        self._env = env
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._starter.submit(self._start).result()

    def _start(self) -> None:
        self._log.touch()
        self._logged = self._log.stat().st_size
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                self._command(),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": PACKAGE, **self._env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    @property
    def pids(self) -> list[int]:
        """It and its children, such as a worker's witness."""
        return [] if self.process is None else server_process.descendants(self.process.pid)

    def signal(self, number: signal.Signals) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def log(self) -> str:
        """What it has logged since its last start."""
        with open(self._log, "rb") as file:
            file.seek(self._logged)
            return file.read().decode(errors="replace")

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        if self.process is not None:
            # Only itself: its children (a worker's witness) have to notice.
            self.process.kill()
            self.process.wait()

    def end(self) -> None:
        """Kill it and all its children."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()


class Cast:
    def __init__(self, site: Site, directory: Path, seed: int) -> None:
        self._site = site
        self.directory = directory
        self._seed = seed
        self._urls = site.urls()
        self.clocks = Clocks(directory)
        # The kernel kills the children of a thread that ends (see die_with_parent): all processes
        # are started by one thread, which ends last.
        self._starter = ThreadPoolExecutor(1)
        self.actors: dict[str, Actor] = {}
        self.crashes: list[str] = []
        self.early_ends: list[str] = []

    def add_role(self, role: str, name: str, **options: object) -> Actor:
        url, starts = next(self._urls), itertools.count(1)

        def command() -> list[str]:
            spec = {
                "role": role,
                "name": name,
                "url": url,
                "directory": str(self.directory),
                "seed": f"{self._seed} {name} {next(starts)}",
                "options": options,
            }
            return [sys.executable, "-m", "tests.campaign.roles.role", json.dumps(spec)]

        return self._add(name, command, {})

    def add_worker(self, name: str) -> Actor:
        url = next(self._urls)
        env = {"CAMPAIGN_URL": url, "CAMPAIGN_HISTORY": str(self.directory), "CAMPAIGN_NAME": name}
        words = [
            "worker",
            "tests.campaign.roles.tasks_app:app",
            "--concurrency",
            "4",
            "--log",
            "json",
        ]
        return self._add(name, lambda: [sys.executable, "-m", "fairturn", *words], env)

    def add_relay(self, name: str) -> Actor:
        words = ["relay", "--db", next(self._urls), "--lease", "3s", "--log", "json"]
        return self._add(name, lambda: [sys.executable, "-m", "fairturn", *words], {})

    def add_server(self, name: str) -> int:
        """A real ``fairturn serve``; its port."""
        port = servers.free_port()
        words = ["serve", "--db", next(self._urls), "--port", str(port), "--no-access-log"]
        self._add(name, lambda: [sys.executable, "-m", "fairturn", *words], {})
        return port

    def _add(self, name: str, command: Callable[[], list[str]], env: dict[str, str]) -> Actor:
        env = env | self.clocks.environment(name)
        actor = Actor(name, command, env, self.directory / f"{name}.log", self._starter)
        self.actors[name] = actor
        actor.start()
        return actor

    def named(self, *prefixes: str) -> list[Actor]:
        return [actor for name, actor in self.actors.items() if name.startswith(prefixes)]

    def history_sizes(self) -> dict[str, int]:
        """Of the histories of the roles that run now."""
        sizes: dict[str, int] = {}
        for actor in self.actors.values():
            if actor.process is not None and not actor.name.startswith(PROGRAMS):
                path = self.directory / f"{actor.name}.{actor.process.pid}.history"
                if path.exists():
                    sizes[path.stem] = path.stat().st_size
        return sizes

    def revive(self) -> None:
        """Start again whoever is gone without being killed by us, and remember that. A server that
        cannot reach its database at its start ends, as its documentation says."""
        for actor in self.actors.values():
            if not actor.alive():
                early = actor.name.startswith("server") and SERVING not in actor.log()
                (self.early_ends if early else self.crashes).append(actor.name)
                actor.start()

    def wait_ready(self) -> None:
        """Until all roles have begun, and the server serves."""

        def ready() -> bool:
            self.revive()
            roles = [name for name in self.actors if not name.startswith(PROGRAMS)]
            begun = all(any(self.directory.glob(f"{name}.*.history")) for name in roles)
            return begun and all(SERVING in actor.log() for actor in self.named("server"))

        server_process.wait_until(ready, "the processes of the campaign work")

    def stop(self, actors: list[Actor]) -> list[str]:
        """Let them end their last call; the names of those that did not."""
        for actor in actors:
            (self.directory / f"stop-{actor.name}").touch()
            if actor.name.startswith(PROGRAMS) and actor.process is not None:
                actor.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        hung: list[str] = []
        for actor in actors:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if actor.process is not None:
                    actor.process.wait(max(0.1, deadline - time.monotonic()))
            if actor.alive():
                hung.append(actor.name)
            actor.end()
            del self.actors[actor.name]
        return hung

    @contextlib.contextmanager
    def running(self) -> Iterator[Cast]:
        try:
            yield self
        finally:
            for actor in self.actors.values():
                actor.end()
            self._starter.shutdown()
