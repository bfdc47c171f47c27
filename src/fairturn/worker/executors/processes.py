"""Runs handlers in child processes: for work that keeps a CPU busy, or may crash its process.

Each child works on one message at a time, so that its death is the failure of that message only.
Requests and verdicts pass between the processes as JSON, never as code. A child that dies is
replaced when the next message needs one.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from fairturn.observe import logs
from fairturn.operations.receives import row_of
from fairturn.supervision import exit_code
from fairturn.tasks.verdicts import Verdict
from fairturn.worker.delivery import Delivery
from fairturn.worker.executors import child

log = logging.getLogger("fairturn.worker")
STARTING = 30.0  # seconds to start a process and import its task, in addition to the timeout


class ProcessDied(Exception):
    """The process that ran the handler ended without an answer."""


class Processes:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, finished: Callable[[Delivery, Verdict], None]
    ) -> None:
        self._loop = loop
        self._finished = finished
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        self._starting: set[asyncio.Task[None]] = set()

    def start(self, delivery: Delivery) -> None:
        if delivery.deadline is not None:
            # The timeout is the handler's alone: add the time to start and to import the task.
            delivery.deadline += STARTING
            self._loop.call_later(STARTING, delivery.watch, self._loop)
        task = self._loop.create_task(self._start(delivery))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start(self, delivery: Delivery) -> None:
        try:
            one = self._take_idle()
            if one is None:
                # This may take a while, and so may the send below: do not block the event loop.
                one = await self._loop.run_in_executor(None, _Child)
                self._all.add(one)
            delivery.interrupt = one.kill
            self._loop.add_reader(one.pipe.fileno(), self._answered, one, delivery)
            request = child.request(
                delivery.task,
                delivery.message.queue,
                row_of(delivery.message),
                delivery.default_max_attempts,
            )
            await self._loop.run_in_executor(None, one.pipe.send_bytes, request)
            if delivery.cancelled is not None:
                one.kill()
        except OSError as error:
            log.debug("process for message %d: %s", delivery.message.id, error)
            if delivery.interrupt is None:  # else the process has died, and _answered reports it
                self._finished(delivery, delivery.verdict_on_error(error))

    def _take_idle(self) -> _Child | None:
        while self._idle:
            one = self._idle.pop()
            if one.process.is_alive():
                return one
            self._all.discard(one)  # it died between two messages: neither of them has failed
            one.join()
        return None

    def _answered(self, one: _Child, delivery: Delivery) -> None:
        try:
            answer = child.read_answer(one.pipe.recv_bytes())
        except (EOFError, OSError):
            self._loop.remove_reader(one.pipe.fileno())
            self._all.discard(one)
            answer = delivery.verdict_on_error(ProcessDied(one.join()))
        else:
            if isinstance(answer, child.TimeLeft):
                delivery.deadline = time.monotonic() + answer.left
                if answer.started:
                    self._loop.call_later(answer.left, delivery.watch, self._loop)
                return
            self._loop.remove_reader(one.pipe.fileno())
            self._idle.append(one)
        self._finished(delivery, answer)

    def close(self) -> None:
        for one in self._all:
            one.kill()
        for one in self._all:
            one.join()


class _Child:
    def __init__(self) -> None:
        # Not a fork: the fork of a process with threads may inherit a lock that is never released.
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

    def join(self) -> str:
        """Wait for the end of the process; return how it ended, as text."""
        self.process.join(5)
        self.pipe.close()
        return f"its process {exit_code.describe(self.process.exitcode)}"
