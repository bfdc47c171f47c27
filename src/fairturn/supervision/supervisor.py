"""Keeps worker processes running: starts them, replaces those that die, stops them all.

The supervisor imports nothing of the application and has no database connection: no handler can
crash it. Each process reports to it through a socket (link.py); when that socket is closed, the
process knows that the supervisor has ended. The processes have sessions of their own, so that a
terminal's Ctrl-C reaches them only once, through the supervisor.

The first process starts alone. If starting it again would not help (the app cannot be imported, the
schema is outdated), this is reported once and not by every process.
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

from fairturn.observe.worker_metrics import Metrics, ready
from fairturn.supervision import exit_code
from fairturn.supervision.link import LINE, VARIABLE

log = logging.getLogger("fairturn.worker")
BACKOFF = (0.1, 10.0)  # seconds until a dead process is replaced: first, longest
LONG = 10.0  # seconds of life after which the back-off starts again
MARGIN = 10.0  # seconds beyond the grace time after which a process is killed
SILENT = 10.0  # seconds without a report after which a process is not ready
SCAN = 0.5  # seconds between two scans for changed files
LINGER = 1.0  # seconds for the last output of a process whose own children hold its pipe


@dataclass(slots=True, eq=False)
class Process:
    """A worker process and what it has reported."""

    number: int
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    reported_at: float = field(default_factory=time.monotonic)
    loaded: bool = False  # it has loaded the app, and reads commands
    worked: bool = False  # it was ready once
    hopeless: bool = False  # starting it again would not help
    snapshot: dict[str, Any] | None = None

    def command(self, word: str) -> None:
        """Send ``stop`` or ``abort``. A process that does not read commands yet gets a SIGTERM,
        which ends it immediately."""
        if self.loaded:
            with contextlib.suppress(OSError):
                self.writer.write(f"{word}\n".encode())
        else:
            self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


class Sums(Protocol):
    """The sums of the counters of processes that have ended."""

    def add(self, snapshot: dict[str, Any], /) -> None: ...
    def snapshot(self) -> dict[str, Any]: ...


class Supervisor:
    # Log lines at the first and at the second signal.
    stops = "stopping; a second signal releases running messages immediately"
    aborts = "releasing running messages"

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
        """``command`` returns the arguments of process 1, 2, …; ``changed`` returns the files that
        changed since its last call. ``hello`` gets the first process's facts about the app.
        ``output`` gets each line that a process prints; without it the processes print to our own
        output. ``sums`` adds up other counters than a worker's. ``fds`` are open files that the
        processes inherit."""
        self._command = command
        self._count = processes
        self._grace = grace
        self._changed = changed
        self._hello = hello
        self._output = output
        # The counters of processes that have ended: totals must not decrease.
        self._ended: Sums = Metrics() if sums is None else sums
        self._fds = tuple(fds)
        self._code = 0
        self._signals = 0
        self._stop = asyncio.Event()  # this generation of processes should end
        self._start_rest = asyncio.Event()  # the processes after the first may start
        self._kill_timer: asyncio.TimerHandle | None = None
        self.processes: dict[int, Process] = {}  # the living ones, by number

    # --- state ---------------------------------------------------------------------------------
    def snapshots(self) -> list[dict[str, Any]]:
        """Return one snapshot of each process, and one of all that have ended."""
        living = [one.snapshot for one in self.processes.values() if one.snapshot is not None]
        return [*living, {"name": "ended", **self._ended.snapshot()}]

    def ready(self) -> tuple[bool, str]:
        """Return whether all processes are ready; if not, the reason."""
        now = time.monotonic()
        for number in range(1, self._count + 1):
            one = self.processes.get(number)
            if one is None or one.snapshot is None:
                return False, f"process {number} of {self._count} is not running"
            silent = now - one.reported_at
            if silent > SILENT:
                return False, f"process {number} has not reported for {silent:.0f} s"
        return ready([one.snapshot or {} for one in self.processes.values()])

    @property
    def stopping(self) -> bool:
        return self._signals > 0

    # --- running -------------------------------------------------------------------------------
    async def run(self) -> int:
        """Run until a signal; return the exit code. The first signal stops, the second aborts, the
        third kills."""
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
            self._command_all("abort")
            self._kill_after(MARGIN)
        else:
            self._kill()

    async def _generation(self) -> None:
        """Start all processes, and wait for the end of all: after a signal, or a changed file."""
        self._stop.clear()
        self._start_rest.clear()
        watching = None if self._changed is None else asyncio.create_task(self._watch())
        try:
            async with asyncio.TaskGroup() as keepers:
                for number in range(1, self._count + 1):
                    keepers.create_task(self._keep(number))
        finally:
            if self._kill_timer is not None:
                self._kill_timer.cancel()
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    def _end(self) -> None:
        """Stop all processes gracefully."""
        if not self._stop.is_set():
            self._stop.set()
            self._start_rest.set()  # those that still wait end, too
            self._command_all("stop")
            self._kill_after(self._grace + MARGIN)

    def _command_all(self, word: str) -> None:
        for one in self.processes.values():
            one.command(word)

    def _kill_after(self, seconds: float) -> None:
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._kill_timer = asyncio.get_running_loop().call_later(seconds, self._kill)

    def _kill(self) -> None:
        for one in self.processes.values():
            log.error("process %d (pid %d) does not stop: killed", one.number, one.process.pid)
            one.send(signal.SIGKILL)
            self._code = 1

    async def _watch(self) -> None:
        assert self._changed is not None
        while True:
            await asyncio.sleep(SCAN)
            files = await asyncio.to_thread(self._changed)
            if files and not self._stop.is_set():
                more = f" and {len(files) - 1} more" if len(files) > 1 else ""
                log.info("%s%s changed: restarting", files[0], more)
                self._end()

    # --- one process after the other -----------------------------------------------------------
    async def _keep(self, number: int) -> None:
        if number > 1:
            await self._start_rest.wait()
        first, most = BACKOFF
        pause = 0.0
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                one = await self._start(number)
            except OSError as error:
                what = f"could not be started: {error}"
            else:
                code = await self._follow(one)
                if self._stop.is_set():
                    if code not in (0, -signal.SIGTERM) and self.stopping:
                        self._code = 1
                    return
                if one.hopeless and not self._start_rest.is_set():
                    await self._give_up(code)
                    return
                what = f"(pid {one.process.pid}) {exit_code.describe(code)}"
            long = time.monotonic() - began >= LONG
            pause = first if long or not pause else min(pause * 2, most)
            log.warning("process %d %s; replaced in %.1f s", number, what, pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stop.wait()

    async def _give_up(self, code: int) -> None:
        """Do not start it again. The process itself has logged the reason."""
        if self._changed is None:
            self._code = code
            self._end()
        else:
            log.info("waiting for a changed file")
            await self._stop.wait()

    async def _start(self, number: int) -> Process:
        ours, theirs = socket.socketpair()
        pipe = None if self._output is None else asyncio.subprocess.PIPE
        link = f"{theirs.fileno()}{',piped' if pipe else ''}"
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(number),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=None if pipe is None else asyncio.subprocess.STDOUT,
                env={**os.environ, VARIABLE: link},
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
        if self._stop.is_set():
            one.command("stop")
        return one

    async def _follow(self, one: Process) -> int:
        """Read a process's reports and output until it has ended; return its exit code."""
        readers = [asyncio.create_task(self._read_reports(one))]
        if one.process.stdout is not None:
            readers.append(asyncio.create_task(self._copy(one.number, one.process.stdout)))
        try:
            code = await one.process.wait()
            await asyncio.wait(readers, timeout=LINGER)
            return code
        finally:
            for task in readers:
                task.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            one.writer.close()
            del self.processes[one.number]
            if one.snapshot is not None:
                self._ended.add(one.snapshot)

    async def _read_reports(self, one: Process) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await one.reader.readline():
                one.reported_at = time.monotonic()
                self._reported(one, json.loads(line))

    def _reported(self, one: Process, report: dict[str, Any]) -> None:
        if "hello" in report:
            one.loaded = True
            if self._stop.is_set():
                one.command("abort" if self._signals > 1 else "stop")
            elif self._hello is not None and one.number == 1:
                self._hello(report["hello"])
        if "snapshot" in report:
            if report["snapshot"]["ready"] and not one.worked:
                one.worked = True
                log.info("process %d (pid %d) is ready", one.number, one.process.pid)
                self._start_rest.set()
            one.snapshot = report["snapshot"]
        if "hopeless" in report:
            one.hopeless = True

    async def _copy(self, number: int, stream: asyncio.StreamReader) -> None:
        assert self._output is not None
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # the line is longer than LINE: drop it, so that the process goes on
                continue
            if not line:
                return
            self._output(number, line.decode(errors="replace").rstrip("\r\n"))
