"""Keeps worker processes running: starts them, replaces those that die, stops them all.

The supervisor imports nothing of the application and has no connection: whatever a handler does,
it is still there. Its processes tell it how they are through a socket each (supervised.py), and by
the end of that socket they notice when it is gone. They have sessions of their own, so that a
terminal's Ctrl-C reaches them once: through us.

The first process starts alone. If it says that starting again would not help (the app cannot be
imported, the schema is outdated), that is said once and not by each of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fairlead.worker import health
from fairlead.worker.metrics import Metrics
from fairlead.worker.supervised import VARIABLE

log = logging.getLogger("fairlead.worker")
BACKOFF = (0.1, 10.0)  # seconds until a process that died is replaced, first and at most
LONG = 10.0  # seconds of life after which a death counts as the first again
MARGIN = 10.0  # seconds beyond the grace time after which a process is killed
SILENT = 10.0  # seconds without a report after which a process is not ready
LOOK = 0.5  # seconds between two looks for changed files
LINGER = 1.0  # seconds for the last output of a process whose own children hold its pipe
LINE = 1 << 24  # bytes of one report, or of one line of output


@dataclass(slots=True, eq=False)
class Process:
    """A worker process and what it has told."""

    number: int
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    heard: float = field(default_factory=time.monotonic)
    known: bool = False  # it has loaded the app, and listens
    worked: bool = False  # it was ready once
    hopeless: bool = False  # starting it again would not help
    snapshot: dict[str, Any] | None = None

    def tell(self, word: str) -> None:
        """Stop or abort. Before it listens a signal does: its program ends at once."""
        if self.known:
            with contextlib.suppress(OSError):
                self.writer.write(f"{word}\n".encode())
        else:
            self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


class Sums(Protocol):
    """What processes that have ended had counted."""

    def add(self, snapshot: dict[str, Any], /) -> None: ...
    def snapshot(self) -> dict[str, Any]: ...


class Supervisor:
    # What the log says at the first and at the second signal.
    stops = "stopping; a second signal gives back at once what still runs"
    aborts = "giving back what still runs"

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        processes: int,
        *,
        grace: float,
        changed: Callable[[], list[str]] | None = None,
        hello: Callable[[dict[str, Any]], None] | None = None,
        output: Callable[[int, str], None] | None = None,
        sums: Sums | None = None,
        fds: Sequence[int] = (),
    ) -> None:
        """``command`` gives the arguments of process 1, 2, …; ``changed`` the files that changed
        since it was last asked; ``hello`` gets what the first process says of the app, ``output``
        each line that a process prints (without it they print where we do). ``sums`` adds up
        other things than a worker counts; ``fds`` are open files that the processes inherit."""
        self._command = command
        self._count = processes
        self._grace = grace
        self._changed = changed
        self._hello = hello
        self._output = output
        self._past: Sums = (
            Metrics() if sums is None else sums
        )  # of processes that have ended: sums must not go down
        self._fds = tuple(fds)
        self._code = 0
        self._signals = 0
        self._leave = asyncio.Event()  # these processes should end …
        self._others = asyncio.Event()  # … and the others than the first may start, or end, too
        self._over: asyncio.TimerHandle | None = None
        self.processes: dict[int, Process] = {}  # that live, by number

    # --- how they are --------------------------------------------------------------------------
    def snapshots(self) -> list[dict[str, Any]]:
        """One of each process, and one of all that have ended."""
        living = [one.snapshot for one in self.processes.values() if one.snapshot is not None]
        return [*living, {"name": "ended", **self._past.snapshot()}]

    def ready(self) -> tuple[bool, str]:
        """Are all processes ready? If not, why."""
        now = time.monotonic()
        for number in range(1, self._count + 1):
            one = self.processes.get(number)
            if one is None or one.snapshot is None:
                return False, f"process {number} of {self._count} is not up"
            if now - one.heard > SILENT:
                return False, f"process {number} has said nothing for {now - one.heard:.0f} s"
        return health.ready([one.snapshot or {} for one in self.processes.values()])

    @property
    def stopping(self) -> bool:
        return self._signals > 0

    # --- running -------------------------------------------------------------------------------
    async def run(self) -> int:
        """Until a signal; the exit code. The first signal stops, the second aborts, the third
        kills."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, self.signalled)
        try:
            while True:
                await self._generation()
                if self.stopping or self._changed is None:
                    return self._code
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def signalled(self) -> None:
        self._signals += 1
        if self._signals == 1:
            log.info("%s", self.stops)
            self._end()
        elif self._signals == 2:
            log.info("%s", self.aborts)
            self._tell("abort")
            self._within(MARGIN)
        else:
            self._kill()

    async def _generation(self) -> None:
        """From the start of all processes to the end of all: a signal, or a changed file."""
        self._leave.clear()
        self._others.clear()
        watching = None if self._changed is None else asyncio.create_task(self._watch())
        try:
            async with asyncio.TaskGroup() as keepers:
                for number in range(1, self._count + 1):
                    keepers.create_task(self._keep(number))
        finally:
            if self._over is not None:
                self._over.cancel()
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    def _end(self) -> None:
        """Let the processes finish and leave."""
        if not self._leave.is_set():
            self._leave.set()
            self._others.set()
            self._tell("stop")
            self._within(self._grace + MARGIN)

    def _tell(self, word: str) -> None:
        for one in self.processes.values():
            one.tell(word)

    def _within(self, seconds: float) -> None:
        if self._over is not None:
            self._over.cancel()
        self._over = asyncio.get_running_loop().call_later(seconds, self._kill)

    def _kill(self) -> None:
        for one in self.processes.values():
            log.error("process %d (pid %d) does not leave: killed", one.number, one.process.pid)
            one.send(signal.SIGKILL)
            self._code = 1

    async def _watch(self) -> None:
        assert self._changed is not None
        while True:
            await asyncio.sleep(LOOK)
            files = await asyncio.to_thread(self._changed)
            if files and not self._leave.is_set():
                more = f" and {len(files) - 1} more" if len(files) > 1 else ""
                log.info("%s%s changed: restarting", files[0], more)
                self._end()

    # --- one process after the other -----------------------------------------------------------
    async def _keep(self, number: int) -> None:
        if number > 1:
            await self._others.wait()
        first, most = BACKOFF
        pause = 0.0
        while not self._leave.is_set():
            began = time.monotonic()
            try:
                one = await self._start(number)
            except OSError as error:
                what = f"could not be started: {error}"
            else:
                code = await self._live(one)
                if self._leave.is_set():
                    if code not in (0, -signal.SIGTERM) and self.stopping:
                        self._code = 1
                    return
                if one.hopeless and not self._others.is_set():
                    await self._give_up(code)
                    return
                how = f"was killed by {_signal(-code)}" if code < 0 else f"ended with code {code}"
                what = f"(pid {one.process.pid}) {how}"
            long = time.monotonic() - began >= LONG
            pause = first if long or not pause else min(pause * 2, most)
            log.warning("process %d %s; the next in %.1f s", number, what, pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._leave.wait()

    async def _give_up(self, code: int) -> None:
        """The process itself has said why."""
        if self._changed is None:
            self._code = code
            self._end()
        else:
            log.info("waiting for a change")
            await self._leave.wait()

    async def _start(self, number: int) -> Process:
        ours, theirs = socket.socketpair()
        pipe = None if self._output is None else asyncio.subprocess.PIPE
        told = f"{theirs.fileno()}{',piped' if pipe else ''}"
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(number),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=None if pipe is None else asyncio.subprocess.STDOUT,
                env={**os.environ, VARIABLE: told},
                pass_fds=[theirs.fileno(), *self._fds],
                start_new_session=True,
                limit=LINE,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours, limit=LINE)
        one = self.processes[number] = Process(number, process, reader, writer)
        if self._leave.is_set():
            one.tell("stop")
        return one

    async def _live(self, one: Process) -> int:
        """Hear a process until it has ended; its exit code."""
        hearing = [asyncio.create_task(self._listen(one))]
        if one.process.stdout is not None:
            hearing.append(asyncio.create_task(self._copy(one.number, one.process.stdout)))
        try:
            code = await one.process.wait()
            await asyncio.wait(hearing, timeout=LINGER)
            return code
        finally:
            for task in hearing:
                task.cancel()
            await asyncio.gather(*hearing, return_exceptions=True)
            one.writer.close()
            del self.processes[one.number]
            if one.snapshot is not None:
                self._past.add(one.snapshot)

    async def _listen(self, one: Process) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await one.reader.readline():
                one.heard = time.monotonic()
                self._heard(one, json.loads(line))

    def _heard(self, one: Process, told: dict[str, Any]) -> None:
        if "hello" in told:
            one.known = True
            if self._leave.is_set():
                one.tell("abort" if self._signals > 1 else "stop")
            elif self._hello is not None and one.number == 1:
                self._hello(told["hello"])
        if "snapshot" in told:
            if told["snapshot"]["ready"] and not one.worked:
                one.worked = True
                log.info("process %d (pid %d) is ready", one.number, one.process.pid)
                self._others.set()
            one.snapshot = told["snapshot"]
        if "hopeless" in told:
            one.hopeless = True

    async def _copy(self, number: int, stream: asyncio.StreamReader) -> None:
        assert self._output is not None
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # longer than LINE: it is dropped, and the process can go on
                continue
            if not line:
                return
            self._output(number, line.decode(errors="replace").rstrip("\r\n"))


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
