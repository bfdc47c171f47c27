"""Handlers in processes of their own: for work that keeps a CPU busy, or may take its process down.

Each child works on one message at a time, so that its death is the failure of that message and of
no other. What goes between us is JSON: requests and verdicts, never code. A child that dies is
replaced when the next message needs one.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from fairlead.operations.receiving import row_of
from fairlead.tasks.verdicts import Verdict
from fairlead.worker import child, logs
from fairlead.worker.work import Work

log = logging.getLogger("fairlead.worker")
STARTING = 30.0  # seconds that a process has to start and to import its task, beside its timeout


class ProcessDied(Exception):
    """The process that ran the handler has ended without an answer."""


class Processes:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, finished: Callable[[Work, Verdict], None]
    ) -> None:
        self._loop = loop
        self._finished = finished
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        self._starting: set[asyncio.Task[None]] = set()

    def start(self, work: Work) -> None:
        if work.task.timeout is not None:
            # The time to start a process and to import the task is not the handler's.
            work.deadline = work.since + STARTING + work.task.timeout
            self._loop.call_later(STARTING, work.watch, self._loop)
        task = self._loop.create_task(self._start(work))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start(self, work: Work) -> None:
        try:
            one = self._take_idle()
            if one is None:
                # Both may take a while, and the event loop has other things to do.
                one = await self._loop.run_in_executor(None, _Child)
                self._all.add(one)
            work.halt = one.kill
            self._loop.add_reader(one.pipe.fileno(), self._answered, one, work)
            request = child.request(work.task, work.message.queue, row_of(work.message), work.usual)
            await self._loop.run_in_executor(None, one.pipe.send_bytes, request)
            if work.cancelled is not None:
                one.kill()
        except OSError as error:  # no process to be had, or it died at once: the reader tells
            log.debug("process for message %d: %s", work.message.id, error)
            if work.halt is None:
                self._finished(work, work.verdict_of(error))

    def _take_idle(self) -> _Child | None:
        while self._idle:
            one = self._idle.pop()
            if one.process.is_alive():
                return one
            self._all.discard(one)  # it died between two messages, and is neither's failure
            one.epitaph()
        return None

    def _answered(self, one: _Child, work: Work) -> None:
        try:
            told = child.answer(one.pipe.recv_bytes())
        except (EOFError, OSError):
            self._loop.remove_reader(one.pipe.fileno())
            self._all.discard(one)
            told = work.verdict_of(ProcessDied(one.epitaph()))
        else:
            if isinstance(told, child.Left):
                work.deadline = time.monotonic() + told.left
                if told.begun:
                    self._loop.call_later(told.left, work.watch, self._loop)
                return
            self._loop.remove_reader(one.pipe.fileno())
            self._idle.append(one)
        self._finished(work, told)

    def close(self) -> None:
        for one in self._all:
            one.kill()
        for one in self._all:
            one.epitaph()


class _Child:
    def __init__(self) -> None:
        # A fresh interpreter: a fork of a process with threads may inherit a lock for ever.
        context: Any = multiprocessing.get_context("spawn")
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        self.process: Any = context.Process(
            target=child.main, args=(theirs, logs.settings()), daemon=True
        )
        self.process.start()
        theirs.close()

    def kill(self) -> None:
        self.process.kill()

    def epitaph(self) -> str:
        """How it ended, in words."""
        self.process.join(5)
        code: int | None = self.process.exitcode
        self.pipe.close()
        if code is not None and code < 0:
            return f"its process was killed by {signal.Signals(-code).name}"
        return f"its process ended with exit code {code}"
