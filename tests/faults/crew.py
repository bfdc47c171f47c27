"""Workers as real processes, what they note down, and the producer that keeps them busy."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fairturn
from fairturn.core.errors import DatabaseError
from tests import servers

FULL = "FAIRTURN_FAULTS" in os.environ  # `make faults`: all rounds; it prints what it measures
ROUNDS = int(os.environ.get("FAIRTURN_FAULTS", "3"))
LEASE = 2.0


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    pause = 0.005
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)  # the longer it takes, the less we ask


def fresh_url(kind: str, tmp_path: Path) -> str:
    """An empty database with Fairturn in it."""
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'faults.db'}"
    else:
        server = servers._server(kind)
        url = server.create_database(f"fl_{servers.worker()}_crew")
    with fairturn.connect(url) as db:
        db.migrate()
    return url


# --- notes --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Note:
    pid: int
    at: float  # on the machine's monotonic clock, which all processes share
    what: str
    n: int = -1
    id: int = 0
    delivery: int = 0
    attempt: int = 0


class Notes:
    """A directory with one file for each process that writes; the reader sees all of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._read: dict[Path, int] = {}
        self._by_pid: dict[int, list[Note]] = {}

    def add(self, what: str, **values: int) -> None:
        pid = os.getpid()
        line = json.dumps({"pid": pid, "at": time.monotonic(), "what": what, **values}) + "\n"
        flags = os.O_APPEND | os.O_CREAT | os.O_WRONLY
        file = os.open(self.directory / f"{pid}.notes", flags)
        try:
            os.write(file, line.encode())  # one write: a kill leaves whole lines
        finally:
            os.close(file)

    def by(self, pid: int) -> list[Note]:
        """What one process has written."""
        self._look(self.directory / f"{pid}.notes")
        return self._by_pid.get(pid, [])

    def all(self) -> list[Note]:
        for path in self.directory.glob("*.notes"):
            self._look(path)
        return [note for notes in self._by_pid.values() for note in notes]

    def _look(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            file.seek(self._read.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._by_pid.setdefault(int(path.stem), []).append(Note(**json.loads(line)))
                self._read[path] = self._read.get(path, 0) + len(line)

    def of(self, what: str) -> list[Note]:
        return [note for note in self.all() if note.what == what]

    def numbers(self, what: str) -> set[int]:
        return {note.n for note in self.of(what)}


# --- workers ------------------------------------------------------------------------------------
class Member:
    """One worker process."""

    def __init__(self, crew: Crew, url: str, memory: int | None) -> None:
        self._notes = crew.notes
        number = len(crew.all)
        self.log = crew.directory / f"worker-{number}.log"
        environment = {**os.environ, "FAULTS_URL": url, "FAULTS_NOTES": str(crew.notes.directory)}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.worker_app", json.dumps(crew.options)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.pid = self.process.pid
        if memory is not None:
            resource.prlimit(self.pid, resource.RLIMIT_DATA, (memory, memory))

    def ready(self) -> bool:
        assert self.alive(), f"the worker has ended:\n{self.text()}"
        return any(note.what == "ready" for note in self._notes.by(self.pid))

    def alive(self) -> bool:
        return self.process.poll() is None

    def text(self) -> str:
        return self.log.read_text(errors="replace")[-5000:]

    def send(self, number: signal.Signals) -> float:
        """Send a signal; the moment just before."""
        now = time.monotonic()
        self.process.send_signal(number)
        return now

    def heard(self) -> bool:
        """Has it taken notice of every signal? Two of a kind would count as one before."""
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return all(int(line.split()[1], 16) == 0 for line in status if "Pnd:" in line)

    def kill(self) -> float:
        now = self.send(signal.SIGKILL)
        self.process.wait()
        return now

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.send(signal.SIGTERM)
        return self.process.wait(60)

    def starts(self) -> list[Note]:
        return [note for note in self._notes.by(self.pid) if note.what == "start"]

    def running(self) -> set[tuple[int, int]]:
        """What it has started and not ended."""
        mine = self._notes.by(self.pid)
        ended = {(note.n, note.delivery) for note in mine if note.what == "end"}
        return {(note.n, note.delivery) for note in mine if note.what == "start"} - ended


@dataclass
class Crew:
    """Workers with the same options: ``with Crew(url, tmp_path, queues=[…]) as crew``."""

    url: str
    directory: Path
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.notes = Notes(self.directory)
        self.all: list[Member] = []

    def start(self, url: str | None = None, *, memory: int | None = None) -> Member:
        """One more worker, perhaps on another way to the database."""
        member = Member(self, url or self.url, memory)
        self.all.append(member)
        return member

    def start_ready(self, count: int) -> list[Member]:
        members = [self.start() for _ in range(count)]
        wait_until(lambda: all(member.ready() for member in members), "the workers are ready")
        return members

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *error: object) -> None:
        for member in self.all:
            if member.alive():
                member.process.kill()
                member.process.wait()
        if error[0] is not None:
            for member in self.all[-8:]:
                print(f"--- {member.log.name} (exit {member.process.returncode})\n{member.text()}")


# --- sending --------------------------------------------------------------------------------------
class Producer:
    """Sends all the time, from a thread, and goes on when the database does not answer.

    ``sent`` are the numbers whose send was confirmed, ``maybe`` those where it is not known. With
    ``keys`` a send is repeated until it is confirmed, under the same key."""

    def __init__(
        self, url: str, queue: str, types: list[str], *, keys: bool = False, seconds: float = 0.02
    ) -> None:
        self.sent: set[int] = set()
        self.maybe: set[int] = set()
        self.errors = 0
        self._url, self._queue, self._types = url, queue, types
        self._keys, self._seconds = keys, seconds
        self._next = 0
        self._stop = threading.Event()
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            with fairturn.connect(self._url) as db:
                queue = db.queue(self._queue)
                while not self._stop.is_set():
                    self._send(queue)
                    self._stop.wait(0.02)
        except BaseException as error:
            self._broken = error
            raise

    def _send(self, queue: fairturn.Queue) -> None:
        numbers = range(self._next, self._next + 3)
        self._next += 3
        while True:
            messages = [
                fairturn.Send(
                    {"n": n, "seconds": self._seconds * (n % 4)},
                    type=self._types[n % len(self._types)],
                    key=f"n{n}" if self._keys else None,
                    on_conflict="ignore" if self._keys else "error",
                    channel=f"c{n % 5}",
                )
                for n in numbers
            ]
            try:
                queue.send_many(messages)
            except DatabaseError:
                self.errors += 1
                self.maybe.update(numbers)
                if not self._keys or self._stop.wait(0.05):
                    return
            else:
                self.sent.update(numbers)
                self.maybe.difference_update(numbers)
                return

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def pause(self, seconds: float) -> None:
        """Let it send for that long."""
        assert not self._stop.wait(seconds)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._broken is None, self._broken

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


# --- effects --------------------------------------------------------------------------------------
@contextlib.contextmanager
def connection(url: str) -> Iterator[Any]:
    """A plain connection that commits each statement."""
    driver = fairturn.connect(url).target.open()
    try:
        yield driver.connection
    finally:
        driver.close()


def make_effects(url: str) -> None:
    with connection(url) as raw:
        raw.cursor().execute("CREATE TABLE effect (n BIGINT, delivery BIGINT)")


def effects(url: str) -> dict[int, int]:
    """How often each number took effect."""
    with connection(url) as raw:
        cursor = raw.cursor()
        cursor.execute("SELECT n, count(*) FROM effect GROUP BY n")
        return dict(cursor.fetchall())


def percentiles(what: str, values: list[float]) -> None:
    """Print them. No test asks for a time: it would tell how busy the machine is."""
    values = sorted(values)
    assert values, f"nothing was measured: {what}"
    half = values[len(values) // 2]
    print(f"{what}: p50 {half:.3f} s, p100 {values[-1]:.3f} s of {len(values)}")
