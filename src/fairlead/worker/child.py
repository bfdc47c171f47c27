"""The life of a process that runs handlers for a worker, one message at a time."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, cast

from fairlead.aio.leased import AsyncLeasedMessage
from fairlead.operations.receiving import KEEP
from fairlead.sync.leased import LeasedMessage
from fairlead.tasks.context import AsyncContext, Context
from fairlead.tasks.importing import importing
from fairlead.tasks.middleware import overriding
from fairlead.tasks.task import Task
from fairlead.tasks.verdicts import Verdict
from fairlead.worker import handling, logs
from fairlead.worker.work import Work


# --- what goes through the pipe ---------------------------------------------------------------
def request(task: Task[..., Any], queue: str, row: tuple[Any, ...], most: int) -> bytes:
    values = [
        {"b64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for value in row
    ]
    found = {"module": task.__module__, "name": task.__qualname__}
    return json.dumps({**found, "queue": queue, "row": values, "most": most}).encode()


def verdict_bytes(verdict: Verdict) -> bytes:
    at = verdict.at.timestamp() if isinstance(verdict.at, datetime) else verdict.at
    told: dict[str, Any] = {
        "kind": verdict.kind,
        "result": verdict.result,
        "error": verdict.error,
        "details": verdict.details,
        "delay": verdict.delay,
        "at": at,
        "final": verdict.final,
        "acked": verdict.acked,
    }
    if verdict.memo is not KEEP:
        told["memo"] = verdict.memo
    return json.dumps(told, allow_nan=False).encode()


def answer(data: bytes) -> Verdict | Left:
    told = json.loads(data)
    return Left(**told) if "left" in told else Verdict(**told)


class Left(NamedTuple):
    """The handler has begun, or asked for more time: so many seconds are left to it."""

    left: float
    begun: bool


# --- the process ------------------------------------------------------------------------------
class Alone:
    """Stands for the worker in a process that has one message and no slots to share."""

    def __init__(self, app: Any, queue: str, most: int) -> None:
        self.app = app
        self.max_attempts = {queue: most}
        self.slots = self

    def soon(self, what: Callable[..., Any], *args: Any) -> None:
        what(*args)

    def given(self) -> None:
        pass

    def wanted(self, free: Callable[[], Any]) -> None:
        free()


class ChildWork(Work):
    """Tells the worker, whose clock ends us, how much time the handler has."""

    __slots__ = ("tell",)
    tell: Callable[[bytes], None]

    def begin(self, tell: Callable[[bytes], None]) -> None:
        self.tell = tell
        if self.task.timeout is not None:
            self.deadline = time.monotonic() + self.task.timeout
            self._say(begun=True)

    def extend(self, more: float) -> None:
        super().extend(more)
        if self.deadline is not None:
            self._say(begun=False)

    def _say(self, begun: bool) -> None:
        assert self.deadline is not None
        left = Left(self.deadline - time.monotonic(), begun)
        self.tell(json.dumps(left._asdict()).encode())


def main(pipe: Connection, log_settings: logs.LogSettings | None = None) -> None:
    """Answer requests until the worker closes the pipe."""
    # A terminal's Ctrl-C goes to everybody in it, and systemd's SIGTERM to all processes of the
    # service; whether we stop is the worker's decision. Not SIG_IGN: programs that a handler starts
    # would inherit that, and could not be terminated.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _do_nothing)
    if log_settings is not None:
        logs.setup(*log_settings)
    requests: list[bytes] = []
    come = threading.Semaphore(0)

    def listen() -> None:
        while True:
            try:
                requests.append(pipe.recv_bytes())
            except (EOFError, OSError):
                os._exit(0)  # the worker has gone; so do we, whatever the handler is doing
            come.release()

    threading.Thread(target=listen, daemon=True).start()
    while True:
        come.acquire()
        verdict = handle(json.loads(requests.pop(0)), pipe.send_bytes)
        try:
            data = verdict_bytes(verdict)
        except (TypeError, ValueError) as error:
            data = verdict_bytes(Verdict("fail", error=f"not JSON: {error}"))
        pipe.send_bytes(data)


def _do_nothing(number: int, frame: Any) -> None:
    pass


def handle(asked: dict[str, Any], tell: Callable[[bytes], None]) -> Verdict:
    row = tuple(
        base64.b64decode(cast("dict[str, str]", value)["b64"]) if isinstance(value, dict) else value
        for value in asked["row"]
    )
    queue, most = asked["queue"], asked["most"]
    try:
        task = find(asked["module"], asked["name"])
    except Exception as error:
        return Verdict("fail", error=f"the process cannot import its task: {error!r}")
    app: Any = task.home
    around = overriding(app.middleware, "handling")
    alone: Any = Alone(app, queue, most)
    nobody: Any = None
    if task.is_async:

        async def run() -> Verdict:
            message = AsyncLeasedMessage(app.async_db.queue(queue), row)
            work = ChildWork(alone, task, message, nobody)
            work.know(AsyncContext(task.name, message, work, app.db))
            work.begin(tell)
            try:
                return await handling.acall(work, around)
            finally:
                await app.close_async()

        return asyncio.run(run())
    message: Any = LeasedMessage(app.db.queue(queue), row)
    work = ChildWork(alone, task, message, nobody)
    work.know(Context(task.name, message, work, app.db))
    work.begin(tell)
    return handling.call(work, around)


def find(module: str, name: str) -> Task[..., Any]:
    """The task, where our own worker says that its code is; nothing of this comes from a row."""
    importing.set(True)
    found: Any = import_module(module)
    importing.set(False)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, Task):
        raise TypeError(f"{module}.{name} is {type(found).__name__}, not a task")
    return cast("Task[..., Any]", found)
